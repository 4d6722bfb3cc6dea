"""Train a reward model: the device, one process or those of a launcher, and upstream's `train`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from openrlhf_js.plugin import run, upstream
from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.preference_data import NotReachable


def is_first() -> bool:
    """Whether this process is the one that checks and speaks for all."""
    return int(os.environ.get("RANK", "0")) == 0


def load_tokenizer(flat: dict[str, Any]) -> Any:
    """The tokenizer that upstream will load, before there is a model.

    Args:
        flat: the parsed arguments by dotted name.

    Raises:
        BadInput: there is none that can train a reward model. NotReachable: it is on a hub that
            does not give it.
    """
    from transformers import AutoTokenizer

    from openrlhf_js.tasks.hub import quiet_hub

    name = flat["model.model_name_or_path"]
    is_here = os.path.isdir(name)
    if not is_here:
        print(f"openrlhf_js: loading the tokenizer of {name} from a hub", flush=True)
    try:
        with quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(
                name, trust_remote_code=True, use_fast=not flat["data.disable_fast_tokenizer"]
            )
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        kind = BadInput if is_here else NotReachable
        raise kind(f"--model.model_name_or_path {name}: no tokenizer ({reason})") from error
    if tokenizer.eos_token is None:
        raise BadInput(f"the tokenizer of {name} has no EOS token, at which rewards are read")
    if (
        flat["data.apply_chat_template"]
        and not flat["data.tokenizer_chat_template"]
        and not tokenizer.chat_template
    ):
        raise BadInput(
            f"the tokenizer of {name} has no chat template, which --data.apply_chat_template needs:"
            " take the model's instruct variant, or give --data.tokenizer_chat_template"
        )
    return tokenizer


def train(args: argparse.Namespace, device: str) -> None:
    """Trains as OpenRLHF's `train(args)` does.

    Args:
        args: OpenRLHF's nested arguments with our `args.js`, after its own validation.
        device: what `run.prepare_device` returned.

    Raises:
        BadInput, UpstreamMismatch: as `run.fit`.
    """
    notices = run.fit(
        args,
        device,
        upstream.RELIED_ON_FOR_REWARD_TRAINING,
        upstream.RELIED_ON_FOR_REWARD_TRAINING_ON_CPU,
    )
    for notice in notices if is_first() else []:
        print(notice, flush=True)

    import torch
    from openrlhf.cli import train_rm

    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    try:
        train_rm.train(args)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


# What a launcher sets, for a process without one.
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # any that is free
}
