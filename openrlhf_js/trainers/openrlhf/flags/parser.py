"""Upstream's command line, taken from upstream's source.

OpenRLHF builds and validates its flags under `if __name__ == "__main__"`, where they cannot be
imported, and importing the module around them takes many seconds. So the source is parsed, split
at `args = parser.parse_args()`, and each half compiled: no flag is listed twice, and `--help` or a
typo gets its answer at once. `upstream_function` takes a function out of its file for the same
reason. `trainers.openrlhf.upstream` lists the upstream changes that would make either superfluous.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import importlib.util
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from answer_graders.programs import did_you_mean
from answer_graders.programs.console import say
from answer_graders.programs.files import read_yaml
from openrlhf_js.trainers.openrlhf.flags import Flat, narrow
from openrlhf_js.trainers.openrlhf.upstream import WORKS_WITH, BadInput, UpstreamMismatch

MAIN = "__name__ == '__main__'"  # as ast.unparse writes it
SECRETS = ("logger.wandb.key",)
HIDDEN = "(hidden)"  # what a run's file has in place of a secret
RECORD = "record"  # the key of everything in a run's file that is not a setting

# Former flags that were renamed; the error for an old name gives the new one.
NEW_WORDS = {
    "actor_learning_rate": "actor.adam.lr",
    "critic_learning_rate": "critic.adam.lr",
    "generate_max_len": "rollout.max_new_tokens",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "js_restarts": "js.requeued",
    "load_checkpoint": "ckpt.load_enable",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "save_hf_ckpt": "ckpt.save_hf",
    "save_path": "ckpt.output_dir",
    "use_kl_loss": "algo.kl.use_loss",
    "use_wandb": "logger.wandb.key",
}


def source_path(program: str = "train_ppo_ray", package: str = "cli") -> Path:
    """The path of a program or module of the installed `openrlhf`, found without importing it."""
    spec: Any = importlib.util.find_spec("openrlhf")
    return Path(spec.submodule_search_locations[0], package, f"{program}.py")


@functools.cache
def upstream_function(name: str, module: str, package: str) -> Any:
    """An upstream function that needs nothing but the other functions of its file.

    Importing the file would load torch and other libraries, which takes seconds.
    """
    path = source_path(module, package)
    parsed = ast.parse(path.read_text(encoding="utf-8"))
    needed: list[ast.stmt] = [
        part for part in parsed.body if isinstance(part, ast.Import | ast.FunctionDef)
    ]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(body=needed, type_ignores=[]), str(path), "exec"), names)
    if name not in names:
        raise UpstreamMismatch(f"{path}: `{name}` is missing; openrlhf_js works with {WORKS_WITH}")
    return names[name]


@functools.cache
def read_program(path: Path) -> tuple[CodeType, CodeType]:
    """The code of upstream's main block that makes `parser`, and the code that validates `args`."""
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
    """Reports all mistakes at once, one per line, with likely flags. Abbreviations are off."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, **options)
        self._mistakes: list[str] = []  # so far

    def parse_args(self, args=None):  # type: ignore[no-untyped-def, override]
        """Parses flags; the first word may be a YAML file of flags, which the others override.

        Raises BadInput for mistakes in the file, and ends the program for other mistakes.
        """
        words = list(sys.argv[1:] if args is None else args)
        file = Path(words.pop(0)) if words and words[0].endswith((".yaml", ".yml")) else None
        from_file, problems = self._read_file(file) if file else ({}, [])
        self._mistakes = problems.copy()
        known, unknown = self.parse_known_args(words, argparse.Namespace(**from_file))
        mistakes = self._mistakes + self._unknown(unknown)
        if problems:
            raise BadInput("\n".join(mistakes))
        if mistakes:
            self.error("\n".join(mistakes))
        values = known.__dict__
        for name in SECRETS:
            if values.get(name) == HIDDEN:
                raise BadInput(f"{file}: {name} is not kept in a file: give --{name} again")
        if values.get("ds.lora.target_modules") == ["all-linear"]:
            values["ds.lora.target_modules"] = "all-linear"  # in a list, PEFT takes it for a name
        return known

    def _get_values(self, action, arg_strings):  # type: ignore[no-untyped-def, override]
        """The values of a flag on the command line; mistakes are collected for one report."""
        try:
            return super()._get_values(action, arg_strings)  # type: ignore[misc]
        except argparse.ArgumentError as error:
            self._mistakes.append(str(error))
            return action.default

    def _unknown(self, words: Sequence[str]) -> list[str]:
        """The error messages for words that the parser does not know."""
        flags = [word for word in words if word.startswith("--")]
        if words and not flags:
            return [f"unexpected value {words[0]!r}"]
        return list(map(self._hint, flags))

    def _read_file(self, path: Path) -> tuple[dict[str, Any], list[str]]:
        """The values that a YAML file gives to flags, and all problems with them.

        Raises BadInput for a file that cannot be read. Keys are flags with dots, or nested. A
        switch takes true or false, a list gives several values, and null keeps the default. What a
        run adds under `RECORD` is skipped.
        """
        try:
            settings = read_yaml(path, numbers=False)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise BadInput(str(error)) from None
        settings.pop(RECORD, None)
        values: dict[str, Any] = {}
        problems: list[str] = []
        for key, value in _flattened(settings):
            flag = f"--{key}"
            action = self._option_string_actions.get(flag)
            if action is None or action.dest == "help":
                problems.append(f"unknown setting {key}{self._likely(flag)}".replace("--", ""))
            elif action.dest in values:
                problems.append(f"{key} is given twice")
            elif value is not None:
                try:
                    values[action.dest] = self._value(action, value)
                except argparse.ArgumentError as error:
                    likely = did_you_mean(str(value), action.choices or ())
                    problems.append(f"{key}: {error.message}{likely}")
        return values, [f"{path}: {problem}" for problem in problems]

    def _value(self, action: argparse.Action, value: Any) -> Any:
        """Converts a YAML value as the flag converts words; raises ArgumentError likewise."""
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise argparse.ArgumentError(action, f"takes true or false, got {value}")
            return action.const if value else not action.const
        if value is True and action.nargs == "?":
            return action.const
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool | list | dict | type(None)) for item in items):
            raise argparse.ArgumentError(action, f"takes text or numbers, got {value}")
        words = list(map(str, items))
        if self._match_argument(action, "A" * len(words)) != len(words):
            count = f"{action.nargs} values" if isinstance(action.nargs, int) else "one value"
            raise argparse.ArgumentError(action, f"takes {count}, got {value}")
        return super()._get_values(action, words)  # type: ignore[misc]

    def error(self, message: str) -> NoReturn:
        mistakes = dict.fromkeys([*self._mistakes, *message.splitlines()])
        for mistake in mistakes:
            say(f"{self.prog}: error: {mistake}", error=True)
        self.exit(2)

    def _hint(self, token: str) -> str:
        name = token.partition("=")[0]
        return f"unknown flag {name}{self._likely(name)}"

    def _likely(self, name: str) -> str:
        """The end of an error message: "did you mean" and the flags that a wrong one may mean."""
        wanted = _spelt_flat(name)
        flags = {_spelt_flat(flag): flag for flag in self._option_string_actions}
        renamed = f"--{NEW_WORDS.get(wanted)}"
        likely = [flag for flat, flag in flags.items() if f"_{flat}".endswith(f"_{wanted}")]
        if renamed in self._option_string_actions:
            likely = [renamed]
        elif not likely:
            likely = [flags[flat] for flat in difflib.get_close_matches(wanted, flags)]
        return f", did you mean {' or '.join(likely)}?" if likely else ""


def _spelt_flat(flag: str) -> str:
    """A flag in the old spelling: `rollout_batch_size` for `--rollout.batch_size`."""
    return flag.removeprefix("--").replace(".", "_")


def _flattened(settings: Mapping[Any, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted names of nested settings, and their values."""
    for key, value in settings.items():
        name = f"{section}{key}"
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{name}.")
        else:
            yield name, value


