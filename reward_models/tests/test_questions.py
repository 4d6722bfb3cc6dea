"""Questions have one answer each, which alone is right."""

import re
from collections import Counter

import pytest

from answer_graders.tasks import questions


def answered(question: str) -> str:
    """The answer, read from the question's words."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    if "comes after" in question:
        return str(numbers[0] + 1)
    if "times" in question:
        return str(numbers[0] * numbers[1])
    if "largest" in question:
        return str(max(numbers))
    if "last letter" in question:
        return question.removesuffix("?")[-1]
    if "-" in question:
        return str(numbers[0] - numbers[1])
    return str(sum(numbers))


@pytest.mark.parametrize("split", ["train", "test"])
def test_questions_are_right_and_of_all_kinds(split):
    items = list(questions.generate(350, 0, split))
    assert len({item["question"] for item in items}) == 350
    for item in items:
        assert item["answer"] == answered(item["question"])
        assert questions.score(questions.label(item), item["answer"]).value == 1
    counts = Counter(item["kind"] for item in items)
    assert counts.keys() == questions.KINDS.keys()
    assert min(counts.values()) >= 20
    assert list(questions.generate(100, 0, split)) == items[:100]
    other_split = {"train": "test", "test": "train"}[split]
    others = {item["question"] for item in questions.generate(350, 1, other_split)}
    assert not others & {item["question"] for item in items}


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("84", True),
        (" 84\n", True),
        ("84<|im_end|>", True),
        ("<think>7 x 12</think>84", True),
        ("84.", False),
        ("7 times 12 is 84", False),
        ("<think>84", False),
        ("", False),
    ],
)
def test_the_answer_alone_is_right(response, right):
    assert questions.score(response, "84").value == float(right)
    assert (questions.TASK.voted_answer(response) == "84") == right


def test_what_cannot_be_asked_or_graded_is_refused():
    with pytest.raises(ValueError, match="unknown kind 'roots'; choose from next, product"):
        list(questions.generate(1, 0, "train", kinds=["roots"]))
    with pytest.raises(ValueError, match="a label is a number or a letter"):
        questions.score("84", "84.")
    assert questions.prompt({"question": "What is 7 times 12?"}) == [
        {"role": "user", "content": "What is 7 times 12? Answer briefly."}
    ]
