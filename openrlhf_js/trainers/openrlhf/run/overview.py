"""Shows a run on one screen before it begins: model, data, length, and output folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from answer_graders.programs.console import OurConsole, visible
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.trainers.openrlhf import gpu_memory
from openrlhf_js.trainers.openrlhf.checks import Checked
from openrlhf_js.trainers.openrlhf.checks.lengths import MODEL, Lengths
from openrlhf_js.trainers.openrlhf.checks.models import TRUST
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.run.record import settings_file
from openrlhf_js.trainers.openrlhf.run.screen import log_of
from openrlhf_js.trainers.openrlhf.schedule import Schedule

COLUMNS = 100
NOT_MEASURED = "not measured yet: the trainer does it, before it loads the model"
GIVEN = {  # a field of an estimator's record -> what the estimator gets besides the rewards
    "needs_greedy": "the reward of a greedy response, one more for each prompt",
    "reads_score_norms": "squared score norms, from log-probabilities that are there anyway",
    "remembers_prompts": "keys of the prompts, by which it remembers them",
    "needs_lengths": "lengths of the responses",
    "needs_shrinkage": "--js.shrinkage",
}

Rows = Iterator[tuple[str, str]]


def print_overview(flat: Flat, checked: Checked, download: bool) -> None:
    """Prints the run as a table of two columns.

    Args:
        flat: the flags, with the device of the run.
        checked: what the checks have found.
        download: whether a model's configuration may come from the hub.
    """
    config = _config(flat, download)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = chain(
        _model(flat, config),
        _data(flat, checked.lengths),
        _rewards(flat, checked.task),
        _updates(flat, checked.prompts),
        _estimator(flat),
        _gpus(flat, config),
        _places(flat),
    )
    for name, text in rows:
        table.add_row(name, Text(visible(text)))
    console = OurConsole()
    console.width = min(COLUMNS, console.width) if console.is_terminal else COLUMNS
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# --- model, data and rewards ----------------------------------------------------------------------


def _config(flat: Flat, download: bool) -> Any:
    """The policy's configuration; None if it is not on this machine."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            flat[MODEL], trust_remote_code=flat[TRUST], local_files_only=not download
        )
    except (OSError, ValueError):  # upstream says why
        return None


def _sizes(config: Any) -> gpu_memory.Model | None:
    """The sizes of a text-only model, if its architecture is known."""
    return None if hasattr(config, "vision_config") else gpu_memory.Model.of(config)


def _model(flat: Flat, config: Any) -> Rows:
    if config is None:
        yield "model", f"{flat[MODEL]}, which is not here yet"
        return
    described = ", ".join(getattr(config, "architectures", None) or [config.model_type])
    model = _sizes(config)
    rank = flat["ds.lora.rank"]
    if model is not None:
        described += f", {_large(model.parameters)} parameters"
    if rank > 0:
        described += f"; adapters of rank {rank} are trained"
        if model is not None and flat["ds.lora.target_modules"] == "all-linear":
            described += f", {_large(model.adapters(rank))} parameters"
    yield "model", f"{flat[MODEL]}: {described}"


