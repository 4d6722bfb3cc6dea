"""The flags that say how responses are sampled, for every program that samples, and their engine.

What needs torch is imported once the flags are right.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from openrlhf_js.cli.progress import Bar

if TYPE_CHECKING:
    from openrlhf_js.sampling.engines import Engine, Policy
    from openrlhf_js.sampling.model_files import ModelFiles

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "float32": "float32"}


def add_engine_flags(group: Any, rows: str = "2048 with vLLM, 64 without") -> None:
    """Adds --engine, --device, --dtype and --batch_size to a parser or a group of its flags.

    Args:
        group: gets them.
        rows: the default of --batch_size, in words.
    """
    group.add_argument(
        "--engine",
        default="auto",
        choices=("auto", "vllm", "transformers"),
        help="auto: vLLM on a GPU where it is installed, else transformers",
    )
    group.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="auto: a GPU if any"
    )
    group.add_argument(
        "--dtype", choices=sorted(DTYPES), help="default bf16 on a GPU, float32 without one"
    )
    group.add_argument(
        "--batch_size",
        type=int,
        metavar="N",
        help=f"responses sampled and saved together (default {rows})",
    )


def check_drawing_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Leaves with status 2 and one line if --temperature, --top_p or --seed cannot be used."""
    if args.temperature is not None and not 0 < args.temperature < float("inf"):
        parser.error(f"--temperature is {args.temperature}; give a number above 0, such as 1")
    if args.top_p is not None and not 0 < args.top_p <= 1:
        parser.error(f"--top_p is {args.top_p}; give a number above 0, up to 1")
    if args.seed < 0:
        parser.error(f"--seed is {args.seed}; give 0 or more")


def check_counts(
    parser: argparse.ArgumentParser, args: argparse.Namespace, names: Sequence[str]
) -> None:
    """Leaves with status 2 and one line if one of these flags is given and below 1."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}; give 1 or more")


def digest_of(folder: Path, errors: Console) -> str:
    """The sha256 of a model's files; shows how far reading them has come.

    Raises:
        OSError: a file cannot be read.
    """
    from openrlhf_js.reward_model.score_file import hash_of_model, model_files

    size = sum(path.stat().st_size for path in model_files(folder))
    with Bar("reading the model", size, errors, "MB") as bar:
        return hash_of_model(folder, lambda done: bar.update(done, done // 10**6))


def device_of(args: argparse.Namespace) -> str:
    """The device of the flags: "cpu" or "cuda".

    Raises:
        ValueError: a GPU was asked for, and there is none.
    """
    from torch import cuda

    if args.device == "cuda" and not cuda.is_available():
        raise ValueError("--device cuda, but torch sees no GPU; leave the flag out to use the CPU")
    if args.device == "auto":
        return "cuda" if cuda.is_available() else "cpu"
    return str(args.device)


def dtype_of(args: argparse.Namespace) -> str:
    """The dtype of the flags by torch's name: "float32", "bfloat16" or "float16"."""
    return DTYPES[args.dtype or ("bf16" if device_of(args) == "cuda" else "float32")]


def engine_of(args: argparse.Namespace) -> str:
    """The engine of the flags: "vllm" or "transformers".

    Raises:
        ValueError: vLLM was asked for and is not installed.
    """
    installed = importlib.util.find_spec("vllm") is not None
    if args.engine == "vllm" and not installed:
        raise ValueError("--engine vllm, but vLLM is not installed; take --engine transformers")
    if args.engine == "auto":
        return "vllm" if installed and device_of(args) == "cuda" else "transformers"
    return str(args.engine)


def policy_of(
    args: argparse.Namespace,
    files: ModelFiles,
    longest_prompt: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
) -> Policy:
    """The policy that an engine samples from.

    Args:
        args: device and dtype.
        files: of the model.
        longest_prompt: in tokens.
        temperature: as `Policy` has it.
        top_p: likewise.
        max_new_tokens: likewise.
    """
    from openrlhf_js.sampling.engines import Policy

    return Policy(
        files.folder,
        device_of(args),
        dtype_of(args),
        temperature,
        top_p,
        max_new_tokens,
        files.ends(),
        longest_prompt,
    )


def loaded(name: str, policy: Policy) -> Engine:
    """The engine, with the model's weights.

    Args:
        name: of `engine_of`.
        policy: what it samples from.
    """
    if name == "transformers":
        from openrlhf_js.sampling.engines import Transformers

        return Transformers(policy)
    if policy.device == "cpu":
        from openrlhf_js.plugin.cpu import environment

        os.environ.update(environment())  # before vLLM is imported
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from openrlhf_js.sampling.vllm_engine import Vllm

    return Vllm(policy)
