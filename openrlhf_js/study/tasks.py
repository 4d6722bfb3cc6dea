"""The tasks of a study: the quickstart's, two more for tiny models, one for a pretrained model."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable

from openrlhf_js.tasks import GRADED
from openrlhf_js.tasks.record import GeneratedProblems, Item, Score, scored
from openrlhf_js.tiny.tasks import DIGITS, END, LENGTHS, TASKS, TinySplit, TinyTask, sort

PRETRAINED = "questions"  # the task of --model
INLINE = ("reverse", "modsum")  # without a grader for the stack
MODULUS = 4
TRAINING_QUESTIONS = 5000


def _digits_task(
    name: str, right_response: Callable[[str], str], score: Callable[[str, str], Score]
) -> TinyTask:
    """A task that turns digits into as many others, as `sort` does; the label is the response."""
    return TinyTask(
        tokens=(*dict.fromkeys(f"{name}()="), *DIGITS),
        slips=tuple(DIGITS),
        slip=sort.slip,
        warm_start_steps=300,
        max_prompt_tokens=len(f"{name}()=") + max(LENGTHS),
        max_new_tokens=max(LENGTHS) + 1,
        grader="",
        split=sort.split,
        prompt=lambda digits: f"{name}({digits})=",
        label=right_response,
        right_response=str,
        score=score,
    )


# Reverse: `reverse(7294)=` -> `4927`. Each digit in its place earns its share.


def _reverse_score(response: str, label: str) -> Score:
    digits, end, _ = response.partition(END)
    if not end or len(digits) != len(label):
        return scored("wrong", f"{response!r:.40}, expected {len(label)} digits")
    right = sum(given == expected for given, expected in zip(digits, label, strict=True))
    if right == len(label):
        return scored("correct", digits)
    return Score(right / len(label), "wrong", f"{right} of {len(label)} digits")


reverse = _digits_task("reverse", lambda digits: digits[::-1], _reverse_score)


# Running sums modulo 4: `modsum(7294)=` -> `3122`. A slip spoils all that follows.


def running_sums(digits: str) -> str:
    """The sums of the first, the first two, ... digits modulo 4."""
    sums = []
    total = 0
    for digit in digits:
        total = (total + int(digit)) % MODULUS
        sums.append(str(total))
    return "".join(sums)


def _exact_score(response: str, label: str) -> Score:
    right = response == label + END
    return scored("correct" if right else "wrong", f"{response!r:.40}, expected {label}")


modsum = _digits_task("modsum", running_sums, _exact_score)


# Questions, for a pretrained model with its own tokenizer and chat template.

QUESTIONS = GRADED["questions"]


def _questions_split(seed: int, held_out: int) -> TinySplit:
    assert isinstance(QUESTIONS.problems, GeneratedProblems)
    generate = QUESTIONS.problems.generate
    items_by_kind: dict[Hashable, list[Item]] = {}
    for item in generate(TRAINING_QUESTIONS, seed, "train"):
        items_by_kind.setdefault(item["kind"], []).append(item)
    return TinySplit(list(items_by_kind.values()), list(generate(held_out, seed, "test")))


questions = TinyTask(
    tokens=(),
    slips=(),
    slip=0.0,
    warm_start_steps=24,
    max_prompt_tokens=64,
    max_new_tokens=6,
    grader=QUESTIONS.reward_file,
    split=_questions_split,
    prompt=lambda item: QUESTIONS.prompt(item)[0]["content"],
    label=QUESTIONS.label,
    right_response=QUESTIONS.right_response,
    score=QUESTIONS.score,
)

STUDY_TASKS = ChainMap[str, TinyTask](
    {"reverse": reverse, "modsum": modsum, PRETRAINED: questions}, TASKS
)
