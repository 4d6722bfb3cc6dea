"""Answers to puzzles are read as a person would read them: right, wrong, or no answer at all."""

import json
from pathlib import Path

from openrlhf_js.tasks import TASKS

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
ODD = [
    ("countdown", "(53 + 22 + 55 - 59" + " " * 500 + ")", "malformed"),
    ("countdown", "\n", "no_answer"),
    ("knights_knaves", f"Owen is a sage, Liam and Mary-Ann are fools{',' * 10_000}", "malformed"),
    *(("knights_knaves", text, "no_answer") for text in ("", " ")),
    *(("maze", "RL" * 2000 + "RUUU", "malformed"), ("maze", "D" * 30, "wrong")),
    *(("maze", "", "no_answer"), ("maze", "\t\n", "no_answer")),
]


def tabled():
    """What `puzzle_answers.txt` holds: the task, the answer, the status of its score."""
    task, statuses = "", {"= ": "correct", "! ": "wrong", "? ": "malformed"}
    for line in (Path(__file__).parent / "puzzle_answers.txt").read_text("utf-8").splitlines():
        task = line[1:-1] if line.startswith("[") else task
        if line[:2] in statuses:
            yield task, line[2:].replace("⏎", "\n"), statuses[line[:2]]


def test_answers():
    differing = []
    for task, answer, status in (*tabled(), *ODD):
        score = TASKS[task].score(FORMS[task] % answer, LABELS[task])
        if score[:2] != (float(status == "correct"), status):
            differing.append((task, answer, status, score))
    assert not differing
