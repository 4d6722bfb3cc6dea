"""Checks the models of a run: the folders exist, and none runs its own Python code unasked."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from answer_graders.programs.model_folders import CONFIGURATIONS, GENERATION, model_folder
from openrlhf_js.reward_model.checkpoint import checkpoint_problems
from openrlhf_js.trainers.openrlhf.data_files import looks_local
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.imports import around_import

MODELS = tuple(f"{role}.model_name_or_path" for role in ("actor", "critic", "reward"))
TRUST = "js.trust_remote_code"
WITH_LORA = {
    # vLLM and the output of `rm train` hold the base model in bfloat16, not the 4-bit model
    "ds.load_in_4bit": False,
    "ds.tensor_parallel_size": 1,
}
RENAMED_SHARE = 0.01  # releases of one model family rename some reserved tokens
TRANSFORMERS = "transformers"


@contextmanager
def without_torch() -> Iterator[None]:
    """Lets transformers load without torch, in a program that needs only its tokenizers.

    That takes a quarter of the time. Afterwards transformers is unloaded again.
    """
    if TRANSFORMERS in sys.modules:
        yield
        return
    around_import(TRANSFORMERS, _torch_hidden)
    try:
        yield
    finally:
        around_import(TRANSFORMERS, lambda _: nullcontext())
        for name in [name for name in sys.modules if name.partition(".")[0] == TRANSFORMERS]:
            del sys.modules[name]


@contextmanager
def _torch_hidden(_: ModuleType) -> Iterator[None]:
    """Upstream (utils/import_utils.py), which keeps the answer:
    spec = importlib.util.find_spec(pkg_name)
    """
    find_spec = importlib.util.find_spec
    advice = "TRANSFORMERS_NO_ADVISORY_WARNINGS"  # that torch is missing
    before = os.environ.get(advice)

    def find(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else find_spec(name, package)

    importlib.util.find_spec = find  # type: ignore[assignment]
    os.environ[advice] = "1"
    try:
        yield
    finally:
        importlib.util.find_spec = find_spec
        del os.environ[advice]
        if before is not None:
            os.environ[advice] = before


def code_problems(flat: Flat, flags: Sequence[str], on_hub: bool) -> list[str]:
    """A refusal for each model that would run its own Python code, which OpenRLHF always allows.

    Looks at local folders, or with `on_hub` at names on the hub, whose small files it downloads.
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


def lora_problems(flat: Flat) -> Iterator[str]:
    for flag, works in WITH_LORA.items() if flat["ds.lora.rank"] > 0 else ():
        if flat[flag] != works:
            yield f"--ds.lora.rank does not work with --{flag} {flat[flag]}, only with {works}"


def model_problems(flat: Flat) -> Iterator[str]:
    if not flat["actor.model_name_or_path"]:
        yield "--actor.model_name_or_path is missing: the model to train"
    for flag in MODELS:
        if flat[flag] and not os.path.exists(flat[flag]) and looks_local(flat[flag]):
            yield f"--{flag} {flat[flag]}: does not exist"
    untrusted = code_problems(flat, MODELS, on_hub=False)
    yield from untrusted
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
    """The problems of a local folder as the reward model in Ray, which scores the policy's tokens.

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
            f"another number in {folder}, which would read different text from what was written: "
            "use a reward model with the policy's tokenizer, or, if it knows the policy's chat "
            "template, serve it (`openrlhf-js rm serve`, --reward.remote_url)"
        )
