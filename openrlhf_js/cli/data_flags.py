"""The command line of `openrlhf-js data`, and how it explains itself."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from openrlhf_js.cli.parser import Parser
from openrlhf_js.data.reading import Keys
from openrlhf_js.data.writing import options_of
from openrlhf_js.tasks import TASKS
from openrlhf_js.tasks.base import Generated, Loaded
from openrlhf_js.tasks.draws import Split

PROGRAM = "openrlhf-js data"
DESCRIPTION = """\
Builds, checks and shows prompt files whose answers can be verified.

build   writes the problems of a task as JSON lines for --data.prompt_dataset
check   grades every gold answer, measures and compares prompts, before a run does
show    prints a few items as the model sees them, and how answers to them score
"""
COUNTS = {  # as many problems as the paper's
    "countdown": {"train": 20_000, "test": 200},
    "knights_knaves": {"train": 30_000, "test": 300},
    "maze": {"train": 20_000, "test": 200},
}
PROMPT_TOKENS = 1024  # the paper's "max prompt len"

EXAMPLES = """\
examples:
  openrlhf-js data build countdown --split train --out data
  openrlhf-js data check data/countdown-train.jsonl --tokenizer Qwen/Qwen2.5-3B
  openrlhf-js data show data/countdown-train.jsonl

`openrlhf-js data build --help` has one for every task.
"""
BUILD_EXAMPLES = """\
examples, as in the paper:
  openrlhf-js data build countdown --split train --out data
  openrlhf-js data build knights_knaves --split train --people 6,7,8 --out data
  openrlhf-js data build maze --split test --count 200 --seed 1 --out data
  openrlhf-js data build math --split train --out data
  openrlhf-js data build math --split test --dataset math500 --out data
  openrlhf-js data build gsm8k --split train --source downloads/gsm8k --out data
  openrlhf-js data build geometry3k --split train --out data

