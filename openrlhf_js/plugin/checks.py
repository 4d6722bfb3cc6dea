"""Checks before a training run: flags and local files, all problems at once, no model loaded.

Checked are mistakes that upstream would answer late, unclearly, or by silently training something
else. Names on a hub, and what upstream's own validation says, are left to upstream.
"""

from __future__ import annotations

import argparse
import glob
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import progress
from openrlhf_js.common.model_folders import CONFIGURATIONS, GENERATION, model_folder
from openrlhf_js.plugin.flags import OURS, our_estimator
from openrlhf_js.plugin.prompts import SPLITS, Flat, check_prompts, looks_local, read_upstream_rows
from openrlhf_js.plugin.run.checkpoints import latest_checkpoint
from openrlhf_js.plugin.run.leftovers import RUN_ID
from openrlhf_js.plugin.run.training import start_problems
from openrlhf_js.plugin.run.user_file import UserFile, load_file
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.reward_model.checkpoint import checkpoint_problems
from openrlhf_js.sampling.complete import ITEMS

MODELS = tuple(f"{role}.model_name_or_path" for role in ("actor", "critic", "reward"))
TRUST = "js.trust_remote_code"
MEASURABLE = {  # values with which some rank sees whole and final gradients
    "ds.param_dtype": ("bf16", "fp32"),  # fp16 has a loss scale that changes
    "actor.optim": ("adam",),  # DeepSpeed's norm for Muon is that of Muon's update
    "ds.zero_stage": (1, 2, 3),  # without ZeRO DeepSpeed does not always compute a norm
    "ds.deepcompile": (False,),
    "ds.tensor_parallel_size": (1,),
    "ds.ring_attn_size": (1,),
}
OF_ONE_ESTIMATOR = {
    "js.shrinkage": "js_fixed",
    "js.half_life": "js_memory",
}
WITH_LORA = {
    "ds.load_in_4bit": False,  # vLLM holds the base model in bfloat16, which is another one
    "ds.tensor_parallel_size": 1,
}
EARLIER_RUNS = {  # flag of a folder -> what a run leaves there
    "ckpt.path": "_actor/*",
    "ckpt.output_dir": "*.safetensors",
    "logger.tensorboard_dir": "{run_name}/events.out.tfevents.*",
    "js.save_batches": "batch_*.npz",
}
RENAMED_SHARE = 0.01  # releases of one model family rename some reserved tokens


def check(args: argparse.Namespace) -> None:
    """Raises BadInput with every problem of the flat arguments and their files, one per line."""
    flat: Flat = vars(args)
    grader = _grader(flat)
    problems = list(_estimator(flat))
    problems += _models(flat)
    problems += _rewards(flat, grader)
    problems += start_problems(flat)
    if RUN_ID not in os.environ:  # a restart finds what its own run has left
        problems += earlier_run_problems(flat)
    prompt_problems, rows = check_prompts(flat)
    problems += prompt_problems
    problems += _batch_sizes(flat, rows)
    if grader and not prompt_problems and _is_our_task(grader.task):
        problems += _labels(flat, grader.task)
    problems += _selection(flat)
    problems += _gradient(flat)
    if flat["js.tracker"] and flat["logger.wandb.key"]:
        problems.append("--js.tracker is instead of --logger.wandb.key: give one")
    if problems:
        raise BadInput("\n".join(problems))


def check_hub_models(flat: Flat) -> None:
    """Raises BadInput for models on a hub that would run Python of their own, at a run's start."""
    problems = code_problems(flat, MODELS, on_hub=True)
    if problems:
        raise BadInput("\n".join(problems))


def code_problems(flat: Flat, flags: Sequence[str], on_hub: bool) -> list[str]:
    """A refusal for each model that would run Python of its own, which OpenRLHF always allows.

    Of local folders, or of names on the hub, whose small files are downloaded for it.
    """
    if flat[TRUST]:
        return []
    problems: list[str] = []
    flag_of = {flat[flag]: flag for flag in reversed(flags) if flat[flag]}
    for name, flag in flag_of.items():
        if os.path.isdir(name) == on_hub:
            continue
        if on_hub and flat["use_ms"]:
            problems.append(
                f"--{flag}: whether {name} runs Python of its own is not known on ModelScope: "
                f"download it and give the folder, or allow it with --{TRUST}"
            )
            continue
        files = {"allow_patterns": [CONFIGURATIONS, GENERATION], "ignore_patterns": []}
        try:
            model_folder(name, False, f"--{TRUST}", **files)
        except ValueError as error:
            problems.append(f"--{flag}: {error}")
    return problems


