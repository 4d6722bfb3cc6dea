"""What is known to fail in a reward model's training, said before any model is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.prompt_files import looks_local
from openrlhf_js.reward_model.checkpoint import head_prefix, read_config, tokenizer_problems
from openrlhf_js.reward_model.weights import tensor_shapes

Flat = dict[str, Any]  # "train.batch_size" -> value

COUNTS = (
    *("train.batch_size", "train.micro_batch_size", "train.max_epochs", "data.max_samples"),
    *("ds.ring_attn_size", "ds.tensor_parallel_size"),
)
LOSSES = ("sigmoid", "logexp")  # upstream takes any other word for logexp
EVALUATION_SHARE = 0.01  # of the training pairs, where there is no --eval.dataset


def world_size() -> int:
    """How many processes train together, as a launcher has set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check(flat: Flat) -> None:
    """Makes sure that nothing in the flags or the model's folder is known to fail.

    Args:
        flat: the parsed arguments by dotted name.

    Raises:
        BadInput: every problem found, one per line.
    """
    problems = [
        f"--{name} must be at least 1, got {flat[name]}" for name in COUNTS if flat[name] < 1
    ]
    if not problems:
        problems += _batch_problems(flat, world_size())
    problems += [*_flag_problems(flat), *_model_problems(flat)]
    if problems:
        raise BadInput("\n".join(problems))


def _batch_problems(flat: Flat, processes: int) -> Iterator[str]:
    shared = flat["ds.ring_attn_size"] * flat["ds.tensor_parallel_size"]
    if processes % shared:
        yield (
            f"there are {processes} processes, not a multiple of --ds.ring_attn_size x "
            f"--ds.tensor_parallel_size = {shared}"
        )
        return
    step = flat["train.micro_batch_size"] * (processes // shared)
    batch = flat["train.batch_size"]
    if batch % step:
        yield (
            f"--train.batch_size {batch} is not a multiple of {step} (--train.micro_batch_size "
            f"{flat['train.micro_batch_size']} x {processes // shared} ranks): use "
            f"{-(-batch // step) * step}"
        )


def _flag_problems(flat: Flat) -> Iterator[str]:
    if flat["data.max_len"] < 2:
        yield f"--data.max_len must be at least 2, a token and the end, got {flat['data.max_len']}"
    if flat["model.loss_type"] not in LOSSES:
        yield f"--model.loss_type takes {' or '.join(LOSSES)}, got {flat['model.loss_type']}"
    if flat["model.margin_loss_enable"] and flat["model.loss_type"] == "logexp":
        yield (
            "--model.margin_loss_enable: OpenRLHF's logexp loss has no margin; leave it out, or "
            "take --model.loss_type sigmoid"
        )
    names, probabilities = flat["data.dataset"], flat["data.dataset_probs"]
    if not names:
        yield "--data.dataset is missing: a file, a folder or a name on a hub"
    elif probabilities is not None:
        try:
            fits = len(list(map(float, probabilities.split(",")))) == len(names.split(","))
        except ValueError:
            fits = False
        if not fits:
            yield f"--data.dataset_probs {probabilities}: give one number for each of {names}"
    template = flat["data.input_template"]
    if template and "{}" in template:
        try:
            template.format("")
        except (IndexError, KeyError, ValueError) as error:
            yield f"--data.input_template {template!r} takes one {{}} and no other braces ({error})"
    for flag in ("ckpt.output_dir", "ckpt.path"):
        if os.path.exists(flat[flag]) and not os.path.isdir(flat[flag]):
            yield f"--{flag} {flat[flag]} is a file; give a folder"


def _model_problems(flat: Flat) -> Iterator[str]:
    name = flat["model.model_name_or_path"]
    if not name:
        yield "--model.model_name_or_path is missing: the model to start from"
        return
    if not os.path.isdir(name):
        if os.path.exists(name):
            yield f"--model.model_name_or_path {name} is a file; a model is a folder"
        elif looks_local(name):
            yield f"--model.model_name_or_path {name} does not exist"
        return  # a name on a hub
    folder = Path(name)
    messages = flat["data.apply_chat_template"] and not flat["data.tokenizer_chat_template"]
    found: list[str] = []
    try:
        shape = tensor_shapes(folder).get(_head(folder, flat["ds.value_head_prefix"]))
        if shape is not None and (len(shape) != 2 or shape[0] != 1):
            found.append(
                f"{folder} has a head with {shape[0]} outputs: a reward is one; start from the "
                "causal model, or remove the head from its weights"
            )
    except ValueError as error:
        found.append(str(error))
    found += tokenizer_problems(folder, messages=messages, pad_with_eos=True)
    yield from (f"--model.model_name_or_path: {problem}" for problem in found)


def _head(folder: Path, wanted: str) -> str:
    return f"{head_prefix(read_config(folder), wanted)}.weight"


def pair_problems(flat: Flat, pairs: int | None) -> list[str]:
    """What is wrong with the number of training pairs.

    Args:
        flat: the parsed arguments by dotted name.
        pairs: None where they are drawn, so that nobody knows.
    """
    batch = flat["train.batch_size"]
    if pairs is None:
        return []
    if pairs < batch:
        return [
            f"there are {pairs:,} pairs, fewer than one --train.batch_size of {batch:,}: use a "
            "smaller one, or more pairs"
        ]
    if not flat["eval.dataset"] and int(pairs * EVALUATION_SHARE) < 1:
        return [
            f"{pairs} pairs are too few to evaluate on {EVALUATION_SHARE:.0%} of them, from which "
            "the mean and std for normalisation come: give --eval.dataset"
        ]
    return []


def notices(flat: Flat, pairs: int | None) -> Iterator[str]:
    """What the user may not expect of upstream's training, one line each."""
    batch = flat["train.batch_size"]
    if pairs is not None:
        left = pairs % batch
        if left:
            yield (
                f"{pairs:,} pairs are {pairs // batch:,} batches of {batch:,}; the {left:,} left "
                "do not make one more in their epoch"
            )
        if not flat["eval.dataset"]:
            yield (
                "there is no --eval.dataset: accuracy, mean and std come from the first "
                f"{int(pairs * EVALUATION_SHARE):,} training pairs"
            )
    folder = Path(flat["model.model_name_or_path"])
    if not folder.is_dir():
        yield f"the weights of {folder} are loaded from a hub, and were not looked at before"
    elif _head(folder, flat["ds.value_head_prefix"]) in tensor_shapes(folder):
        yield f"{folder} is a reward model already; OpenRLHF starts with a new head all the same"
    if flat["ckpt.load_enable"] and not last_checkpoint(flat):
        yield f"there is no checkpoint in {flat['ckpt.path']}: training starts from the beginning"


def last_checkpoint(flat: Flat) -> str | None:
    """The checkpoint that `--ckpt.load_enable` would go on from, if there is one."""
    try:
        return Path(flat["ckpt.path"], "latest").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