`openrlhf-js data build TASK --help` shows what a task takes.
"""
CHECK_EXAMPLES = """\
examples:
  openrlhf-js data check data/maze-train.jsonl
  openrlhf-js data check data/math-train.jsonl --tokenizer Qwen/Qwen2.5-Math-1.5B
  openrlhf-js data check data/*-train.jsonl --against data/*-test.jsonl

exit status: 0 nothing wrong, 1 problems found, 2 a file or an option cannot be used
"""
SHOW_EXAMPLES = """\
examples:
  openrlhf-js data show data/maze-train.jsonl --count 1
  openrlhf-js data show data/math-train.jsonl --seed 7 --tokenizer Qwen/Qwen2.5-Math-1.5B
"""
OPTIONS = {  # of the tasks: what to write after them, and what they are
    "dataset": (
        "NAME",
        "to train: dapo (default) or dapo_raw; to test: math500 (default), amc23 or olympiadbench; "
        "plain: your own, with columns problem and answer; files with train or test in their names "
        "are that split, others are divided into the two by the text of each problem",
    ),
    "images_dir": ("DIR", "where figures are written (default: images, in --out)"),
    "largest": ("N", "the largest number that may be given"),
    "lengths": ("4,5,...", "steps of the shortest path, equally many mazes of each"),
    "numbers": ("3,4", "how many numbers a problem has, equally many problems of each"),
    "people": ("4,5,6", "how many people a puzzle has, equally many puzzles of each"),
    "size": ("N", "rows and columns, walls included"),
    "source": ("PATH", "local file or folder of the data set's layout, or another hub id"),
    "targets": ("LOW,HIGH", "the smallest and the largest target"),
}


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    programs = parser.add_subparsers(metavar="{build,check,show}", required=True)
    _add_build(programs)
    _add_check(programs)
    _add_show(programs)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        own: Parser = args.parser
        takes = [flag for flag in own._option_string_actions if flag.startswith("--")][1:]
        own.error(f"takes no {unknown[0]}; it takes {', '.join(takes)}")
    return args


def _add_build(programs: Any) -> None:
    build_parser = programs.add_parser(
        "build",
        help="write the problems of a task",
        description="Writes the problems of a task as JSON lines, and a manifest beside them. The\n"
        "same command writes the same lines, on any machine.",
        epilog=BUILD_EXAMPLES,
    )
    tasks = build_parser.add_subparsers(metavar="TASK", required=True, title="tasks")
    for name, task in sorted(TASKS.items()):
        about = (inspect.getdoc(task) or "").partition("\n\n")[0].replace("\n", " ")
        own = tasks.add_parser(
            name, help=about, description=about, formatter_class=argparse.HelpFormatter
        )
        _add_common(own, name, task)
        for option, default in options_of(task).items():
            metavar, text = OPTIONS[option]
            shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
            unsaid = default is not None and "default" not in text
            own.add_argument(
                "--" + option.replace("_", "-"),
                type=_reader(default),
                metavar=metavar,
                help=text + (f" (default {shown})" if unsaid else ""),
            )
        own.set_defaults(program="build", parser=own, task=name)


def _add_common(own: argparse.ArgumentParser, name: str, task: Generated | Loaded) -> None:
    """What every task takes, in the words of those that make their problems or load them."""
    if isinstance(task, Generated):
        splits: tuple[str, ...] = get_args(Split)
        split = "no problem is in both, whatever their seeds"
        count = "how many problems (default: {train:,} to train, {test:,} to test)"
    else:
        splits = task.SPLITS
        split = "one that the data set has"
        count = "so many of the problems, drawn by --seed (default: all)"
    own.add_argument("--split", required=True, choices=splits, help=split)
    own.add_argument("--count", type=_whole, metavar="N", help=count.format(**COUNTS.get(name, {})))
    own.add_argument("--seed", type=int, default=0, metavar="S", help="default %(default)s")
    own.add_argument("--out", type=_path, required=True, metavar="DIR", help="folder to write to")
    own.add_argument(
        "--name",
        help="of the file, without .jsonl (default: the task, what it was told, the split)",
    )
    own.add_argument("--force", action="store_true", help="replace a file that is there")


def _reader(default: Any) -> Callable[[str], Any]:
    """What reads an option, by the kind of its default."""
    if isinstance(default, tuple):
        return _numbers
    return int if isinstance(default, int) else _text


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        message = f"{text!r} is not a list of whole numbers such as 3,4"
        raise argparse.ArgumentTypeError(message) from None


def _whole(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _add_check(programs: Any) -> None:
    own = programs.add_parser(
        "check",
        help="check prompt files before a run does",
        description="Grades every gold answer and a wrong one, and looks for prompts that are too\n"
        "long, repeated, or in other files too.",
        epilog=CHECK_EXAMPLES,
    )
    own.add_argument("files", nargs="+", type=_path, metavar="FILE", help="checked as one data set")
    own.add_argument("--against", nargs="+", type=_path, default=[], metavar="FILE",
                     help="files that may not share a prompt with these")  # fmt: skip
    own.add_argument("--prompt-max-len", type=_whole, metavar="N",
                     help=f"tokens that a prompt may take (default {PROMPT_TOKENS})")  # fmt: skip
    own.add_argument("--problems", type=_whole, default=3, metavar="N",
                     help="how many of each kind to print (default %(default)s)")  # fmt: skip
    _add_reading(own, "to measure prompts")
    own.set_defaults(program="check", parser=own)


def _add_show(programs: Any) -> None:
    own = programs.add_parser(
        "show",
        help="print a few items",
        description="Prints items as the model will see them, and how a right and a wrong answer\n"
        "to them score.",
        epilog=SHOW_EXAMPLES,
    )
    own.add_argument("file", type=_path, metavar="FILE")
    own.add_argument("--count", type=_whole, default=3, metavar="N", help="default %(default)s")
    own.add_argument("--seed", type=int, metavar="S", help="draw them; else they are the first")
    _add_reading(own, "for its chat template")
    own.set_defaults(program="show", parser=own)


def _add_reading(own: argparse.ArgumentParser, purpose: str) -> None:
    """What every program takes that reads prompt files."""
    own.add_argument(
        "--tokenizer", type=_text, metavar="MODEL", help=f"folder or hub id, {purpose}"
    )
    for column in Keys._fields:
        own.add_argument(
            f"--{column}-key", default=column, metavar="KEY", help="default %(default)s"
        )
