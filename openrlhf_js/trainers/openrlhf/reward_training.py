"""Reward model training: its flags, the checks of its data, and upstream's `train`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from answer_graders.hub import quiet_hub
from answer_graders.programs.console import progress, say, table
from answer_graders.programs.files import FileRow
from openrlhf_js.common.environment import OF_ONE_RANK, or_as_set
from openrlhf_js.reward_model.check import ALLOWABLE, KINDS, Making, Report, check
from openrlhf_js.reward_model.checkpoint import (
    first_line,
    head_prefix,
    read_config,
    tensor_shapes,
    tokenizer_problems,
)
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE, Keys
from openrlhf_js.trainers.openrlhf import upstream
from openrlhf_js.trainers.openrlhf.checks import TWO_TEMPLATES
from openrlhf_js.trainers.openrlhf.checks.batch_sizes import multiple_problems
from openrlhf_js.trainers.openrlhf.checks.models import TRUST, code_problems, lora_problems
from openrlhf_js.trainers.openrlhf.flags import Flat, our_group
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser
from openrlhf_js.trainers.openrlhf.run.device import check_and_adapt, needs_gpu, stand_ins_for_gpu
from openrlhf_js.trainers.openrlhf.upstream import BadInput

PROGRAM = "train_rm"  # of `openrlhf.cli`
MODEL = "model.model_name_or_path"
DESCRIPTION = """\
Trains a reward model on preferences with OpenRLHF, after a check of every pair:

  openrlhf-js rm train --model.model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \\
      --data.dataset preferences.jsonl --data.apply_chat_template --data.max_len 2048 \\
      --train.batch_size 64 --ckpt.output_dir reward_model

On several GPUs, through DeepSpeed's launcher, with the same flags:

  deepspeed --no_local_rank --module openrlhf_js.cli.rm train --model.model_name_or_path ...

Each line of a preference file has a chosen and a rejected side: two conversations that differ in
their last message, or two texts, whose prompt may stand under a key of its own (--data.prompt_key).
The flags that this program adds to OpenRLHF's are listed at the end, under "openrlhf_js".
"""
DATA = {"data.dataset": "data.dataset_split", "eval.dataset": "eval.split"}  # flag -> split's flag
LOSSES = ("sigmoid", "logexp")  # upstream takes any other word for logexp
EVALUATION_SHARE = 0.01  # of the training pairs, if there is no --eval.dataset
ROWS_AT_ONCE = 256


def reward_parser() -> argparse.ArgumentParser:
    """Upstream's parser of `train_rm` with our flags in a group of their own."""
    parser = upstream_parser(PROGRAM)
    group = our_group(parser, "openrlhf-js rm train", DESCRIPTION, "DeepSpeed")
    kinds = "; ".join(
        f"{name}: {KINDS[name].text}"
        + (f" (up to {KINDS[name].share:.0%} pass anyway)" if KINDS[name].share else "")
        for name in ALLOWABLE
    ).replace("%", "%%")
    group.add_argument(
        "--js.allow",
        nargs="+",
        choices=ALLOWABLE,
        default=[],
        metavar="KIND",
        help=f"train although there are problems of these kinds: {kinds}",
    )
    return parser


# --- flags and model ---------------------------------------------------------------------------


def check_flags(flat: Flat, device: str) -> None:
    """Raises BadInput with every problem of the flags and of the model's folder, one per line."""
    problems = list(_problems(flat))
    if device == "cpu":
        problems += needs_gpu(flat)
    if problems:
        raise BadInput("\n".join(problems))


