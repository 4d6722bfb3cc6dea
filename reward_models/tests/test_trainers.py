"""The graders as rewards of other trainers, called as these call them.

With the trainers themselves: tests/trainers/.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from thoughts import MARKS

from answer_graders.record import STATUSES, scored
from answer_graders.tasks import TASKS
from answer_graders.trainers import CompletionReward, TraceReward, compute_score

RIGHT, WRONG, NONE = r"Thus \boxed{\frac{1}{2}}.", r"\boxed{2}", "I give up"


def say(*contents: Any, role: str = "assistant") -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for content in contents]


def test_completions_are_texts_or_messages() -> None:
    reward = CompletionReward("math", label="solution")
    texts = [RIGHT, WRONG, NONE, RIGHT]
    columns = {"solution": ["0.5"] * 4, "trainer_state": object()}
    assert reward(prompts=["?"] * 4, completions=texts, **columns) == [1, 0, 0, 1]
    assert reward(texts, **columns) == [1, 0, 0, 1]  # as ms-swift calls it
    messages = [say(text) for text in texts]
    assert reward(prompts=[say("?", role="user")] * 4, completions=messages, **columns) == [
        1,
        0,
        0,
        1,
    ]


def test_tokens_that_end_a_turn_are_no_part_of_a_response() -> None:
    assert CompletionReward("questions")(["13<|im_end|>\n", "13 ok"], label=["13", "13"]) == [1, 0]


@pytest.mark.parametrize(
    ("messages", "value"),
    [
        (say(WRONG, RIGHT), 1),
        (say(RIGHT, WRONG), 0),
        (say([{"type": "text", "text": RIGHT}]), 1),
        (say(None), 0),
        ([*say(WRONG), *say(RIGHT, role="tool")], 0),
        ([*say(RIGHT), *say("ok", role="tool")], 0),
        ([*say(RIGHT), {}], 0),
        ([], 0),
    ],
)
def test_only_the_models_last_message_is_graded(messages: Any, value: float) -> None:
    assert CompletionReward("math")([messages], label=["0.5"]) == [value]


def test_each_row_is_graded_by_its_own_task() -> None:
    """In the order of the rows, where no task is named for all of them."""
    reward = CompletionReward(datasource="source")
    sources = ["math/a", "gsm8k", "questions", "math"]
    texts = [RIGHT, "So she has 7 pens.", "B", WRONG]
    assert reward(texts, label=["0.5", 7, "B", "0.5"], source=sources) == [1, 1, 1, 0]


def test_completions_are_graded_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    all_at_once = threading.Barrier(10, timeout=10)

    def score(response: str, label: str) -> Any:
        if response:  # not the check of the label
            all_at_once.wait()
        return scored("correct" if response == label else "wrong", "")

    monkeypatch.setitem(TASKS, "questions", replace(TASKS["questions"], score=score))
    texts = [str(number) for number in range(10)]
    labels = [str(number - number % 2) for number in range(10)]
    assert CompletionReward("questions")(texts, label=labels) == [1.0, 0.0] * 5


def test_statuses_are_logged_as_shares() -> None:
    logged: dict[str, float] = {}
    texts = [RIGHT, WRONG, NONE, WRONG]
    CompletionReward("math")(texts, log_metric=logged.__setitem__, label=["0.5"] * 4)
    shares = {"math/correct": 0.25, "math/wrong": 0.5, "math/no_answer": 0.25}
    assert logged == {f"math/{status}": 0 for status in STATUSES} | shares


def test_a_thought_that_the_prompt_opens_earns_nothing() -> None:
    """Whether the prompt, the beginning of the model's message or the chat template opens it."""
    for opening, closing in MARKS:
        told = CompletionReward("math", prompt_end=f"{opening}\n")
        untold = CompletionReward("math")
        for text, value in ((RIGHT, 0), (f"{closing}{RIGHT}", 1)):
            label = {"label": ["0.5"]}
            assert told([text], **label) == [value], opening
            assert untold([text], [f"Q {opening}\n"], **label) == [value], opening
            assert untold([say(text)], [[*say("Q", role="user"), *say(opening)]], **label) == [
                value
            ]
            graded = compute_score("math", text, "0.5", prompt_end=opening)
            assert graded["score"] == value
    with pytest.raises(ValueError, match="'Answer:' opens no thought"):
        CompletionReward("math", prompt_end="Answer:")


@pytest.mark.parametrize(
    ("task", "columns", "problem"),
    [
        ("math", {}, "a row has no 'label'; name the column"),
        (None, {"label": ["7"]}, "a row has no 'datasource'"),
        ("math", {"label": [None]}, "a label must be text"),
        ("math", {"label": [0.5]}, "a label must be text"),
        ("math", {"label": [""]}, "label"),
        ("countdown", {"label": ["seventy"]}, "label"),
        (None, {"label": ["7"], "datasource": [None]}, "datasource must name a task, got None"),
        (None, {"label": ["7"], "datasource": ["openai/gsm8k"]}, "no task grades .*openai/gsm8k"),
    ],
)
def test_what_cannot_be_graded_is_an_error(task: Any, columns: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CompletionReward(task)(["7"], **columns)
    data = {name: values[0] for name, values in columns.items()}
    trace = SimpleNamespace(last_reply="7", task=SimpleNamespace(data=data))
    with pytest.raises(ValueError, match=problem):
        asyncio.run(TraceReward(task)(trace))
    if "label" in columns and (task or "datasource" in columns):
        with pytest.raises(ValueError, match=problem):
            compute_score(data.get("datasource"), "7", data["label"], task=task)


def test_an_unknown_task_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="no task grades the datasource 'maths'"):
        CompletionReward("maths")


def test_a_reward_is_known_by_its_task_and_travels_to_other_processes() -> None:
    reward = pickle.loads(pickle.dumps(CompletionReward("math", label="answer")))
    assert reward.__name__ == "math" and reward([RIGHT], answer=["0.5"]) == [1]
    assert CompletionReward().__name__ == "answer"


def test_verls_function_says_what_it_is_worth_and_why() -> None:
    """`acc` is what verl's validation reports."""
    right = {"score": 1.0, "acc": 1.0, "status": "correct"}
    assert compute_score("math/math500", RIGHT, "0.5", {"index": 3}) == right
    assert compute_score("DigitalLearning/MATH", RIGHT, "0.5", task="math") == right
    none = {"score": 0.0, "acc": 0.0, "status": "no_answer"}
    assert compute_score("math", NONE, "0.5") == none