# --- the estimator -----------------------------------------------------------------------------


def _estimator(flat: Flat) -> Iterator[str]:
    name = flat["algo.advantage.estimator"]
    shrinkage = flat["js.shrinkage"]
    try:
        record = our_estimator(name)
    except ValueError as error:
        yield f"--algo.advantage.estimator: {error}"
        return
    prompts = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    lacking = None if record is None else record.lacks(prompts, responses)
    if lacking:
        yield f"--rollout.batch_size, --rollout.n_samples_per_prompt: {name} {lacking}"
    for flag, owner in OF_ONE_ESTIMATOR.items():
        if flat[flag] is not None and name != owner:
            yield f"--{flag} is for {owner}, not {name}: leave it out"
    if name == "js_fixed" and shrinkage is None:
        yield "js_fixed needs --js.shrinkage, from 0 (rloo) to 1 (bloo)"
    if flat["js.warm_memory"] and (record is None or not record.needs_keys):
        remembering = ", ".join(key for key, ours in OURS.items() if ours.needs_keys)
        yield f"--js.warm_memory is for {remembering}, not {name}: leave it out"
    elif flat["js.warm_memory"]:
        yield from _warm_memory(Path(flat["js.warm_memory"]))
    loss = flat["js.loss"]
    if loss in ("token_mean", "constant") and flat["actor.policy_loss_type"] == "gspo":
        yield f"--js.loss {loss} does not work with gspo, which takes the mean of each sequence"
    if flat["algo.dynamic_filtering_enable"] and record and shrinkage != 0:  # 0 is rloo
        yield (
            "--algo.dynamic_filtering_enable drops groups of equal rewards. They have no gradient "
            f"under rloo but teach under {name}, so dropping them biases the gradient: leave it out"
        )
    if flat["js.on_bad_reward"] == "mask" and record is None:
        yield (
            f"--js.on_bad_reward mask leaves responses out of a baseline, which upstream's {name} "
            f"cannot: choose one of {', '.join(OURS)} (js_fixed with --js.shrinkage 0 is rloo)"
        )


def _selection(flat: Flat) -> Iterator[str]:
    """What prompts that are chosen do not go with."""
    selection = flat["js.prompt_selection"]
    if selection == "uniform":
        return
    if flat["algo.dynamic_filtering_enable"]:
        yield (
            f"--js.prompt_selection {selection} and --algo.dynamic_filtering_enable both choose "
            "prompts by their rewards: leave one out"
        )
    if not flat["train.async_enable"]:
        return
    # the next step is sampled during this one's update
    if not flat["reward.remote_url"] and not flat["train.agent_func_path"]:
        yield (
            f"--js.prompt_selection {selection} with --train.async_enable learns rewards when the "
            "responses are sampled, and a reward model in the run grades later: serve it "
            "(--reward.remote_url), or leave --train.async_enable out"
        )
    at_once = flat["rollout.vllm_generate_batch_size"]
    if at_once and at_once != flat["rollout.batch_size"]:
        yield (
            f"--js.prompt_selection {selection} chooses --rollout.batch_size "
            f"{flat['rollout.batch_size']} prompts at once: leave "
            f"--rollout.vllm_generate_batch_size {at_once} out"
        )


def _warm_memory(samples: Path) -> Iterator[str]:
    for file in (samples, samples.with_suffix(ITEMS)):
        if not file.is_file():
            yield (
                f"--js.warm_memory {samples}: {file} does not exist; `openrlhf-js eval passk` "
                "writes samples/NAME.jsonl and samples/NAME.items.jsonl"
            )
            return


# --- models and rewards ------------------------------------------------------------------------


