"""Claim: our scorers for Reasoning Gym run no answer, and take no constant for a right answer.

    python benchmarks/reasoning_gym_scorers.py                     # all data sets: half an hour
    python benchmarks/reasoning_gym_scorers.py --only maze,gcd     # two of them: seconds

Prints a table that compares the library's scorers to ours. Of each
data set: whether the library's scorer runs an answer as Python (an audit hook sees the code
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
# fmt: off
MARKED = (  # answers that are Python
    MARK, f"[{MARK}]", f"{MARK}+1", f"({MARK})", f"{MARK}.x", f"{MARK}()", f"__import__('{MARK}')",
    f"[x for x in {MARK}]", f"24 if {MARK} else 24", f"A={MARK}", f"{MARK}/1", f"{MARK}, {MARK}",
    f"lambda: {MARK}", f"{MARK} {MARK}",
)
CONSTANTS = (  # answers that could be taken for right
    "nan", "NaN", "nan+nanj", "inf", "-inf", "0", "1", "-1", "0.0", "0.5", "True", "False", "yes",
    "no", "Yes", "No", "None", "null", "[]", "[[]]", "{}", "()", '""', "?", "x", "A", "C", "hello",
    ".", ",", "1 1", "[0]", "[1]", "24", "0/1", "A=1", "[NaN]", "[[NaN]]", "Monday",
)
COSTLY = (  # answers that take long to read or to compute
    "9**9**9**9", "9^9^9^9", "1e999999999", "1/1e999999999", "9" * 4_000, "(" * 3_000, "[" * 3_000,
    "~" * 3_000, "¬" * 3_000, "1+" * 3_000 + "1", "a" * 19_000, "factorial(9**9)",
    "exp(exp(exp(exp(9))))", "x**99999999", "(x+1)**9999", "1 2 " * 4_000, "A=9," * 4_000,
    "[1," * 2_000, '{"a":' * 2_000, "R U " * 4_000, "10000000000000000x1", "((((" + "9" * 999,
)
# fmt: on
LIMIT_SECONDS = 5.0
RAW_SECONDS = 20  # for a marked or a constant answer
GRADER = "openrlhf_js.tasks.reasoning_gym.scorers:grade"  # as the pool's worker imports it


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else scorers.names()
    watch = CodeWatch()
    rows = []
    with GradingPool(workers=1, timeout_seconds=LIMIT_SECONDS) as pool:
        for name in names:
            if name == "composite":
                continue
            row = table_row(name, options.items, pool, watch)
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    print_table(columns=list(rows[0]), rows=[row.values() for row in rows])


class CodeWatch:
    """Whether code that holds the mark is run: an audit hook, which stays for good."""

    def __init__(self) -> None:
        self.seen = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec" and isinstance(arguments[0], types.CodeType):
            code = arguments[0]
            texts = [constant for constant in code.co_consts if isinstance(constant, str)]
            self.seen |= any(MARK in text for text in (*code.co_names, *texts))


def table_row(name: str, count: int, pool: GradingPool, watch: CodeWatch) -> dict[str, Any]:
    """A row of the table, by column."""
    began = time.perf_counter()
    items = list(islice(scorers.entries(name, random.Random(0)), count))
    items_per_second = count / (time.perf_counter() - began)
    entries = [stored(item) for item in items]
    row = {
        "data set": name,
        "graded by": graded_by(name),
        "items/s": f"{items_per_second:,.0f}",
        "the library runs answers": "yes" if runs_answers(scorers.library, entries, watch) else "",
        "the library takes": cheat(scorers.library, entries),
        "own answer": "",
        "stopped": "",
        "answers/s": "",
    }
    if name in reasoning_gym.NOT_OFFERED:
        return row

    if runs_answers(our_score, entries, watch):
        raise SystemExit(f"{name}: our scorer runs answers")
    taken = cheat(our_score, entries)
    if taken:
        raise SystemExit(f"{name}: our scorer takes {taken}")
    labels = [json.dumps(entry) for entry in entries if entry["answer"]]
    pool.grade(GRADER, "?", labels[0])  # starts the worker, and makes the data set
    correct, median_seconds = grade_own_answers(labels, pool)
    stopped = count_stopped(name, labels[0], pool)
    row["own answer"] = f"{correct} of {len(items)}"
    row["stopped"] = f"{stopped} of {len(COSTLY)}" if stopped else ""
    row["answers/s"] = f"{1 / median_seconds:,.0f}"
    return row


def our_score(answer: str, entry: dict[str, Any]) -> float:
    return scorers.grade(answer, json.dumps(entry)).value


def grade_own_answers(labels: list[str], pool: GradingPool) -> tuple[int, float]:
    """How many of the library's own answers are right, and the median seconds of one."""
    correct = 0
    seconds = []
    for label in labels:
        answer = json.loads(label)["answer"]
        began = time.perf_counter()
        correct += pool.grade(GRADER, answer, label).status == "correct"
        seconds.append(time.perf_counter() - began)
    return correct, median(seconds)


def count_stopped(name: str, label: str, pool: GradingPool) -> int:
    """How many costly answers are stopped."""
    statuses = [pool.grade(GRADER, answer, label).status for answer in COSTLY]
    if "correct" in statuses:
        raise SystemExit(f"{name}: a costly answer is right")
    return statuses.count("timeout") + statuses.count("error")


def stored(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a label holds it."""
    return json.loads(json.dumps(item, default=str))


def graded_by(name: str) -> str:
    if name in reasoning_gym.NOT_OFFERED:
        return "not offered"
    if name in scorers.REPLACED:
        return scorers.REPLACED[name].__name__
    return "the library"


Scorer = Callable[[str, dict[str, Any]], float]


def runs_answers(scorer: Scorer, entries: list[dict[str, Any]], watch: CodeWatch) -> bool:
    """Whether a scorer runs any marked answer as Python."""
    watch.seen = False
    for answer in MARKED:
        raw_score(scorer, answer, entries[0])
    return watch.seen


def cheat(scorer: Scorer, entries: list[dict[str, Any]]) -> str:
    """The constant answer that is taken for right most often where it is not, and how often."""
    most_taken = 0
    description = ""
    for answer in CONSTANTS:
        others = [entry for entry in entries if not is_same(answer, entry["answer"])]
        taken = sum(raw_score(scorer, answer, entry) >= 1 for entry in others)
        if taken > most_taken:
            most_taken = taken
            description = f"`{answer}` in {taken} of {len(others)}"
    return description


def is_same(first: str, second: str) -> bool:
    """Whether two answers are one to a reader: the same word, or the same number."""
    with contextlib.suppress(ValueError):
        return float(first) == float(second)
    return first.strip().lower() == second.strip().lower()


def raw_score(scorer: Scorer, answer: str, entry: dict[str, Any]) -> float:
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
