"""Claim: no Reasoning Gym scorer that we offer runs an answer, or accepts a wrong one of these.

    python research/benchmarks/reasoning_gym_scorers.py  # all data sets: half an hour
    python research/benchmarks/reasoning_gym_scorers.py --only maze,gcd  # two of them: seconds

Prints a table of the library's scorers. For each data set it says whether we offer it, whether its
scorer runs an answer as Python (an audit hook sees the code of a marked answer), which wrong answer
it accepts most often (a constant, a number with its sign turned, or a right answer with more around
it), whether its own answers score 1, how many costly answers are stopped, and how many items are
made and answers graded in a second. Exits with 1 if we offer one that runs answers or accepts a
wrong one.
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
from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import Any

from answer_graders.pool import GradingPool
from answer_graders.tasks import reasoning_gym
from baseline_research.markdown_table import print_table

MARK = "hostile_canary"
# fmt: off
MARKED = (  # answers that are Python
    MARK, f"[{MARK}]", f"{MARK}+1", f"({MARK})", f"{MARK}.x", f"{MARK}()", f"__import__('{MARK}')",
    f"[x for x in {MARK}]", f"24 if {MARK} else 24", f"A={MARK}", f"{MARK}/1", f"{MARK}, {MARK}",
    f"lambda: {MARK}", f"{MARK} {MARK}",
)
CONSTANTS = (  # answers that could be accepted by mistake
    "nan", "NaN", "nan+nanj", "inf", "-inf", "0", "1", "-1", "0.0", "0.5", "True", "False", "yes",
    "no", "Yes", "No", "None", "null", "[]", "[[]]", "{}", "()", '""', "?", "x", "A", "C", "hello",
    ".", ",", "1 1", "[0]", "[1]", "24", "0/1", "A=1", "[NaN]", "[[NaN]]", "Monday",
)
MORE = (  # around an item's own answer; the other one is the next item's
    "{own} or {other}", "{other} or {own}", "{own} {other}", "{own}, {other}", "{own}\n{other}",
    "{own} or ?", "not {own}", "It is false that {own}",
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
GRADER = "answer_graders.tasks.reasoning_gym.library:score"  # as the pool's worker imports it


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    from answer_graders.tasks.reasoning_gym import library

    names = options.only.split(",") if options.only else library.names()
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
    """Whether code with the mark is run. Its audit hook cannot be removed."""

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
    from answer_graders.tasks.reasoning_gym import library

    began = time.perf_counter()
    items = list(islice(library.entries(name, random.Random(0)), count))
    items_per_second = count / (time.perf_counter() - began)
    entries = [stored(item) for item in items]
    labels = [json.dumps(entry) for entry in entries if entry["answer"]]
    runs = runs_answers(entries[0], watch)
    taken = cheat(entries)
    is_offered = name not in reasoning_gym.NOT_OFFERED
    if is_offered and (runs or taken or not labels):
        raise SystemExit(f"{name} is offered: runs answers {runs}; takes {taken or 'none'}")
    row = {
        "data set": name,
        "offered": "yes" if is_offered else "",
        "items/s": f"{items_per_second:,.0f}",
        "runs answers": "yes" if runs else "",
        "takes": taken,
        "own answer": "",
        "stopped": "",
        "answers/s": "",
    }
    if not is_offered:
        return row

    pool.grade(GRADER, "?", labels[0])  # starts the worker, and makes the data set
    correct, median_seconds = grade_own_answers(labels, pool)
    stopped = count_stopped(name, labels[0], pool)
    row["own answer"] = f"{correct} of {len(items)}"
    row["stopped"] = f"{stopped} of {len(COSTLY)}" if stopped else ""
    row["answers/s"] = f"{1 / median_seconds:,.0f}"
    return row


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


def runs_answers(entry: dict[str, Any], watch: CodeWatch) -> bool:
    """Whether the library's scorer runs any marked answer as Python."""
    watch.seen = False
    for answer in MARKED:
        raw_score(answer, entry)
    return watch.seen


def cheat(entries: list[dict[str, Any]]) -> str:
    """The trick whose wrong answer is accepted most often, and how often."""
    most_taken = 0
    description = ""
    for trick, answers in wrong_answers([entry["answer"] for entry in entries]).items():
        pairs = zip(answers, entries, strict=True)
        attempts = [(answer, entry) for answer, entry in pairs if is_wrong(answer, entry["answer"])]
        taken = sum(raw_score(answer, entry) >= 1 for answer, entry in attempts)
        if taken > most_taken:
            most_taken = taken
            description = f"`{trick}` in {taken} of {len(attempts)}"
    return description


def wrong_answers(own_answers: list[str]) -> dict[str, list[str]]:
    """By trick, an answer to each item; "" where there is none."""
    pairs = list(zip(own_answers, own_answers[1:] + own_answers[:1], strict=True))
    tricks = {answer: [answer] * len(own_answers) for answer in CONSTANTS}
    tricks["-own"] = [f"-{own}" if is_number(own) else "" for own in own_answers]
    for form in MORE:
        tricks[form] = [
            form.format(own=own, other=other) if own and other else "" for own, other in pairs
        ]
    return tricks


def is_wrong(answer: str, own_answer: str) -> bool:
    return bool(answer) and not is_same(answer, own_answer)


def is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return True
    return False


def is_same(first: str, second: str) -> bool:
    """Whether two answers are the same to a reader: the same word or number."""
    with contextlib.suppress(ValueError):
        return float(first) == float(second)
    return first.strip().lower() == second.strip().lower()


def raw_score(answer: str, entry: dict[str, Any]) -> float:
    """The library's score in this process; 0 if it fails or takes too long."""
    from answer_graders.tasks.reasoning_gym import library

    with limited(), contextlib.suppress(Exception):
        return library.score(answer, json.dumps(entry)).value
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
