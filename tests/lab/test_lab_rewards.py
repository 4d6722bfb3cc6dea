from pathlib import Path

import numpy as np
import pytest
import torch

from openrlhf_js.lab.rewards import Grader, RewardFailed, file_grader, task_grader

QUERIES, PROMPTS, LABELS = ["ab", "abb"], ["a", "a"], ["1", "2"]


def grader(answer):
    return Grader(lambda *_: answer, "r.py", "sha")


@pytest.mark.parametrize(
    "answer",
    [
        {"rewards": torch.tensor([1, 0.5]), "scores": None},
        {"rewards": torch.tensor([[1.0], [0.5]], requires_grad=True)},
        {"rewards": [1, 0.5]},
        [torch.tensor(1.0), 0.5],
        np.array([1, 0.5], dtype=np.float32),
    ],
)
def test_what_a_reward_function_may_answer(answer):
    found = grader(answer).grade(QUERIES, PROMPTS, LABELS)
    assert found.tolist() == [1, 0.5]
    assert found.dtype == np.float64


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_a_reward_that_is_none(bad):
    message = r"r.py: the reward is (nan|inf), which must be finite|must be a finite number"
    with pytest.raises(RewardFailed, match=message) as failed:
        grader([1.0, bad]).grade(QUERIES, PROMPTS, LABELS)
    assert "the prompt ending in 'a'" in str(failed.value)
    assert "the response 'bb'" in str(failed.value)


@pytest.mark.parametrize("answer", [[1.0], [1.0, 2.0, 3.0], torch.ones(2, 2)])
def test_not_one_for_each(answer):
    with pytest.raises(RewardFailed, match=r"for 2 responses; reward_func must give one"):
        grader(answer).grade(QUERIES, PROMPTS, LABELS)


@pytest.mark.parametrize("answer", [None, {"scores": 1}, ["x", "y"]])
def test_no_rewards_at_all(answer):
    with pytest.raises(RewardFailed, match=r"r.py: \w+Error"):
        grader(answer).grade(QUERIES, PROMPTS, LABELS)


def test_the_response_that_is_to_blame_is_named():
    def fails(queries, prompts, labels):
        return [1 / (label != "2") for label in labels]

    with pytest.raises(RewardFailed, match=r"(?s)ZeroDivisionError.*the response 'bb'"):
        Grader(fails, "r.py", "sha").grade(QUERIES, PROMPTS, LABELS)


def test_of_no_queries():
    assert grader(None).grade([], [], []).shape == (0,)


def test_a_file(tmp_path):
    path = tmp_path / "r.py"
    path.write_text("def reward_func(queries, prompts, labels):\n    return [1.0] * len(queries)\n")
    found = file_grader(path)
    assert found.grade(QUERIES, PROMPTS, LABELS).tolist() == [1, 1]
    assert found.name == str(path)
    path.write_text(path.read_text() + "\n")
    assert file_grader(path).sha256 != found.sha256


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.txt", "", "is no Python file"),
        ("absent.py", None, "is no Python file"),
        ("r.py", "1 / 0", "cannot be imported: ZeroDivisionError"),
        ("r.py", "def (", "cannot be imported: SyntaxError"),
        ("r.py", "x = 1", "has no reward_func"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        file_grader(tmp_path / name)


def test_an_address():
    with pytest.raises(ValueError, match="takes a Python file with `reward_func`"):
        file_grader(Path("http://127.0.0.1:5000/get_reward"))


def test_a_task():
    found = task_grader("countdown")
    query = "Make 3 of 1 and 2, please<answer>1 + 2</answer>"
    prompt = "Make 3 of 1 and 2, please"
    assert found.grade([query], [prompt], ['{"numbers": [1, 2], "target": 3}']).tolist() == [1]
    assert found.name == "task countdown"
