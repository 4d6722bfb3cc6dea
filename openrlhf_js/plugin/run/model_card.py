"""What a trained model is published with: a card beside it, and its upload to the hub."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import complain, say
from openrlhf_js.common.files import write_json
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.plugin.data_files import looks_local
from openrlhf_js.plugin.flags import Flat
from openrlhf_js.plugin.flags.parser import SECRETS, changed
from openrlhf_js.plugin.run.device import versions
from openrlhf_js.plugin.run.record import OF_ONE_START
from openrlhf_js.plugin.upstream import BadInput

CARD = "README.md"
EVALUATIONS = "evaluations.json"  # step -> metric -> value; the last step in any case
WEIGHTS = ("*.safetensors", "adapter_model.bin")  # the latter of LoRA under ZeRO 3
UPLOADED = (*WEIGHTS, "*.json", "*.jinja", "*.py", "merges.txt", "vocab.txt", "*.model", CARD)
NOT_UPLOADED = "*/*"  # by default checkpoints lie in a folder below the model
NOT_DONE = 3  # the exit status of a run that is done, but not uploaded
ADDRESS = re.compile(r"(https?://)(?:[^/@\s,]*@)?([^\s,?]*)(?:\?[^\s,]*)?")
TEXT = """
# {name}

`{base}`, trained by reinforcement learning with [OpenRLHF](https://github.com/OpenRLHF/OpenRLHF) and openrlhf_js.

## Training

{settings}

## Evaluation

{evaluation}

## How it was started

```bash
{command}
```

With {versions}.
"""  # noqa: E501


# --- the card ----------------------------------------------------------------------------------


def keep_evaluation(folder: str, step: int, metrics: dict[str, Any]) -> None:
    """Adds the metrics of a step to those of earlier ones, beside the model; step 0 begins anew.

    Of later steps there may be some, which a run made before it was stopped and resumed.
    """
    path = Path(folder, EVALUATIONS)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {earlier: of for earlier, of in _read(path).items() if int(earlier) <= step and step}
    kept[str(step)] = {**kept.get(str(step), {}), **_finite(metrics)}
    write_json(path, kept)


def write_card(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Writes the card of the model that a run has saved; `args` is flat.

    What fails is said: the model is there, and the run is done.
    """
    try:
        _write_card(vars(args), parser)
    except Exception as error:
        say(f"openrlhf_js: no model card: {error}", error=True)


def _write_card(flat: Flat, parser: argparse.ArgumentParser) -> None:
    from huggingface_hub import ModelCard, ModelCardData

    folder = Path(flat["ckpt.output_dir"])
    by_step = _read(folder / EVALUATIONS)
    if not by_step:
        say(
            f"openrlhf_js: no model card: there is no {EVALUATIONS} in {folder} on this node; with "
            "several nodes, put --ckpt.output_dir on a disk that all share"
        )
        return
    base = flat["actor.model_name_or_path"]
    data_sets = flat["data.prompt_dataset"].split(",")
    header = ModelCardData(
        base_model=None if _is_local(base) else base,
        datasets=[name for name in data_sets if not _is_local(name)] or None,
        library_name="peft" if (folder / "adapter_config.json").is_file() else "transformers",
        tags=["openrlhf", "openrlhf_js", "reinforcement-learning"],
    )
    text = TEXT.format(
        name=flat["js.hub_model_id"] or folder.name,
        base=base,
        settings=_table(("Setting", "Value"), _settings(flat, steps=max(map(int, by_step)))),
        evaluation=_evaluation(flat, by_step),
        command=_command(flat, parser),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
    )
    public = ADDRESS.sub(r"\1\2", text)  # without what may be a password
    ModelCard(f"---\n{header.to_yaml()}\n---\n{public}").save(folder / CARD)


def _settings(flat: Flat, steps: int) -> Iterator[tuple[str, object]]:
    """What matters of a run, as rows."""
    name, record, _ = in_training(flat["algo.advantage.estimator"])
    yield "advantage estimator", f"`{name}`: {record.summary}" if record else f"`{name}`"
    yield "prompts", f"`{flat['data.prompt_dataset']}`"
    grader = flat["train.agent_func_path"] or flat["reward.remote_url"]
    yield "rewards", f"`{grader or flat['reward.model_name_or_path']}`"
    longest = flat["rollout.max_new_tokens"] or flat["data.max_len"]
    yield (
        "steps",
        f"{steps:,} of {flat['rollout.batch_size']:,} prompts x "
        f"{flat['rollout.n_samples_per_prompt']:,} responses of at most {longest:,} tokens",
    )
    yield "learning rate", f"{flat['actor.adam.lr']:g}, {flat['actor.lr_scheduler']}"
    yield "KL coefficient", f"{flat['algo.kl.init_coef']:g}"
    if flat["ds.lora.rank"]:
        yield "LoRA", f"rank {flat['ds.lora.rank']}, alpha {flat['ds.lora.alpha']}"
    yield "seed", flat["train.seed"]


def _evaluation(flat: Flat, by_step: dict[str, dict[str, float]]) -> str:
    """pass@1 of the first and the last evaluation, with the intervals that were computed."""
    evaluated = [step for step in by_step if "eval_num_samples" in by_step[step]]
    if not evaluated or not flat["eval.dataset"]:
        return "None in the run."
    rows = []
    for step in dict.fromkeys((evaluated[0], evaluated[-1])):
        metrics = by_step[step]
        for name in sorted(metrics):
            if name.endswith("_pass1"):
                figures = [metrics.get(name + end) for end in ("", "_low", "_high")]
                data = name.removeprefix("eval_").removesuffix("_pass1")
                rows.append((data, step, *map(_percent, figures)))
    last = by_step[evaluated[-1]]
    return (
        f"`{flat['eval.dataset']}`: {last['eval_num_samples']:,.0f} responses, "
        f"{flat['eval.n_samples_per_prompt']} a prompt, at temperature "
        f"{flat['eval.temperature']:g}. pass@1 is the mean reward; the 95 % interval, with prompts "
        "as clusters, says how sure it is of other prompts like these, not of another training "
        "run.\n\n" + _table(("Prompts", "After step", "pass@1, %", "low", "high"), rows)
    )


def _command(flat: Flat, parser: argparse.ArgumentParser) -> str:
    """The command line of a run, without secrets and what was of one start."""
    lines = ["openrlhf-js train"]
    for name, value in sorted(flat.items()):
        if changed(name, value, parser) and name not in (*SECRETS, *OF_ONE_START):
            lines.append(shlex.join(_words(name, value, parser)))
    return " \\\n    ".join(lines)


def _words(name: str, value: Any, parser: argparse.ArgumentParser) -> list[str]:
    """A flag with its value as the parser reads them."""
    if isinstance(value, bool):
        switches = (action for action in parser._actions if action.dest == name)
        return [switch.option_strings[0] for switch in switches if switch.const is value]
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) == 1:
        return [f"--{name}={values[0]}"]  # which may begin with a dash
    return [f"--{name}", *map(str, values)]


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines: list[tuple[object, ...]] = [header, *rows]
    lines.insert(1, ("---",) * len(header))
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _finite(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _is_local(name: str) -> bool:
    return looks_local(name) or Path(name).exists()


def _read(path: Path) -> dict[str, dict[str, float]]:
    if not path.is_file():
        return {}
    kept: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def missing_in(folder: str) -> str | None:
    """What to say where this node sees no model in the folder."""
    is_here = any(path for pattern in WEIGHTS for path in Path(folder).glob(pattern))
    return None if is_here else f"there are no weights in {folder} on this node"


# --- the upload --------------------------------------------------------------------------------


def hub_problems(flat: Flat) -> Iterator[str]:
    """What is wrong with the flags of the upload, without asking the hub."""
    name = flat["js.hub_model_id"]
    if flat["js.push_to_hub"] and not re.fullmatch(r"[\w.-]+/[\w.-]+", name or ""):
        yield f"--js.push_to_hub needs --js.hub_model_id USER/NAME, got {name}"
    if not flat["js.push_to_hub"] and (name or flat["js.hub_private_repo"]):
        yield "--js.hub_model_id and --js.hub_private_repo do nothing without --js.push_to_hub"


def open_repository(flat: Flat) -> None:
    """Makes the model's repository on the hub, unless it is there, before hours of training.

    Raises BadInput where it cannot be made or written to, or is public and ought not to be.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    name = flat["js.hub_model_id"]
    private = flat["js.hub_private_repo"]
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        api.auth_check(name, write=True)
        is_private = api.repo_info(name).private
    except Exception as error:  # of the hub's client, of the connection, of a name
        raise BadInput(
            f"--js.push_to_hub: cannot write to {name} on {api.endpoint}: {error}\n"
            "It needs a token that may write (`hf auth login`, or HF_TOKEN)"
        ) from error
    if private and not is_private:
        raise BadInput(f"--js.hub_private_repo: {name} is there already, and public")


def upload(flat: Flat) -> int:
    """Uploads model and card; the exit status of the run, `NOT_DONE` with the way to do it."""
    from huggingface_hub import HfApi

    name, folder = flat["js.hub_model_id"], flat["ckpt.output_dir"]
    try:
        if missing := missing_in(folder):
            raise FileNotFoundError(f"{missing}; with several nodes, the trainer's has them")
        commit = HfApi().upload_folder(
            repo_id=name,
            folder_path=folder,
            allow_patterns=list(UPLOADED),
            ignore_patterns=NOT_UPLOADED,
            commit_message="Trained with openrlhf-js",
        )
    except Exception as error:  # whatever it is, the model is there
        by_hand = ["hf", "upload", name, folder, "."]
        by_hand += ["--private"] if flat["js.hub_private_repo"] else []
        for pattern in UPLOADED:
            by_hand += ["--include", pattern]
        by_hand += ["--exclude", NOT_UPLOADED]
        return complain(f"not uploaded: {error}\nUpload it: {shlex.join(by_hand)}", NOT_DONE)
    say(f"openrlhf_js: uploaded: {commit.commit_url}")
    return 0
