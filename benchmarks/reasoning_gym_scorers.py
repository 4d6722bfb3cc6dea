"""Tries every scorer of Reasoning Gym, and prints the table of docs/reasoning_gym.md.

    python benchmarks/reasoning_gym_scorers.py [--items 16] [--only NAME,NAME]

Of each data set: whether the library's scorer runs an answer as Python (an audit hook sees the code
of a marked answer), the constant answer that it takes for right most often, and the same of the
scorers that we use; whether its own answers score 1, how many costly answers are stopped, and how
many items are made and answers graded in a second.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median
from typing import Any

from markdown_table import print_table

from openrlhf_js.tasks import reasoning_gym
from openrlhf_js.tasks.pool import GradingPool
from openrlhf_js.tasks.reasoning_gym import scorers

MARK = "hostile_canary"
MARKED = (
    *(MARK, f"[{MARK}]", f"{MARK}+1", f"({MARK})", f"{MARK}.x", f"{MARK}()"),
    *(f"__import__('{MARK}')", f"[x for x in {MARK}]", f"24 if {MARK} else 24", f"A={MARK}"),
    *(f"{MARK}/1", f"{MARK}, {MARK}", f"lambda: {MARK}", f"{MARK} {MARK}"),
)
CONSTANTS = (
    *("nan", "NaN", "nan+nanj", "inf", "-inf", "0", "1", "-1", "0.0", "0.5", "True", "False"),
    *("yes", "no", "Yes", "No", "None", "null", "[]", "[[]]", "{}", "()", '""', "?", "x", "A", "C"),
    *("hello", ".", ",", "1 1", "[0]", "[1]", "24", "0/1", "A=1", "[NaN]", "[[NaN]]", "Monday"),
)
COSTLY = (
    *("9**9**9**9", "9^9^9^9", "1e999999999", "1/1e999999999", "9" * 4_000, "(" * 3_000),
    *("[" * 3_000, "~" * 3_000, "¬" * 3_000, "1+" * 3_000 + "1", "a" * 19_000, "factorial(9**9)"),
    *("exp(exp(exp(exp(9))))", "x**99999999", "(x+1)**9999", "1 2 " * 4_000, "A=9," * 4_000),
    *("[1," * 2_000, '{"a":' * 2_000, "R U " * 4_000, "10000000000000000x1", "((((" + "9" * 999),
)
LIMIT_SECONDS = 5.0
RAW_SECONDS = 20  # for a marked or a constant answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else scorers.names()
    runs = Watch()
    rows = []
    with GradingPool(workers=1, timeout_seconds=LIMIT_SECONDS) as pool:
        for name in names:
            if name == "composite":
                continue
            rows.append(tried(name, options.items, pool, runs))
            print(rows[-1], file=sys.stderr, flush=True)
    print_table(list(rows[0]), [row.values() for row in rows])


class Watch:
    """Whether code that holds the mark is run: an audit hook, which stays for good."""

    def __init__(self) -> None:
        self.seen = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec" and isinstance(arguments[0], types.CodeType):
            code = arguments[0]
            constants = [each for each in code.co_consts if isinstance(each, str)]
            self.seen |= any(MARK in name for name in (*code.co_names, *constants))


def tried(name: str, count: int, pool: GradingPool, runs: Watch) -> dict[str, Any]:
    """A row of the table."""
    began = time.perf_counter()
    items = list(islice(scorers.entries(name, random.Random(0)), count))
    made_per_second = count / (time.perf_counter() - began)
    entries = [stored(item) for item in items]
    row = {"data set": name, "graded by": graded_by(name), "items/s": f"{made_per_second:,.0f}"}
    row["the library runs answers"] = "yes" if runs_answers(scorers.library, entries, runs) else ""
    row["the library takes"] = cheat(scorers.library, entries)
    if name in reasoning_gym.NOT_OFFERED:
        return row | {"own answer": "", "stopped": "", "answers/s": ""}

    def ours(answer: str, entry: dict[str, Any]) -> float:
        return scorers.grade(answer, json.dumps(entry)).value

    if runs_answers(ours, entries, runs):
        raise SystemExit(f"{name}: our scorer runs answers")
    if taken := cheat(ours, entries):
        raise SystemExit(f"{name}: our scorer takes {taken}")
    labels = [json.dumps(entry) for entry in entries if entry["answer"]]
    function = "openrlhf_js.tasks.reasoning_gym.scorers:grade"
    pool.grade(function, "?", labels[0])  # starts the worker, and makes the data set
    seconds = []
    right = 0
    for label in labels:
        began = time.perf_counter()
        right += pool.grade(function, json.loads(label)["answer"], label).status == "correct"
        seconds.append(time.perf_counter() - began)
    row["own answer"] = f"{right} of {len(items)}"
    costly = [pool.grade(function, answer, labels[0]) for answer in COSTLY]
    if any(score.status == "correct" for score in costly):
        raise SystemExit(f"{name}: a costly answer is right")
    stopped = sum(score.status in ("timeout", "error") for score in costly)
    row["stopped"] = f"{stopped} of {len(COSTLY)}" if stopped else ""
    return row | {"answers/s": f"{1 / median(seconds):,.0f}"}


def stored(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a label holds it."""
    return json.loads(json.dumps(item, default=str))


def graded_by(name: str) -> str:
    if name in reasoning_gym.NOT_OFFERED:
        return "not offered"
    return scorers.REPLACED[name].__name__ if name in scorers.REPLACED else "the library"


Scorer = Callable[[str, dict[str, Any]], float]


def runs_answers(scorer: Scorer, entries: list[dict[str, Any]], runs: Watch) -> bool:
    runs.seen = False
    for answer in MARKED:
        raw(scorer, answer, entries[0])
    return runs.seen


def cheat(scorer: Scorer, entries: list[dict[str, Any]]) -> str:
    """The constant answer that is taken for right most often where it is not, and how often."""
    most, best = 0, ""
    for answer in CONSTANTS:
        others = [entry for entry in entries if not same(answer, entry["answer"])]
        taken = sum(raw(scorer, answer, entry) >= 1 for entry in others)
        if taken > most:
            most, best = taken, f"`{answer}` in {taken} of {len(others)}"
    return best


def same(first: str, second: str) -> bool:
    """Whether two answers are one to a reader: the same word, or the same number."""
    with contextlib.suppress(ValueError):
        return float(first) == float(second)
    return first.strip().lower() == second.strip().lower()


def raw(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
    """A scorer's value in this process; 0 where it fails or takes too long."""
    with limited(), contextlib.suppress(Exception):
        return float(scorer(answer, json.loads(json.dumps(entry))))
    return 0.0


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(RAW_SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    main()
