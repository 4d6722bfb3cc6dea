"""Answers are found in responses as a reader would, in linear time; problems keep their split."""

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from openrlhf_js.tasks import TASKS, answers, base, gsm8k

FINDERS = {
    each.__name__: each
    for each in (
        *(answers.last_boxed, answers.last_answer_tag, answers.last_hashes, answers.plain),
        *(answers.without_end_marks, gsm8k.answer_of),
    )
}
HERE = Path(__file__).parent
FOUND = (HERE / "found_answers.txt").read_text("utf-8").splitlines()[2:]


def test_where_the_answer_is():
    rows = list(map(json.loads, filter(None, FOUND)))
    found = [(name, response, FINDERS[name](response)) for name, response, _ in rows]
    assert found == list(map(tuple, rows))


@pytest.mark.parametrize("extract", FINDERS.values())
def test_a_megabyte_of_one_piece_takes_no_time(extract):
    spaced = r"\boxed" + " " * 50
    for piece in (r"\boxed{", "{", "<answer>", "#", spaced, "**", r"\left ", "<eos>", "<|"):
        began = time.process_time()
        extract(piece * (1_000_000 // len(piece)))
        assert time.process_time() - began < 3, piece


def test_one_key_in_so_many_is_a_test_key():
    splits = Counter(base.split_of(str(number)) for number in range(20_000))
    assert splits["test"] / 20_000 == pytest.approx(1 / base.TEST_SHARE, rel=0.1)
    assert [n for n in range(40) if base.split_of(str(n)) == "test"] == [22]  # in every version


# The paper's examples: a task, its label, the answer that the paper shows, and another one.
ROLES = "Owen sage, Liam fool, Evelyn fool, William sage, Sofia sage, Emily sage"
SAGES = (
    "Owen is a sage, Liam is a fool, Evelyn is a fool, William is a sage, Sofia is a sage, "
    "and Emily is a sage"
)
GRID = ["******", "*.*.E*", "*....*", "**.*.*", "**.S.*", "******"]
PAPER = {
    "math": ("27", "27", "26"),
    "gsm8k": ("27", "27", "26"),
    "geometry3k": ("27", "27", "26"),
    "knights_knaves": (
        json.dumps(dict(each.split() for each in ROLES.split(", "))),
        *(SAGES, SAGES.replace("Liam is a fool", "Liam is a sage")),
    ),
    "countdown": (
        json.dumps({"numbers": [55, 53, 59, 22], "target": 71}),
        *("53+22+55-59", "53+22+59-55"),
    ),
    "maze": (json.dumps({"maze": GRID}), "RUUU", "LUUU"),
}


BAD_LABELS = {  # by task
    name: labels.splitlines()
    for name, labels in re.findall(
        r"^\[(\w+)\]\n((?:.+\n)+)", (HERE / "bad_labels.txt").read_text(), re.M
    )
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_malformed_labels_are_errors(name):
    task = TASKS[name]
    for label in ("", "[" * 100_000, *BAD_LABELS[name]):
        for function in (
            lambda label: task.score("", label),
            task.right_response,
            task.wrong_response,
        ):
            with pytest.raises(ValueError, match=r"a label is .*JSON") as raised:
                function(label)
            assert len(str(raised.value)) < 500


@pytest.mark.parametrize("name", PAPER)
def test_the_last_complete_answer_of_a_tasks_own_form_counts(name):
    label, right, wrong = PAPER[name]
    box, tag = "\\boxed{%s}", "<answer> %s </answer>"
    own, other = (tag, box) if name in ("countdown", "maze") else (box, tag)
    for response, status in [
        (f"{own % wrong} or rather {own % right} {own[:9]}", "correct"),
        (own % right + own % wrong, "wrong"),
        (other % wrong + own % right, "correct"),
        (own % right + other % wrong, "correct"),
        (other % right + own % "", "no_answer"),
        (own[:9] + right, "no_answer"),
    ]:
        assert TASKS[name].score(response, label).status == status, response


@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>\n"])
@pytest.mark.parametrize("form", ["\\boxed{%s}", "\\boxed{%s}.\n", "<answer> %s </answer>"])
def test_every_task_reads_the_papers_answer_in_a_box_and_in_tags(form, end):
    for name, paper in PAPER.items():
        reads_the_papers_answer(name, *paper, form, end)
    assert answers.boxed_or_tagged(f"\\boxed 7{end}") == "7"


@pytest.mark.parametrize("name", PAPER)
def test_what_is_behind_the_thoughts_counts(name):
    label, right, wrong = PAPER[name]
    form = "<answer> %s </answer>" if name in ("countdown", "maze") else "\\boxed{%s}"
    for response, status in [
        (f"<think>{form % wrong}</think>{form % right}", "correct"),
        (f"<think>{form % right}</think>{form % wrong}", "wrong"),
        (f"{form % right}</think>{form % wrong}", "wrong"),  # the template wrote the opening tag
        (f"<think>{form % right}</think>I am done.", "no_answer"),
        (f"<think>{form % right}", "no_answer"),
        (f"<think>hm</think>{form % right}<think>{form % right}", "no_answer"),
        (f"rethink> {form % right}", "correct"),
    ]:
        assert TASKS[name].score(response, label).status == status, response


def reads_the_papers_answer(name, label, right, wrong, form, end):
    for said, status in ((right, "correct"), (wrong, "wrong")):
        response = f"<think> Let me see: {wrong}? </think>\n{form % said}{end}"
        assert TASKS[name].score(response, label).status == status
    for hedge in (f"{right} or {wrong}", f"{wrong} or {right}", f"{right}\n\n{wrong}"):
        assert TASKS[name].score(f"{form % hedge}{end}", label).value == 0
    assert TASKS[name].score(f"{right}{end}", label).status == "no_answer"