def _large(number: int) -> str:
    """A number of parameters in words."""
    for size, word in ((10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


def _data(flat: Flat, lengths: Mapping[str, list[Lengths | None]]) -> Rows:
    described = _prompts(lengths.get("data.prompt_dataset"), flat)
    yield "data", f"{flat['data.prompt_dataset']}: {described}"
    if flat["eval.dataset"]:
        every = _count(flat["eval.steps"], "step")
        responses = _count(flat["eval.n_samples_per_prompt"], "response")
        described = _prompts(lengths.get("eval.dataset"), flat)
        yield (
            "evaluation",
            f"{flat['eval.dataset']}: {described}; every {every}, {responses} to each",
        )
    else:
        yield "evaluation", "none (--eval.dataset, --eval.steps)"


def _prompts(data_sets: Sequence[Lengths | None] | None, flat: Flat) -> str:
    """How many prompts there are, and how long they are."""
    if flat["train.agent_func_path"]:
        return "not measured, since an agent writes the prompts"
    found = [lengths for lengths in data_sets or () if lengths is not None]
    if not found or len(found) < len(data_sets or ()):
        return NOT_MEASURED
    tokens = chain.from_iterable(lengths.tokens for lengths in found)
    used = found[0]._replace(tokens=list(tokens)[: flat["data.max_samples"]])
    described = _count(len(used.tokens), "prompt")
    if not used.known:
        return f"{described} with images, whose length is not measured"
    described += f", the longest of {_count(max(used.known), 'token')}"
    if flat["data.apply_chat_template"]:
        described += " with the chat template"
    too_long = len(used.too_long)
    left_out = f"{too_long:,} are longer and left out" if too_long else "none is longer"
    return f"{described}; --data.max_len leaves room for {used.room:,}, {left_out}"


def _rewards(flat: Flat, task: str) -> Rows:
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"] or ""
    key = flat["data.label_key"]
    label = f"the row's {key!r}" if key else "no label (--data.label_key)"
    if agent:
        source = f"{agent}: its AgentExecutor gets the prompt and {label}"
    elif url.endswith(".py"):
        source = f"{url}: its reward_func gets prompts, responses and {label}"
    elif url:
        source = f"{url}: gets prompts, responses and {label} over HTTP"
    else:
        source = f"{flat['reward.model_name_or_path']}: a reward model in this run reads the text"
    graded = f" (task {task})" if task else ""
    bad = "stops the run" if flat["js.on_bad_reward"] == "stop" else "is masked"
    yield "rewards", f"{source}{graded}; a response without one {bad} (--js.on_bad_reward)"


# --- how it is trained ----------------------------------------------------------------------------


def _updates(flat: Flat, prompts: int | None) -> Rows:
    schedule = Schedule.of(prompts or 0, flat.__getitem__)
    batch = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    longest = flat["rollout.max_new_tokens"] or flat["data.max_len"]
    age = "no response is older than the policy that it trains"
    if schedule.oldest:
        age = f"a response gets up to {_count(schedule.oldest, 'update')} old"
    yield (
        "batch",
        f"{batch:,} prompts x {responses:,} responses = {batch * responses:,} a step, of up to "
        f"{longest:,} tokens each; {_count(schedule.updates, 'update')} a step "
        f"(--train.batch_size {flat['train.batch_size']}); {age}",
    )
    episodes = _count(flat["train.num_episodes"], "episode")
    if prompts is None:
        length = f"{episodes}, of as many steps as the prompts make, which are not measured yet"
    else:
        most = "at most " if flat["algo.dynamic_filtering_enable"] else ""
        updates = _count(schedule.rollouts * schedule.updates, "update")
        length = f"{most}{schedule.rollouts:,} in {episodes}, {updates}"
        if prompts % batch:
            length += f"; {prompts % batch:,} of {prompts:,} prompts are left out of each episode"
    yield "steps", length
    loss = flat["js.loss"] or flat["actor.loss_agg_mode"]
    yield (
        "loss",
        f"{flat['actor.policy_loss_type']}, {loss}; KL coefficient {flat['algo.kl.init_coef']:g}; "
        f"learning rate {flat['actor.adam.lr']:g}, {flat['actor.lr_scheduler']}",
    )


def _estimator(flat: Flat) -> Rows:
    estimator = in_training(flat["algo.advantage.estimator"])
    record = estimator.record
    if record is None:
        yield "estimator", f"{estimator.name} of OpenRLHF, with a critic"
        return
    given = [name for field, name in GIVEN.items() if getattr(record, field)]
    by_whom = "" if estimator.is_ours else " (OpenRLHF's own code)"
    yield "estimator", f"{estimator.name}{by_whom}: {record.summary}"
    yield "  is given", "; ".join(["rewards", *given])


# --- where ----------------------------------------------------------------------------------------


def _gpus(flat: Flat, config: Any) -> Rows:
    if flat["js.device"] == "cpu":
        yield (
            "computes on",
            "this machine's CPU (--js.device gpu --js.dry_run: what a GPU must hold)",
        )
        return
    gpus = flat["actor.num_nodes"] * flat["actor.num_gpus_per_node"]
    engines = _count(flat["vllm.num_engines"], "vLLM engine")
    shared = "on others (no --train.colocate_all)"
    if flat["train.colocate_all"]:
        shared = "on others (--train.async_enable)" if flat["train.async_enable"] else "on the same"
    yield "on GPUs", f"{gpus:,} for the policy, {engines} {shared}"
    if config is not None:
        yield "GPU memory", _memory(flat, config, gpus)


def _memory(flat: Flat, config: Any, gpus: int) -> str:
    """The computed peak memory of a GPU, in words."""
    model = _sizes(config)
    if model is None:
        return "not computed for such a model"
    micro_batch = flat["train.micro_batch_size"] * flat["data.max_len"]
    if flat["train.dynamic_batch_enable"]:
        micro_batch = flat["train.max_tokens_per_gpu"]
    run = gpu_memory.Run(
        model=model,
        rank=flat["ds.lora.rank"],
        gpus=gpus,
        zero_stage=flat["ds.zero_stage"],
        offload=flat["ds.adam_offload"],
        reference=flat["algo.kl.init_coef"] > 0,
        flash_attn=find_spec("flash_attn") is not None,
        tokens=micro_batch,
        length=flat["data.max_len"],
    )
    sums = {
        phase: sum(terms.values()) / gpu_memory.GIB
        for phase, terms in gpu_memory.phases(run).items()
    }
    generating = sums.pop("generate")
    cards = [f"{card} GB" for card in gpu_memory.CARDS if gpu_memory.fits(run, card)]
    lacking = [f"--{flag}" for flag in gpu_memory.SHARED if not flat[flag]]
    more = f"; it takes more without {', '.join(lacking)}" if lacking else ""
    return (
        f"computed, not measured: on each GPU {max(sums.values()):.1f} GiB to train "
        f"micro-batches of {micro_batch:,} tokens, {generating:.1f} to generate {run.sequences} "
        f"sequences at a time, which takes a card of {cards[0] if cards else 'more than 80 GB'}; "
        f"{gpu_memory.host(run) / gpu_memory.GIB:.1f} of the machine's own{more}"
    )


def _places(flat: Flat) -> Rows:
    yield "saved model", f"{flat['ckpt.output_dir']}, at the end"
    saved = []
    if flat["ckpt.save_steps"] > 0:
        saved.append(f"every {_count(flat['ckpt.save_steps'], 'step')}")
    if flat["eval.dataset"] and flat["ckpt.best_metric_key"] != "none":
        saved.append("at each best evaluation (--ckpt.best_metric_key none: not then)")
    if flat["ckpt.disable_ds"]:
        models = flat["ckpt.save_hf"] and saved
        what = f"; {flat['ckpt.path']} has models {' and '.join(saved)}" if models else ""
        yield "checkpoints", f"none to resume from (--ckpt.disable_ds){what}"
    elif saved:
        yield "checkpoints", f"{flat['ckpt.path']}, {' and '.join(saved)}"
    else:
        yield "checkpoints", "none on the way (--ckpt.save_steps)"
    curves = "nowhere (--logger.tensorboard_dir, --logger.wandb.key)"
    folder = flat["logger.tensorboard_dir"]
    where = [str(Path(folder, flat["logger.wandb.run_name"]))] if folder else []
    where += ["W&B"] if flat["logger.wandb.key"] else []
    yield "curves", " and ".join(where) or curves
    if flat["js.save_batches"]:
        yield "batches", flat["js.save_batches"]
    yield "settings", f"{settings_file(flat)}, which starts this run again"
    yield "log", str(log_of(flat))