def _models(flat: Flat) -> Iterator[str]:
    if not flat["actor.model_name_or_path"]:
        yield "--actor.model_name_or_path is missing: the model to train"
    for flag in MODELS:
        if flat[flag] and not os.path.exists(flat[flag]) and looks_local(flat[flag]):
            yield f"--{flag} {flat[flag]}: does not exist"
    untrusted = code_problems(flat, MODELS, on_hub=False)
    yield from untrusted
    for flag, works in WITH_LORA.items() if flat["ds.lora.rank"] > 0 else ():
        if flat[flag] != works:
            yield f"--ds.lora.rank does not work with --{flag} {flat[flag]}, only with {works}"
    if flat["train.enable_ema"]:
        yield (
            "--train.enable_ema would save upstream's moving average of the weights, which in "
            "bfloat16 stays where it began, and which no checkpoint holds: leave it out"
        )
    folder = flat["reward.model_name_or_path"]
    elsewhere = flat["reward.remote_url"] or flat["train.agent_func_path"]
    if folder and os.path.isdir(folder) and not elsewhere and not untrusted:
        yield from reward_model_problems(
            folder,
            flat["actor.model_name_or_path"],
            flat["ds.value_head_prefix"],
            flat["reward.normalize_enable"],
            flat[TRUST],
        )


def reward_model_problems(
    folder: str, policy: str | None, value_head_prefix: str, normalize: bool, trust: bool = False
) -> Iterator[str]:
    """The problems of a local folder as the reward model in Ray, which reads the policy's tokens.

    The policy is a folder, or a name on a hub.
    """
    from transformers import AutoTokenizer  # slow to import

    problems = checkpoint_problems(
        folder, value_head_prefix, normalize=normalize, trust_remote_code=trust
    )
    yield from (f"--reward.model_name_or_path: {problem}" for problem in problems)
    if problems or not policy or not Path(policy, "tokenizer_config.json").is_file():
        return
    try:
        written, read = (
            AutoTokenizer.from_pretrained(path, trust_remote_code=trust).get_vocab()
            for path in (policy, folder)
        )
    except (OSError, ValueError):  # upstream says why the policy's does not load
        return
    other = sum(read.get(token) != number for token, number in written.items())
    if other > RENAMED_SHARE * len(written):
        yield (
            f"--reward.model_name_or_path: {other:,} of the policy's {len(written):,} tokens have "
            f"another number in {folder}, which would read other text than was written: use a "
            "reward model with the policy's tokenizer, or, if it knows the policy's chat template, "
            "serve it (`openrlhf-js rm serve`, --reward.remote_url)"
        )


def _grader(flat: Flat) -> UserFile | None:
    """The reward file or the agent of the run, None where it has neither."""
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"]
    if not agent and not (url and url.split(",")[0].endswith(".py")):
        return None
    path = agent or url.split(",")[0]
    name = "AgentExecutor" if agent else "reward_func"
    return load_file(path, name, flat["js.device"], flat["js.reward_timeout_seconds"])


def _rewards(flat: Flat, grader: UserFile | None) -> Iterator[str]:
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"]
    remote = bool(url) and grader is None
    if flat["js.reward_weights"] is not None and not remote:
        yield "--js.reward_weights is for reward models that --reward.remote_url names"
    if remote and flat["reward.normalize_enable"] and flat["algo.advantage.estimator"] != "gae":
        yield (
            "--reward.normalize_enable normalises a reward model in Ray, and --reward.remote_url "
            "names servers: leave it out here and give it to `openrlhf-js rm serve`"
        )
    if remote:
        from openrlhf_js.plugin.rewards import parse, refused

        try:
            sources = parse(url.split(","), flat["js.reward_weights"])
            for source in filter(refused, sources):
                yield f"--reward.remote_url {source.urls[0]}: no server there (connection refused)"
        except BadInput as error:
            yield from str(error).splitlines()
    elif grader:
        flag = "train.agent_func_path" if agent else "reward.remote_url"
        if grader.problem:
            yield f"--{flag} {agent or url.split(',')[0]}: {grader.problem}"
    elif not flat["reward.model_name_or_path"]:
        yield (
            "nothing gives rewards: give --reward.remote_url (a .py file or an address), "
            "--reward.model_name_or_path or --train.agent_func_path"
        )
    elif flat["algo.advantage.estimator"] == "remax":
        yield (
            "remax needs rewards with the responses, and a reward model in Ray gives them later: "
            "serve it (`openrlhf-js rm serve`) and give --reward.remote_url"
        )


# --- folders ------------------------------------------------------------------------------------


