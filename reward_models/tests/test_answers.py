"""Answers are found in responses as a reader would, in linear time; problems keep their split."""

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from thoughts import MARKS

from answer_graders import answers
from answer_graders.record import TEST_SHARE, split_of
from answer_graders.tasks import TASKS, gsm8k

FINDERS = {
    "last_boxed": answers.last_boxed,
    "last_answer_tag": answers.last_answer_tag,
    "last_hashes": answers.last_hashes,
    "plain": answers.plain,
    "without_end_marks": answers.without_end_marks,
    "answer_of": gsm8k.answer_of,
}
HERE = Path(__file__).parent


def found_answers():
    """The rows of `found_answers.txt`: finder, response, answer."""
    for line in (HERE / "found_answers.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            yield json.loads(line)


def test_where_the_answer_is():
    wrong = []
    for finder, response, answer in found_answers():
        result = FINDERS[finder](response)
        if result != answer:
            wrong.append((finder, response, result, answer))
    assert not wrong


@pytest.mark.parametrize("extract", FINDERS.values())
def test_a_megabyte_of_one_piece_takes_no_time(extract):
    spaced = r"\boxed" + " " * 50
    for piece in (r"\boxed{", "{", "<answer>", "#", spaced, "**", r"\left ", "<eos>", "<|"):
        began = time.process_time()
        extract(piece * (1_000_000 // len(piece)))
        assert time.process_time() - began < 5, piece


def test_one_key_in_so_many_is_a_test_key():
    splits = Counter(split_of(str(number)) for number in range(20_000))
    assert splits["test"] / 20_000 == pytest.approx(1 / TEST_SHARE, rel=0.1)
    assert [n for n in range(40) if split_of(str(n)) == "test"] == [22]  # in every version


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
        json.dumps(dict(person.split() for person in ROLES.split(", "))),
        SAGES,
        SAGES.replace("Liam is a fool", "Liam is a sage"),
    ),
    "countdown": (
        json.dumps({"numbers": [55, 53, 59, 22], "target": 71}),
        "53+22+55-59",
        "53+22+59-55",
    ),
    "maze": (json.dumps({"maze": GRID}), "RUUU", "LUUU"),
}


def bad_labels():
    """The tasks and labels of `bad_labels.txt`."""
    task = ""
    for line in (HERE / "bad_labels.txt").read_text().splitlines():
        heading = re.fullmatch(r"\[(\w+)\]", line)
        if heading:
            task = heading[1]
            yield task, ""
            yield task, "[" * 100_000
        elif task and line:
            yield task, line


@pytest.mark.parametrize(("name", "label"), bad_labels(), ids=lambda text: f"{text:.30}")
def test_malformed_labels_are_errors(name, label):
    task = TASKS[name]
    for function in (task.check_label, task.right_response, task.wrong_response):
        with pytest.raises(ValueError, match=r"a label is .*JSON") as raised:
            function(label)
        assert len(str(raised.value)) < 500


BOX = "\\boxed{%s}"
TAG = "<answer> %s </answer>"
CHANNELS = (
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)
# `<|end|>` alone ends any message, and so none that the template has begun.
CLOSED_ALONE = [marks for marks in MARKS if marks[1] not in ("<|end|>", "<|call|>")]
OWN_FORM = dict.fromkeys(PAPER, BOX) | {"countdown": TAG, "maze": TAG}


@pytest.mark.parametrize("name", PAPER)
def test_the_last_complete_answer_of_a_tasks_own_form_counts(name):
    label, right, wrong = PAPER[name]
    form = OWN_FORM[name]
    other_form = BOX if form == TAG else TAG
    begun = form[:9]
    own_right = form % right
    own_wrong = form % wrong
    for response, status in [
        (f"{own_wrong} or rather {own_right} {begun}", "correct"),
        (own_right + own_wrong, "wrong"),
        (other_form % wrong + own_right, "correct"),
        (own_right + other_form % wrong, "correct"),
        (other_form % right + form % "", "no_answer"),
        (begun + right, "no_answer"),
    ]:
        assert TASKS[name].score(response, label).status == status, response


@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>\n"])
@pytest.mark.parametrize("form", [BOX, f"{BOX}.\n", TAG])
@pytest.mark.parametrize("name", PAPER)
def test_every_task_reads_the_papers_answer_in_a_box_and_in_tags(name, form, end):
    label, right, wrong = PAPER[name]
    task = TASKS[name]
    for answer, status in ((right, "correct"), (wrong, "wrong")):
        response = f"<think> Let me see: {wrong}? </think>\n{form % answer}{end}"
        assert task.score(response, label).status == status
    for hedge in (f"{right} or {wrong}", f"{wrong} or {right}", f"{right}\n\n{wrong}"):
        assert task.score(f"{form % hedge}{end}", label).value == 0
    assert task.score(f"{right}{end}", label).status == "no_answer"
    assert answers.boxed_or_tagged(f"\\boxed 7{end}") == "7"


@pytest.mark.parametrize("name", PAPER)
def test_what_is_behind_the_thoughts_counts(name):
    label, right, wrong = PAPER[name]
    right = OWN_FORM[name] % right
    wrong = OWN_FORM[name] % wrong
    for response, status in [
        (f"<think>{wrong}</think>{right}", "correct"),
        (f"<think>{right}</think>{wrong}", "wrong"),
        (f"{right}</think>{wrong}", "wrong"),  # the template wrote the opening tag
        (f"<think>{right}</think>I am done.", "no_answer"),
        (f"<think>{right}", "no_answer"),
        (f"<think>hm</think>{right}<think>{right}", "no_answer"),
        (f"<think>a <think>b</think> {wrong}</think>{right}", "correct"),
        (f"<think>a</think>{wrong}<think>b</think>{right}", "correct"),
        (f"rethink> {right}", "correct"),
    ]:
        for opening, closing in [*CLOSED_ALONE, CHANNELS]:
            marked = response.replace("<think>", opening).replace("</think>", closing)
            assert TASKS[name].score(marked, label).status == status, marked
