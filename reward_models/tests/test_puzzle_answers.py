"""Answers to puzzles are read as a person would read them: right, wrong, or no answer at all."""

import json
from pathlib import Path

from answer_graders.tasks import TASKS

LABELS = {
    "countdown": json.dumps({"numbers": [55, 53, 59, 22], "target": 71}),
    "knights_knaves": json.dumps({"Owen": "sage", "Liam": "fool", "Mary-Ann": "fool"}),
    "maze": json.dumps({"maze": ["******", "*.*.E*", "*....*", "**.*.*", "**.S.*", "******"]}),
}
FORMS = {
    "countdown": "<think> 1 + 1 </think> <answer> %s </answer>",
    "knights_knaves": r"\boxed{Owen is a fool, Liam is a fool, Mary-Ann is a fool} No: \boxed{%s}!",
    "maze": "Down (D) is a wall. <answer> %s </answer>",
}
STATUSES = {"= ": "correct", "! ": "wrong", "? ": "malformed"}
ODD = [  # which no line of a table can hold
    ("countdown", "(53 + 22 + 55 - 59" + " " * 500 + ")", "malformed"),
    ("countdown", "\n", "no_answer"),
    ("knights_knaves", f"Owen is a sage, Liam and Mary-Ann are fools{',' * 10_000}", "malformed"),
    ("knights_knaves", "", "wrong"),  # the box before the empty one counts
    ("knights_knaves", " ", "wrong"),
    ("maze", "RL" * 2000 + "RUUU", "malformed"),
    ("maze", "D" * 30, "wrong"),
    ("maze", "", "no_answer"),
    ("maze", "\t\n", "no_answer"),
]


def table():
    """The rows of `puzzle_answers.txt`: the task, the answer, the status of its score."""
    task = ""
    for line in (Path(__file__).parent / "puzzle_answers.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            task = line[1:-1]
        elif line[:2] in STATUSES:
            answer = line[2:].replace("⏎", "\n")
            yield task, answer, STATUSES[line[:2]]


def test_answers():
    wrong = []
    for task, answer, status in [*table(), *ODD]:
        score = TASKS[task].score(FORMS[task] % answer, LABELS[task])
        if (score.value, score.status) != (float(status == "correct"), status):
            wrong.append((task, answer, status, score))
    assert not wrong
