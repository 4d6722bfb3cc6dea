"""Upstream's own command line, taken from upstream's own source.

OpenRLHF builds and validates its flags under `if __name__ == "__main__"`, where they cannot be
imported, and importing the module around them takes many seconds. So the source is parsed, split
at `args = parser.parse_args()`, and each half compiled: no flag is listed twice, and `--help` or a
typo answers at once. Two functions in a light module of OpenRLHF, one that returns the parser and
one that validates its arguments, would replace `read_program`.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from openrlhf_js.common.console import say
from openrlhf_js.common.files import read_yaml
from openrlhf_js.plugin.flags import narrow
from openrlhf_js.plugin.upstream import WORKS_WITH, BadInput, UpstreamMismatch

MAIN = "__name__ == '__main__'"  # as ast.unparse writes it
SECRETS = ("logger.wandb.key",)

# What the scripts that were published with OpenRLHF up to 0.10.1 call the common flags. Any other
# old name is answered with the likely new one.
OLD_NAMES = {
    "actor_learning_rate": "actor.adam.lr",
    "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "advantage_estimator": "algo.advantage.estimator",
    "apply_chat_template": "data.apply_chat_template",
    "ckpt_path": "ckpt.path",
    "critic_learning_rate": "critic.adam.lr",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "init_kl_coef": "algo.kl.init_coef",
    "input_key": "data.input_key",
    "label_key": "data.label_key",
    "load_checkpoint": "ckpt.load_enable",
    "max_epochs": "train.max_epochs",
    "max_samples": "data.max_samples",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "num_episodes": "train.num_episodes",
    "pretrain": "actor.model_name_or_path",
    "prompt_data": "data.prompt_dataset",
    "remote_rm_url": "reward.remote_url",
    "reward_pretrain": "reward.model_name_or_path",
    "rollout_batch_size": "rollout.batch_size",
    "save_hf_ckpt": "ckpt.save_hf",
    "save_path": "ckpt.output_dir",
    "train_batch_size": "train.batch_size",
    "use_kl_loss": "algo.kl.use_loss",
    "use_wandb": "logger.wandb.key",
    "vllm_num_engines": "vllm.num_engines",
    "zero_stage": "ds.zero_stage",
}


def source_path(program: str = "train_ppo_ray") -> Path:
    """The file of a program of the installed `openrlhf.cli`, found without importing it."""
    spec: Any = importlib.util.find_spec("openrlhf")
    return Path(spec.submodule_search_locations[0], "cli", f"{program}.py")


@functools.cache
def read_program(path: Path) -> tuple[CodeType, CodeType]:
    """The code of upstream's main block that makes `parser`, and that which validates `args`."""
    statements: list[ast.stmt] = []
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == MAIN:
            statements = statement.body
    lines = [ast.unparse(statement) for statement in statements]
    for needed in ("args = parser.parse_args()", "args = hierarchize(args)", "train(args)"):
        if needed not in lines:
            raise UpstreamMismatch(
                f"{path}: `{needed}` below `if {MAIN}` is missing; openrlhf_js works with "
                f"{WORKS_WITH}"
            )
    parse = lines.index("args = parser.parse_args()")
    train = lines.index("train(args)")

    def compiled(body: list[ast.stmt]) -> CodeType:
        return compile(ast.Module(body=body, type_ignores=[]), str(path), "exec")

    return compiled(statements[:parse]), compiled(statements[parse + 1 : train])


