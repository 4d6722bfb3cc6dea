"""`openrlhf-js data`: builds, checks and shows prompt files whose answers can be verified."""

from __future__ import annotations

import argparse
import io
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from openrlhf_js.cli import data_output as output
from openrlhf_js.cli.data_flags import COUNTS, PROMPT_TOKENS, parse
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say
from openrlhf_js.data.chat_template import ChatTemplate
from openrlhf_js.data.check import Budget, check
from openrlhf_js.data.reading import Keys, Line, read
from openrlhf_js.data.writing import folder_for, items, options_of, write
from openrlhf_js.tasks import TASKS
from openrlhf_js.tasks.base import Generated
from openrlhf_js.tasks.draws import Draws

T = TypeVar("T")
SEPARATORS = frozenset(",@*?[]")  # what OpenRLHF and datasets do not take as part of a path


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 failed or problems found, 2 what was given cannot be used, 130
        interrupted. Wrong flags exit with 2.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # any text can be shown, on any terminal
            stream.reconfigure(errors="backslashreplace")
    args = parse(argv)
    errors = Console(stderr=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C: leaves nothing behind
    try:
        return PROGRAMS[args.program](args, Console(), errors)
    except KeyboardInterrupt:
        left = "; the data set was not written" if args.program == "build" else ""
        say(errors, f"{args.parser.prog}: stopped{left}")
        return 130
    except ValueError as error:
        say(errors, f"{args.parser.prog}: {error}")
        return 2
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        say(errors, f"{args.parser.prog}: {place}{error.strerror or error}")
        return 1 if args.program == "build" else 2


def build(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Writes a data set and its manifest, and says how to train on it."""
    task = TASKS[args.task]
    options = options_of(task)
    given = {name: getattr(args, name) for name in options if getattr(args, name) is not None}
    path = args.out / f"{args.name or _name(args.task, args.split, given)}.jsonl"
    if odd := SEPARATORS & set(str(path)):
        args.parser.error(f"{path} must not contain {' '.join(sorted(odd))}")
    if args.out.exists() and not args.out.is_dir():
        args.parser.error(f"--out {args.out} is not a folder")
    if path.exists() and not args.force:
        args.parser.error(f"{path} is there already; --force replaces it")
    if "images_dir" in options:
        options["images_dir"] = str(args.out / "images")
    options |= given
    count = args.count
    if not isinstance(task, Generated):
        options = task.used(args.split, **options)
    elif count is None:
        count = COUNTS[args.task][args.split]
    parameters = {"task": args.task, "split": args.split, "count": count, "seed": args.seed}
    with folder_for(args.out), warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        with Bar(f"reading {Path(options.get('source', '')).name}", 1, errors) as bar:
            found = items(task, args.split, count, args.seed, options, bar.update)
            first = list(islice(found, 1))  # for which the whole source is read
        with Bar(f"building {path.name}", count, errors) as bar:
            found = _counted(chain(first, found), bar)
            manifest = write(path, task, found, {**parameters, **options})
    for note in notes:
        say(errors, f"note: {note.message}")
    output.built(console, path, task, args.split, manifest)
    return 0


def _name(task: str, split: str, given: dict[str, Any]) -> str:
    """Task, split, and what else was asked for: `knights_knaves-6-7-8-train`."""
    kinds = [value for option, value in given.items() if option not in ("images_dir", "source")]
    parts = [part for value in kinds for part in (value if isinstance(value, tuple) else (value,))]
    return re.sub(r"[^\w.-]", "_", "-".join(map(str, (task, *parts, split))))


def _counted(found: Iterable[T], bar: Bar) -> Iterator[T]:
    for number, item in enumerate(found):
        bar.update(number, number)
        yield item


def check_files(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Checks files, prints what was found, and tells whether it was nothing."""
    if args.prompt_max_len and not args.tokenizer:
        args.parser.error("--prompt-max-len needs --tokenizer, to count tokens")
    files, others = args.files, args.against
    every = [*files, *others]
    for file, count in Counter(file.resolve() for file in every).items():
        if count > 1:
            args.parser.error(f"{file} is named twice")
    size = sum(file.stat().st_size for file in every)
    budget = None
    if args.tokenizer:
        template = ChatTemplate(args.tokenizer)
        budget = Budget(template.tokens, args.prompt_max_len or PROMPT_TOKENS)
    done = lines = 0
    with Bar("checking", size, errors) as bar:

        def progress(size_bytes: int) -> None:
            nonlocal done, lines
            done, lines = done + size_bytes, lines + 1
            bar.update(done, lines)

        keys = Keys(args.input_key, args.label_key)
        found = check(files, others, keys, budget, args.problems, progress)
    output.report(console, found, with_tokens=bool(budget), with_overlap=bool(others))
    return 1 if found.counts else 0


def show(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Prints examples of a file; 1 if a line is none."""
    size = args.file.stat().st_size  # before a tokenizer is looked for
    lines: Iterable[Line] = read(args.file, Keys(args.input_key, args.label_key))
    if args.seed is not None:
        draws = Draws(f"show/{args.seed}")
        with Bar(f"reading {args.file.name}", size, errors) as bar:
            read_lines = _followed(lines, bar)
            drawn = nsmallest(
                args.count, ((draws.random(), each.number, each) for each in read_lines)
            )
        lines = [line for *_, line in sorted(drawn, key=lambda each: each[1])]
    template = ChatTemplate(args.tokenizer) if args.tokenizer else None
    bad = number = 0
    for line in islice(lines, args.count):
        number += 1
        output.heading(console, args.file, line.number, getattr(line.example, "datasource", ""))
        try:
            if line.example is None:
                raise ValueError(line.problem)
            output.example(console, line.example, template)
        except ValueError as error:
            say(console, str(error), "red")
            bad += 1
    if not number:
        raise ValueError(f"{args.file} holds no row")
    return 1 if bad else 0


def _followed(lines: Iterable[Line], bar: Bar) -> Iterator[Line]:
    done = 0
    for number, line in enumerate(lines, 1):
        done += line.size_bytes
        bar.update(done, number)
        yield line


PROGRAMS = {"build": build, "check": check_files, "show": show}

if __name__ == "__main__":
    sys.exit(main())