def _problems(flat: Flat) -> Iterator[str]:
    if not flat["data.dataset"]:
        yield "--data.dataset is missing: a file, a folder or a name on a hub"
    if flat["model.loss_type"] not in LOSSES:
        yield f"--model.loss_type takes {' or '.join(LOSSES)}, got {flat['model.loss_type']}"
    if flat["model.margin_loss_enable"] and flat["model.loss_type"] == "logexp":
        yield (
            "--model.margin_loss_enable: OpenRLHF's logexp loss has no margin; leave it out, or "
            "use --model.loss_type sigmoid"
        )
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # as a launcher sets it
    ranks //= flat["ds.ring_attn_size"] * flat["ds.tensor_parallel_size"]
    yield from multiple_problems(
        flat["train.batch_size"],
        of=flat["train.micro_batch_size"] * max(1, ranks),
        what="--train.batch_size",
        why=f"--train.micro_batch_size x {max(1, ranks)} ranks",
    )
    if flat["data.input_template"] and flat["data.apply_chat_template"]:
        yield TWO_TEMPLATES
    yield from lora_problems(flat)
    name, trust = flat[MODEL], flat[TRUST]
    if not name:
        yield f"--{MODEL} is missing: the model to start from"
        return
    untrusted = code_problems(flat, [MODEL], on_hub=not os.path.isdir(name))
    yield from untrusted
    if os.path.isdir(name) and not untrusted:
        messages = flat["data.apply_chat_template"] and not flat["data.tokenizer_chat_template"]
        for problem in tokenizer_problems(name, messages=messages, trust_remote_code=trust):
            yield f"--{MODEL}: {problem}"


def load_tokenizer(flat: Flat) -> Any:
    """The tokenizer that upstream will load; BadInput if it has no EOS token."""
    from transformers import AutoTokenizer

    name = flat[MODEL]
    fast = not flat["data.disable_fast_tokenizer"]
    try:
        with quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(
                name, trust_remote_code=flat[TRUST], use_fast=fast
            )
    except (OSError, ValueError) as error:
        message = f"--{MODEL} {name}: no tokenizer ({first_line(error)})"
        raise BadInput(message) from error
    if tokenizer.eos_token is None:
        raise BadInput(f"the tokenizer of {name} has no EOS token, at which rewards are read")
    return tokenizer


# --- preference data ---------------------------------------------------------------------------


def making(flat: Flat, tokenizer: Any) -> Making:
    """How training with these flags turns rows into texts."""
    template = flat["data.input_template"]
    if flat["data.apply_chat_template"] and flat["data.tokenizer_chat_template"]:
        tokenizer.chat_template = flat["data.tokenizer_chat_template"]
    margin = "margin" if flat["model.margin_loss_enable"] else None  # upstream's column
    return Making(
        keys=Keys(
            prompt=flat["data.prompt_key"],
            chosen=flat["data.chosen_key"],
            rejected=flat["data.rejected_key"],
            subset=None,
            margin=margin,
        ),
        tokenizer=tokenizer,
        max_len=flat["data.max_len"],
        template=tokenizer.apply_chat_template if flat["data.apply_chat_template"] else None,
        # upstream ignores any other
        input_template=template if template and "{}" in template else None,
    )


def check_data(
    flat: Flat, flag: str, split: str, making: Making, progress: Callable[[int], None]
) -> Report:
    """Checks the data sets that a flag names, loaded as upstream loads them.

    `progress` is called with the number of pairs since its last call.
    """
    names = [name.strip() for name in (flat[flag] or "").split(",") if name.strip()]
    most = flat["data.max_samples"] if flag == "data.dataset" else None  # per data set, as upstream
    rows = ((name, islice(_rows(name, flag, flat[split], flat), most)) for name in names)
    return check(rows, making, progress)


def _rows(name: str, flag: str, split: str, flat: Flat) -> Iterator[FileRow]:
    from openrlhf.datasets.utils import blending_datasets

    settings = SimpleNamespace(use_ms=flat["use_ms"])
    strategy = SimpleNamespace(print=lambda *_: None, is_rank_0=lambda: False, args=settings)
    try:
        with quiet_hub():
            data = blending_datasets(name, None, strategy, dataset_split=split)
    except Exception as error:  # whatever a hub, a folder of files or a loading script raises
        raise BadInput(f"--{flag} {name}: cannot be loaded ({first_line(error)})") from error
    number = 0
    for batch in data.with_format("arrow").iter(ROWS_AT_ONCE):
        for row in batch.to_pylist():
            number += 1
            yield FileRow(f"row {number}", row)


def check_pairs(flat: Flat) -> None:
    """Prints a summary of the preference data; BadInput if it should not be trained on."""
    making_of_texts = making(flat, load_tokenizer(flat))
    reports: dict[str, Report] = {}  # by the data's flag
    with progress("checking preferences", unit="pairs") as bar:
        for flag, split in DATA.items():
            reports[flag] = check_data(flat, flag, split, making_of_texts, bar.advance)
    problems = []
    for flag, report in reports.items():
        _show(flag, report, flat["data.max_len"])
        kinds = report.stopping(flat["js.allow"])
        if kinds:
            problems.append(f"--{flag}: {report.refusal(kinds)}")
    if not problems:
        training, held_out = reports.values()
        problems = list(_number_problems(flat, training.pairs, held_out.pairs))
    if problems:
        raise BadInput("\n".join(problems))
    for notice in _notices(flat):
        say(f"openrlhf_js: {notice}")


