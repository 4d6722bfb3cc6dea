"""The graders as OpenRLHF calls them: what reaches a task, and what comes back."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from answer_graders.record import scored
from answer_graders.rewards import response_of, reward_by_datasource, reward_function
from answer_graders.tasks import STATUSES, TASKS, countdown, knights_knaves

REWARD_FILES = Path(__file__).parents[2] / "reward_models"
LABEL = countdown.label({"numbers": [55, 53, 59, 22], "target": 71})
RIGHT = countdown.right_response(LABEL)
WRONG = countdown.wrong_response(LABEL)
PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nMake 3 , as in "
    "<answer> 1 + 2 </answer> .\nBox it: \\boxed{3}<|im_end|>\n<|im_start|>assistant\n"
)


def load(name: str):
    """A reward file as upstream's executor loads it."""
    spec = importlib.util.spec_from_file_location("reward_func", REWARD_FILES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward_func


@pytest.fixture
def grade_with(monkeypatch):
    """Replaces the grader of a task."""

    def install(name, score):
        monkeypatch.setitem(TASKS, name, replace(TASKS[name], score=score))

    return install


@pytest.mark.parametrize("name", sorted(TASKS))
def test_each_reward_file_grades_its_own_task(name, grade_with):
    graded = []

    def score(response, label):
        graded.append((response, label))
        return scored("timeout", "")

    grade_with(name, score)
    result = load(name)(["ask: answer<eos>"], ["ask: "], ["gold"])
    assert graded == [("", "gold"), ("answer", "gold")]  # the label is checked first
    assert result["rewards"].tolist() == [0.0]
    assert result["extra_logs"]["status/timeout"].tolist() == [1.0]


def test_there_is_a_reward_file_for_each_task_and_two_more():
    names = {path.stem for path in REWARD_FILES.glob("*.py")}
    assert names == TASKS.keys() | {"mixed", "second_try"}


def test_rewards_scores_and_logs_hold_one_number_per_response():
    responses = {
        "correct": RIGHT,
        "wrong": WRONG,
        "no_answer": "I give up",
        "malformed": "<answer> 1 + </answer>",
    }
    queries = [PROMPT + response for response in responses.values()]
    result = reward_function("countdown")(queries, [PROMPT] * 4, [LABEL] * 4)
    logs = result["extra_logs"]
    assert result["rewards"].tolist() == result["scores"].tolist() == [1, 0, 0, 0]
    assert logs["accuracy"].tolist() == [1, 0, 0, 0]
    for status in STATUSES:
        expected = [float(status == response_status) for response_status in responses]
        assert logs[f"status/{status}"].tolist() == expected
    assert all(0 < seconds < 5 for seconds in logs["grading_seconds"].tolist())
    statuses = {f"status/{status}" for status in STATUSES}
    assert logs.keys() == statuses | {"accuracy", "grading_seconds"}


def test_answers_of_one_call_are_graded_in_parallel_in_order(grade_with):
    all_at_once = threading.Barrier(10, timeout=10)

    def score(response, label):
        if not response:  # the check of the label
            return scored("no_answer", "")
        all_at_once.wait()
        return scored("correct" if response == label else "wrong", "")

    grade_with("countdown", score)
    responses = [str(i) for i in range(10)]
    labels = [str(i - i % 2) for i in range(10)]
    mixed = partial(reward_by_datasource, datasources=["countdown"] * 10)
    for grade in (reward_function("countdown"), mixed):
        assert grade(responses, [""] * 10, labels)["rewards"].tolist() == [1.0, 0.0] * 5


def test_only_what_follows_the_thoughts_counts():
    """Also where the chat template has opened them."""
    opened = f"{PROMPT}<think>\n"
    pairs = [
        (PROMPT, f"<think>{RIGHT}</think>"),
        (PROMPT, RIGHT),
        (opened, RIGHT),
        (opened, f"{WRONG}</think>{RIGHT}"),
    ]
    prompts = [prompt for prompt, _ in pairs]
    queries = [prompt + response for prompt, response in pairs]
    labels = [LABEL] * 4
    mixed = partial(reward_by_datasource, datasources=["countdown"] * 4)
    for grade in (reward_function("countdown"), mixed):
        assert grade(queries, prompts, labels)["rewards"].tolist() == [0, 1, 0, 1]


def test_a_malformed_label_and_an_unknown_task_are_errors():
    with pytest.raises(ValueError, match="label"):
        reward_function("countdown")([PROMPT + RIGHT], [PROMPT], ["seventy-one"])
    with pytest.raises(ValueError, match=r"'count'; it must be one of .*countdown.*maze"):
        reward_function("count")
    with pytest.raises(ValueError, match="equally many"):
        reward_function("countdown")([PROMPT + RIGHT], [PROMPT], [])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("label", [None, "", ["42"], 4.2, True])
def test_a_missing_label_and_one_of_another_type_are_errors_in_every_task(task, label):
    with pytest.raises(ValueError, match="label"):
        reward_function(task)(["? \\boxed{None}"], ["? "], [label])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("label", [None, 0.5, True, {"answer": "3"}, ["3"], b"3"])
def test_a_score_names_the_type_of_what_is_no_label(task, label):
    problem = f'a label must be text, as in "42", or a whole number, got {type(label).__name__}: '
    with pytest.raises(ValueError, match=re.escape(problem)):
        TASKS[task].score(r"\boxed{3}", label)
    with pytest.raises(ValueError, match="a response must be text, got list: "):
        TASKS[task].score([{"role": "assistant", "content": "3"}], "3")


@pytest.mark.parametrize("task", ["math", "gsm8k", "geometry3k", "questions"])
def test_a_score_takes_whole_numbers(task):
    for label in (3, "3"):
        assert TASKS[task].score(TASKS[task].right_response("3"), label).status == "correct"
        assert TASKS[task].score(TASKS[task].wrong_response("3"), label).value == 0


@pytest.mark.parametrize("task", ["math", "gsm8k", "geometry3k"])
def test_a_worked_solution_is_no_label(task):
    for label in ("#### 3", "1 + 2 = 3\n#### 3"):
        with pytest.raises(ValueError, match="give what follows its last ####"):
            TASKS[task].score(r"\boxed{3}", label)


@pytest.mark.parametrize("task", ["math", "gsm8k", "geometry3k"])
def test_a_whole_number_is_read_as_its_decimal_text(task):
    responses = ["\\boxed{42}", "\\boxed{42.0}", "\\boxed{43}"]
    graded = reward_function(task)(responses, [""] * 3, [42] * 3)
    assert graded["rewards"].tolist() == [1, 1, 0]


def test_mixed_data_is_graded_by_datasource():
    roles = '{"Ann": "knight", "Bob": "knave"}'
    right = knights_knaves.right_response(roles)
    labels = [LABEL, roles, LABEL]
    datasources = ["countdown", "knights_knaves/2", "countdown/3"]
    result = load("mixed")([RIGHT, right, WRONG], [""] * 3, labels, datasources)
    assert result["rewards"].tolist() == [1, 1, 0]
    logs = result["extra_logs"]
    assert logs["accuracy/countdown"].nan_to_num(9).tolist() == [1, 9, 0]
    assert logs["accuracy/knights_knaves"].nan_to_num(9).tolist() == [9, 1, 9]
    assert logs["accuracy"].tolist() == [1, 1, 0]


def test_mixed_data_without_a_known_datasource_is_an_error():
    for none in (None, [""]):
        with pytest.raises(ValueError, match="has no datasource"):
            reward_by_datasource([RIGHT], [""], [LABEL], none)
    with pytest.raises(ValueError, match="'sudoku/4'"):
        reward_by_datasource([RIGHT], [""], [LABEL], ["sudoku/4"])


@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s>", "<|eot_id|>\n", "<eos><pad><pad>"])
@pytest.mark.parametrize("response", ["#### 72", "<answer> 71 </answer>", "2 < 3"])
def test_the_tokens_that_end_a_turn_are_not_part_of_the_response(response, end):
    assert response_of(PROMPT + response + end, PROMPT) == response
    assert response_of(PROMPT + end, PROMPT) == ""
    assert response_of("<|im_start|>", "<|im_start|>") == ""  # the prompt's own stay its own


# Decoding need not give back a prompt's very text


IMAGE = PROMPT.replace("Make 3", "<|image_pad|>Make 3")


@pytest.mark.parametrize(
    "decoded",
    [
        *(f"<s> {IMAGE}", IMAGE.replace("<|image_pad|>", 50 * "<|image_pad|>"), IMAGE[60:]),
        *(IMAGE.replace(" ", ""), IMAGE.replace("\n", " ").replace(".", " ."), f"<s>{IMAGE[9:]} "),
    ],
)
def test_the_response_is_found_behind_what_decoding_makes_of_a_prompt(decoded):
    assert not decoded.startswith(IMAGE)
    assert response_of(f"{decoded}it is {RIGHT}<|im_end|>", IMAGE) == f"it is {RIGHT}"
    with pytest.raises(ValueError, match="end of its prompt"):
        response_of(decoded.replace("assistant", "ASSISTANT") + RIGHT, IMAGE)


def test_the_twin_of_a_lost_tail_is_not_taken_for_it():
    header = "<|im_end|>\n<|im_start|>assistant\n"
    prompt = f"Two and two. {header} \\boxed{{4}} Three and three? {header}"
    lost = prompt[: -len(header)] + "[ASSISTANT]"
    with pytest.raises(ValueError, match="end of its prompt"):
        response_of("<s>" + lost + "six", prompt)
    assert response_of("<s>" + prompt + "six", prompt) == "six"
    assert response_of(prompt.replace("three?", "three!") + "six", prompt) == "six"


SECRET = "\\boxed{secret}"
text = st.text("ab<|> \n.\\{}", max_size=40)


@given(
    before=text,
    after=text,
    header=st.sampled_from(["", "<|im_end|>\n<|im_start|>assistant\n"]),
    edits=st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["", " ", "a", "<s>"])), max_size=4),
    cut=st.integers(0, 20),
    response=text,
)
@example("", "", "", [], 0, "")
@example("b" * 9, "c" * 40, "", [(0.0, "<s>")], 0, "c" * 40)
def test_however_decoding_changes_a_prompt_nothing_before_its_end_gets_to_the_grader(
    before, after, header, edits, cut, response
):
    prompt = header + before + SECRET + after + header
    changed = prompt[cut:]
    for where, put in edits:
        place = int(where * len(changed))
        changed = changed[:place] + put + changed[place + 1 :]
    query = changed + response
    try:
        response = response_of(query, prompt)
    except ValueError:
        return
    assert SECRET not in response
    if changed == prompt:
        assert query.startswith(prompt + response)


def test_the_math_file_does_not_hide_pythons_math():
    """`python -m` puts the current folder first on the path, and Ray puts it on its workers'."""
    program = "import math, random, answer_graders.tasks; print(math.sqrt(9), random.random() < 1)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REWARD_FILES,
        env={"PYTHONPATH": str(REWARD_FILES.parent)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3.0 True\n", done.stderr