def earlier_run_problems(flat: Flat) -> list[str]:
    """What an earlier run left in the folders of this one, unless this one resumes it."""
    if flat["ckpt.load_enable"] or flat["js.requeued"]:
        return []
    used = []
    for flag, pattern in EARLIER_RUNS.items():
        pattern = pattern.format(run_name=glob.escape(flat["logger.wandb.run_name"]))
        files = sorted(glob.glob(pattern, root_dir=flat[flag])) if flat[flag] else []
        if files:
            used.append(f"--{flag} {flat[flag]} ({files[0]})")
    if not used:
        return []
    advice = "it has no checkpoint; if it is this run, begin it again with --js.requeued"
    if latest_checkpoint(flat).is_file():
        advice = "resume it with --ckpt.load_enable"
    return [f"an earlier run is in {', '.join(used)}: {advice}, or name other folders"]


# --- labels ------------------------------------------------------------------------------------


def _is_our_task(name: str) -> bool:
    """Whether the TASK of a reward file is one of ours; users have that word for their own, too."""
    try:
        from openrlhf_js.tasks import GRADED
        from openrlhf_js.tasks.rewards import BY_DATASOURCE
    except ModuleNotFoundError:  # without the extra, no file grades with ours
        return False
    return name == BY_DATASOURCE or name.partition("/")[0] in GRADED


def grades_with_our_task(args: argparse.Namespace) -> bool:
    """Whether the reward file or the agent of nested arguments grades with a task of ours."""
    flat = {
        "train.agent_func_path": args.train.agent_func_path,
        "reward.remote_url": args.reward.remote_url,
        "js.device": args.js.device,
        "js.reward_timeout_seconds": args.js.reward_timeout_seconds,
    }
    grader = _grader(flat)
    return grader is not None and _is_our_task(grader.task)


def _labels(flat: Flat, task_name: str) -> Iterator[str]:
    """Labels in local files that the grader of the run would refuse hours later."""
    key = flat["data.label_key"]
    if key is None:
        yield f"--data.label_key is missing: {task_name} grades against the label of a row"
        return
    for flag, split in SPLITS.items():
        for name in (flat[flag] or "").split(","):
            path = name.split("@")[0].strip()
            rows = read_upstream_rows(path, flat[split]) if path else None
            if rows is not None:
                used = rows.select(range(min(flat["data.max_samples"], len(rows))))
                for problem in _refused_labels(used, key, task_name):
                    yield f"--{flag} {path}: {problem}"


def _refused_labels(rows: Any, key: str, task_name: str) -> list[str]:
    """The first label that is refused, and how many are."""
    from openrlhf_js.tasks.rewards import check_row_label

    columns = [name for name in (key, "datasource") if name in rows.column_names]
    first = ""
    refused = 0
    with progress("checking labels", len(rows)) as bar:
        for number, row in enumerate(rows.select_columns(columns), 1):
            try:
                check_row_label(task_name, row[key], row.get("datasource"))
            except ModuleNotFoundError as error:  # it names the extra
                return [str(error)]
            except ValueError as error:
                first = first or f"row {number}: {error}"
                refused += 1
            bar.advance()
    return [f"{first} ({refused:,} of {len(rows):,} labels are refused)"] if refused else []


# --- batch sizes -------------------------------------------------------------------------------


def _batch_sizes(flat: Flat, rows: list[int] | None) -> list[str]:
    """Whether batch sizes, processes and the number of prompts fit each other.

    `rows` are the numbers of the data sets' rows that an episode trains, None if not known.

    Upstream checks little of it: it would drop samples, carry half a gradient into the next batch,
    or wait for ever for a rank that has run out of samples.
    """
    name = flat["algo.advantage.estimator"]
    batch = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    train = flat["train.batch_size"]
    at_once = flat["rollout.vllm_generate_batch_size"]
    prompts = None if rows is None else len(rows)
    last = 0  # prompts in an episode's last, short rollout
    drop = ""  # how to do without it
    if rows and len(rows) >= batch and not flat["algo.dynamic_filtering_enable"]:
        last = len(rows) % batch
        drop = f"use --data.max_samples {rows[-last - 1]}"
    problems = []
    if (flat["vllm.num_engines"] or 0) < 1:
        problems.append("--vllm.num_engines must be at least 1: vLLM writes the responses")
    for role in ("actor", "critic") if name == "gae" else ("actor",):
        problems += _ranks(flat, role, last, drop)
    problems += _multiple(
        batch * responses,
        of=train,
        what="responses of a rollout:",
        why="--train.batch_size",
        use=_larger(flat, train),
    )
    if not flat["train.dynamic_batch_enable"]:
        problems += _multiple(
            last * responses,
            of=train,
            what="responses of the last rollout:",
            why="--train.batch_size",
            use=drop,
        )
    if prompts is not None and prompts < batch:
        problems.append(
            f"there are {prompts} prompts, fewer than one rollout of --rollout.batch_size {batch}: "
            "use a smaller one, or more prompts"
        )
    if at_once is not None and at_once < batch:
        problems.append(
            f"--rollout.vllm_generate_batch_size {at_once} is less than --rollout.batch_size "
            f"{batch}: upstream would train on rollouts of {at_once} prompts"
        )
    lacking = OURS[name].lacks(last, responses) if last and name in OURS else None
    if lacking:
        problems.append(f"an episode's last rollout is too small, {drop}: {name} {lacking}")
    return list(dict.fromkeys(problems))