def _show(flag: str, report: Report, max_len: int) -> None:
    """Prints the lengths of the pairs, and the first problems of each kind."""
    if report.tokens:
        row = {
            "preferences": f"--{flag}",
            "pairs": report.pairs,
            "tokens, median": round(median(report.tokens)),
            "most": max(report.tokens),
            f"cut to {max_len:,}": report.counts["cut"],
        }
        table([row])
    rows = report.pairs + report.counts["no pair"]
    for kind, problems in report.problems.items():
        count = report.counts[kind]
        share = f"{100 * count / rows:.1f} %"
        say(f"{count:,} ({share}) x {KINDS[kind].text} [{kind}], such as", style="bold")
        for problem in problems:
            say(f"  {problem}".replace("\n", "\\n"))


def _number_problems(flat: Flat, pairs: int, held_out: int) -> Iterator[str]:
    """Too few pairs for a batch or for normalisation; not checked if upstream draws them."""
    if flat["data.dataset_probs"]:
        return
    pairs = min(pairs, flat["data.max_samples"])
    batch = flat["train.batch_size"]
    evaluated = held_out if flat["eval.dataset"] else int(pairs * EVALUATION_SHARE)
    if pairs < batch:
        yield (
            f"there are {pairs:,} pairs, fewer than one --train.batch_size of {batch:,}: use a "
            "smaller one, or more pairs"
        )
    elif evaluated < LEAST_TO_NORMALISE:
        yield (
            f"mean and std for normalisation would come from {evaluated} pairs, and take at least "
            f"{LEAST_TO_NORMALISE}: give them as --eval.dataset (default: {EVALUATION_SHARE:.0%} "
            "of the training pairs)"
        )


def _notices(flat: Flat) -> Iterator[str]:
    """What may surprise the user in upstream's training, one line each."""
    folder = Path(flat[MODEL])
    prefix = flat["ds.value_head_prefix"]
    if folder.is_dir() and (
        f"{head_prefix(read_config(folder, flat[TRUST]), prefix)}.weight" in tensor_shapes(folder)
    ):
        yield f"{folder} is a reward model already; OpenRLHF starts with a new head all the same"
    if flat["ckpt.load_enable"] and not _last_checkpoint(flat):
        yield f"there is no checkpoint in {flat['ckpt.path']}: training starts from the beginning"


def how_to_resume(flat: Flat) -> str:
    """What an interrupted training run saved, and the flag that resumes it."""
    tag = _last_checkpoint(flat) if flat else None
    if tag is None:
        return "nothing was saved (--ckpt.save_steps saves regularly)"
    return f"--ckpt.load_enable resumes from {tag} in {flat['ckpt.path']}"


def _last_checkpoint(flat: Flat) -> str | None:
    """The checkpoint that `--ckpt.load_enable` would resume, if there is one."""
    try:
        return Path(flat["ckpt.path"], "latest").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


# --- training ----------------------------------------------------------------------------------


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does, in one process or in a launcher's processes."""
    relied_on = [
        upstream.RELIED_ON_FOR_REWARD_TRAINING,
        upstream.replaced_names(upstream.REWARD_TRAINING),
    ]
    if device == "cpu":
        relied_on.append(stand_ins_for_gpu().RELIED_ON_FOR_REWARD_TRAINING)
    check_and_adapt(args, device, relied_on)

    import torch
    from openrlhf.cli import train_rm

    upstream.replace_names(upstream.REWARD_TRAINING)
    # upstream trains the head that config.json names, and would save the flag's name
    config = read_config(Path(args.model.model_name_or_path), args.js.trust_remote_code)
    args.ds.value_head_prefix = head_prefix(config, args.ds.value_head_prefix)
    lora = args.ds.lora
    if lora.rank > 0 and isinstance(lora.target_modules, list):
        # else the value head would keep its initial weights
        lora.target_modules.append(args.ds.value_head_prefix)
    os.environ.update(or_as_set(OF_ONE_RANK))
    try:
        train_rm.train(args)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