def upstream_parser(program: str = "train_ppo_ray") -> argparse.ArgumentParser:
    """A parser with every flag, default and help text of a program of the installed upstream.

    Only the ranges of the flags' values are narrower (`flags.RANGES`).
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
        with _light_config():
            exec(read_program(source_path(program))[1], names)
    except AssertionError as error:
        raise BadInput(str(error)) from error
    nested = names["args"]
    nested.logger.wandb.key = nested.logger.wandb.key and Secret(nested.logger.wandb.key)
    return nested


class Secret(str):
    """A string whose repr, which upstream prints and uploads, does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


@contextmanager
def _light_config() -> Iterator[None]:
    """Lets upstream's validation import `openrlhf.utils.config` without its package.

    The package around it imports torch and transformers, which takes seconds.
    """
    name = "openrlhf.utils.config"
    if name in sys.modules:
        yield
        return
    spec: Any = importlib.util.spec_from_file_location(name, source_path("config", "utils"))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    try:
        yield
    finally:
        del sys.modules[name]


def settings_text(flat: Flat, parser: argparse.ArgumentParser) -> str:
    """The flags as YAML that the parser reads again: those that were set, then the defaults."""
    was_set: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for name, value in flat.items():
        values = was_set if changed(name, value, parser) else defaults
        values[name] = list(value) if isinstance(value, list | tuple) else value
        if name in SECRETS and value:
            values[name] = HIDDEN
    return f"# set\n{yaml_text(was_set)}\n# defaults\n{yaml_text(defaults)}"


def yaml_text(values: Mapping[str, Any]) -> str:
    """YAML with one line per value; each item of a list has its own line."""
    import yaml  # type: ignore[import-untyped]

    text: str = yaml.safe_dump(dict(values), allow_unicode=True, width=math.inf)
    return text


def changed(name: str, value: object, parser: argparse.ArgumentParser) -> bool:
    """Whether a flag is not at its default."""
    default = parser.get_default(name)
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return tuple(value) != tuple(default)
    return value != default