class Parser(argparse.ArgumentParser):
    """Understands old names, and answers a mistake with one line and the likely flags.

    Abbreviations are off: with flat and dotted names side by side, the beginning of an old flag
    could mean another new one.
    """

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args=None):  # type: ignore[no-untyped-def, override]
        args = self._renamed(sys.argv[1:] if args is None else args)
        known, unknown = self.parse_known_args(args)
        if unknown:
            flags = [token for token in unknown if token.startswith("--")]
            self.error("; ".join(map(self._hint, flags)) or f"unexpected value {unknown[0]!r}")
        values = known.__dict__
        if values.get("ds.lora.target_modules") == ["all-linear"]:
            values["ds.lora.target_modules"] = "all-linear"  # in a list, PEFT takes it for a name
        return known

    def _renamed(self, args: Sequence[str]) -> list[str]:
        """The command line in today's names, with a notice of the old ones."""
        tokens: list[str] = []
        notices: list[str] = []
        for token in args:
            name, equals, value = token.partition("=")
            today = self._todays_name(name)
            if today is not None:
                notices.append(f"{name} -> {today}")
                token = f"{today}{equals}{value}"
            tokens.append(token)
        if notices:
            say(f"openrlhf_js: old flags: {', '.join(notices)}", error=True)
        return tokens

    def _todays_name(self, old: str) -> str | None:
        """What an old flag is called now, if this program has it."""
        new = f"--{OLD_NAMES.get(old.removeprefix('--'))}"
        return new if old.startswith("--") and new in self._option_string_actions else None

    def error(self, message: str) -> NoReturn:
        say(f"{self.prog}: error: {message}", error=True)
        self.exit(2)

    def _hint(self, token: str) -> str:
        name = token.partition("=")[0]
        old_names = {f"--{old}" for old in OLD_NAMES if self._todays_name(f"--{old}")}
        close = difflib.get_close_matches(name, [*self._option_string_actions, *old_names])
        likely = dict.fromkeys(self._todays_name(flag) or flag for flag in close)
        hint = f", did you mean {' or '.join(likely)}?" if likely else ""
        return f"unknown flag {name}{hint}"


def with_file(argv: Sequence[str]) -> list[str]:
    """The words of a command line. Its first may be a YAML file, whose flags come first.

    Keys are flags with dots, or nested. A list is several values, true a switch, and what is false
    or null is left out. Raises BadInput for a file that cannot be read.
    """
    words = list(argv)
    if not words or not words[0].endswith((".yaml", ".yml")):
        return words
    path = Path(words.pop(0))
    try:
        values = read_yaml(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(str(error)) from None
    return [*_words(values), *words]


def _words(values: Mapping[Any, Any], section: str = "") -> Iterator[str]:
    for key, value in values.items():
        name = f"{section}{key}"
        if isinstance(value, Mapping):
            yield from _words(value, f"{name}.")
        elif isinstance(value, list):
            yield f"--{name}"
            yield from map(str, value)
        elif value is True:
            yield f"--{name}"
        elif value not in (None, False):
            yield f"--{name}={value}"


def upstream_parser(program: str = "train_ppo_ray") -> argparse.ArgumentParser:
    """A parser with every flag, default and help text of a program of the installed upstream.

    Only the values that flags take are narrowed (`flags.RANGES`).
    """
    names: dict[str, Any] = {"argparse": argparse, "os": os, "datetime": datetime}
    exec(read_program(source_path(program))[0], names)
    narrow(names["parser"])
    return Parser(parents=[names["parser"]], add_help=False)  # upstream's has --help


def validate_upstream(args: argparse.Namespace, program: str = "train_ppo_ray") -> Any:
    """The nested arguments that upstream's `train` takes, after upstream's own validation.

    `args` is flat, as the parser returns it. Raises BadInput with upstream's assertion message.
    """
    names: dict[str, Any] = {"args": args}
    try:
        exec(read_program(source_path(program))[1], names)
    except AssertionError as error:
        raise BadInput(str(error)) from error
    return names["args"]


def flag_values(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[str]:
    """One line for each flag with its value; `*` marks those that are not at their default."""
    for name, value in sorted(vars(args).items()):
        mark = "*" if changed(name, value, parser) else " "
        words = "(hidden)" if name in SECRETS and value else value
        if isinstance(value, list | tuple):
            words = " ".join(map(str, value))
        yield f"{mark} --{name} {words}"


def changed(name: str, value: object, parser: argparse.ArgumentParser) -> bool:
    """Whether a flag is not at its default."""
    default = parser.get_default(name)
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return tuple(value) != tuple(default)
    return value != default