def _ranks(flat: Flat, role: str, last: int, drop: str) -> list[str]:
    """The optimizer's batch and the rollout, each cut evenly among the data-parallel ranks."""
    gpus = flat[f"{role}.num_nodes"] * flat[f"{role}.num_gpus_per_node"]
    gpus_per_rank = flat["ds.ring_attn_size"] * flat["ds.tensor_parallel_size"]
    problems = _multiple(
        gpus,
        of=gpus_per_rank,
        what=f"the number of GPUs of the {role}",
        why="--ds.ring_attn_size x --ds.tensor_parallel_size",
        use=f"change --{role}.num_gpus_per_node",
    )
    if problems:
        return problems
    ranks = gpus // gpus_per_rank
    dynamic = flat["train.dynamic_batch_enable"]
    problems = _multiple(
        flat["train.batch_size"],
        of=ranks * (1 if dynamic else flat["train.micro_batch_size"]),
        what="--train.batch_size",
        why=f"--train.micro_batch_size x {ranks} ranks of the {role}",
    )
    if ranks > 1:  # one rank takes every sample, whatever the size of the last micro-batch
        responses = flat["rollout.n_samples_per_prompt"]
        rollout_multiple = ranks * (1 if dynamic else flat["rollout.micro_batch_size"])
        rollouts = (
            (flat["rollout.batch_size"], "a rollout", _larger(flat, rollout_multiple)),
            (last, "the last rollout", drop),
        )
        for prompts, rollout, use in rollouts:
            problems += _multiple(
                prompts * responses,
                of=rollout_multiple,
                what=f"responses of {rollout}:",
                why=f"--rollout.micro_batch_size x {ranks} ranks of the {role}",
                use=use,
            )
    return problems


def _multiple(size: int, of: int, what: str, why: str, use: str = "") -> list[str]:
    advice = use or f"use {math.ceil(size / of) * of}"
    return [f"{what} {size} is not a multiple of {why} = {of}: {advice}"] if size % of else []


def _larger(flat: Flat, of: int) -> str:
    """To use the next number of prompts whose responses are a multiple."""
    batch = flat["rollout.batch_size"]
    step = of // math.gcd(of, flat["rollout.n_samples_per_prompt"])
    return f"use --rollout.batch_size {math.ceil(batch / step) * step}"


# --- the gradient ------------------------------------------------------------------------------


def _gradient(flat: Flat) -> Iterator[str]:
    """What measuring its variance, and keeping prompts in one micro-batch, do not go with."""
    for flag, works in MEASURABLE.items():
        if flat["js.gradient_variance"] and flat[flag] not in works:
            yield (
                f"--js.gradient_variance does not work with --{flag} {flat[flag]}, only with "
                f"{' or '.join(map(str, works))} (docs/gradient_variance.md)"
            )
    if flat["js.group_micro_batches"] and flat["train.dynamic_batch_enable"]:
        yield "--js.group_micro_batches: --train.dynamic_batch_enable groups by length"
    elif flat["js.group_micro_batches"]:
        yield from _multiple(
            flat["train.micro_batch_size"],
            of=flat["rollout.n_samples_per_prompt"],
            what="--js.group_micro_batches: --train.micro_batch_size",
            why="the responses to a prompt",
        )
