"""The flags of `openrlhf-js rm serve`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from openrlhf_js.cli.parser import Parser
from openrlhf_js.reward_model.requests import Limits
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE

Number = TypeVar("Number", int, float)


def parser() -> argparse.ArgumentParser:
    """The flags; those that OpenRLHF's own server has keep their names."""
    parser = Parser(
        prog="openrlhf-js rm serve",
        description="Serve a reward model on HTTP, as OpenRLHF asks for rewards: POST "
        '{"query": [texts]} to /get_reward. The scores are those of training.',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    model = parser.add_argument_group("model")
    add = model.add_argument
    add("--reward.model_name_or_path", required=True, metavar="MODEL", help="folder or hub name")
    add("--data.max_len", type=int, default=2048, metavar="TOKENS", help="as in its training")
    add(
        "--reward.normalize_enable",
        action="store_true",
        help="serve (reward - mean) / std, by mean and std of config.json",
    )
    add("--ds.value_head_prefix", default="score", metavar="NAME", help="if config.json has none")
    add("--ds.param_dtype", choices=("bf16", "fp16", "float32"), default="bf16", help="weights")
    add("--ds.attn_implementation", default="sdpa", metavar="NAME", help="as transformers has it")
    add("--device", default="auto", help="cpu, cuda, cuda:1, ...; auto: a GPU if there is one")
    add("--pad_with_eos", action="store_true", help="for a tokenizer without a padding token")

    add = parser.add_argument
    add("--dry-run", action="store_true", help="check everything but the weights, show it, and end")
    add(
        "--tiny", action="store_true", help="serve a tiny random model on CPU, ask it once, and end"
    )

    batches = parser.add_argument_group("batches")
    add = batches.add_argument
    add("--batch_size", type=_count, default=64, metavar="TEXTS", help="in the model at a time")
    add("--max_tokens_per_batch", type=_count, default=16384, metavar="TOKENS", help="with padding")
    add("--max_wait_ms", type=_amount, default=3.0, metavar="MS", help="for a batch to fill up")
    add("--queue_size", type=_count, default=8192, metavar="TEXTS", help="more get 503")

    server = parser.add_argument_group("server")
    add = server.add_argument
    add("--host", default="127.0.0.1", help="another than this machine's own needs a token")
    add("--port", type=_port, default=5000, help="0: any that is free")
    add("--token_file", type=Path, metavar="FILE", help=f"holds the token; else ${TOKEN_VARIABLE}")
    add("--max_connections", type=_count, default=4096, metavar="COUNT", help="more get 503")

    group = parser.add_argument_group("limits")
    for name, default, what in limits():
        kind = _count if isinstance(default, int) else _amount
        unit = name.rpartition("_")[2].upper()
        group.add_argument(f"--max_{name}", type=kind, default=default, metavar=unit, help=what)
    return parser


def limits() -> list[tuple[str, Any, str]]:
    """Name, default and meaning of every field of `Limits`."""
    meanings = {
        "body_bytes": "of a request",
        "queries": "of a request",
        "characters": "of a query",
        "held_bytes": "of all requests that are under way",
        "body_seconds": "for a body to arrive",
        "head_seconds": "for a request's head to arrive",
        "answer_seconds": "for scores to be computed",
        "drain_seconds": "for what is under way at SIGTERM",
    }
    return [(each.name, each.default, meanings[each.name]) for each in fields(Limits)]


def _count(text: str) -> int:
    return _between(int, text, 1, float("inf"), "a whole number from 1 up")


def _amount(text: str) -> float:
    return _between(float, text, 0, sys.float_info.max, "a number from 0 up")


def _port(text: str) -> int:
    return _between(int, text, 0, 65535, "a port: 0 to 65535")


def _between(
    kind: Callable[[str], Number], text: str, low: float, high: float, what: str
) -> Number:
    with suppress(ValueError):
        value = kind(text)
        if low <= value <= high:
            return value
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not {what}")
