"""GSM8K: grade-school word problems whose answer is one number, after `####` in the data set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from answer_graders import answers, hub
from answer_graders.hub import text
from answer_graders.math import grader
from answer_graders.record import (
    SOURCE,
    BenchmarkRecord,
    Item,
    Message,
    PublishedProblems,
    Score,
    Task,
    with_text_label,
)
from answer_graders.sentences import only_number, plain, stated
from answer_graders.tasks import math

NAME = "gsm8k"
HUB_ID = "openai/gsm8k"
SPLITS: tuple[str, ...] = ("train", "test")

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TEXT = r"((?:[^.!?]|\.(?=[0-9])){1,300}?)"  # of a sentence
_ANSWER = rf"[\s:*]{{0,9}}{_TEXT}[\s*]{{0,20}}\.?[\s*]{{0,20}}"
_SUBJECT = r"(?:the |my )?(?:final |correct )?answer"
_STEP = re.compile(r"\**step [0-9]", re.IGNORECASE)
_HEADING = re.compile(rf"\**{_SUBJECT}[\s:*]*", re.IGNORECASE)
_HEADED = re.compile(rf"\**{_SUBJECT}(?![a-z])(?: is)?{_ANSWER}", re.IGNORECASE)
_BEFORE = r"(?:.*[.!?:;]\s)?\W{0,4}"  # earlier sentences, and marks such as bold stars
_CONCLUSION = r"(?:so|thus|hence|therefore),?\s"
_SENTENCE = re.compile(
    rf"{_BEFORE}(?:{_CONCLUSION})?{_SUBJECT}\**(?: is|:){_ANSWER}", re.IGNORECASE
)
_CONCLUDING = re.compile(rf"{_BEFORE}{_CONCLUSION}{_TEXT}\.[\s*]{{0,20}}", re.IGNORECASE)
_LONGEST_SENTENCE = 600  # characters, with the marks around it


def load(split: str, source: str = HUB_ID) -> Iterator[Item]:
    """The items of the data set's own split, each question once: `question` and `answer`.

    `answer` is a worked solution that ends in `#### ` and the number; `source` is as in `hub.rows`.
    """
    return hub.distinct(
        rows=hub.rows(source, split, ("question", "answer"), "main"),
        name=source,
        item=lambda row: {"question": text(row, "question"), "answer": text(row, "answer")},
        problem=lambda item: item["question"],
        gold=label,
    )


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, as for the paper's other mathematics."""
    return math.prompt_for(item["question"])


def label(item: Item) -> str:
    """The number after the last `####`, without thousands commas."""
    gold = (answers.last_hashes(item["answer"]) or "").replace(",", "")
    if not _NUMBER.fullmatch(gold):
        raise ValueError(f"an answer must end in '#### ' and a number, not in {gold[-40:]!r}")
    return gold


@with_text_label
def score(response: str, label: str) -> Score:
    """Grades the number that `answer_of` finds; ValueError if the label is no number."""
    if not _is_number(label):
        raise ValueError(
            f"the label must be a number such as 7, not {label!r:.80}; of a worked solution give "
            "what follows its last ####"
        )
    return grader.grade(answer_of(response), label)


@lru_cache(maxsize=1 << 15)
def _is_number(label: str) -> bool:
    return bool(_NUMBER.fullmatch(label.replace(",", "")))


def answer_of(response: str) -> str | None:
    """The answer in the last box, else in `<answer>`, else after `####`, else in the last sentence.

    The prompt asks for the box, so it counts even before a `####`, which may be a Markdown heading.
    """
    response = answers.without_end_marks(response)
    return answers.stated_answer(
        response, answers.last_boxed, answers.last_answer_tag, _after_hashes, _in_last_sentence
    )


def _after_hashes(response: str) -> str | None:
    """The text after the last `####`; after a heading such as `Final Answer`, all text below it.

    None if a step of the solution has the heading.
    """
    line = answers.last_hashes(response)
    if not line or len(line) > _LONGEST_SENTENCE:
        return line
    if _STEP.match(line):
        return None
    if not _HEADING.match(line):
        return stated(line)
    headed = _HEADED.fullmatch(response[response.rindex(line) :][:_LONGEST_SENTENCE])
    if headed:
        return stated(headed[1])
    return None if _HEADING.fullmatch(line) else line


def _in_last_sentence(response: str) -> str | None:
    """The answer that the last sentence states: "The answer is 7, ...", "So she has 7 pens."."""
    line = plain(response[-_LONGEST_SENTENCE:].rpartition("\n")[2])
    sentence = _SENTENCE.fullmatch(line)
    if sentence:
        return stated(sentence[1])
    conclusion = _CONCLUDING.fullmatch(line)
    return conclusion and only_number(conclusion[1])


TASK = Task(
    name=NAME,
    summary="GSM8K: grade-school word problems whose answer is one number",
    right_if="the number in its last `\\boxed{}` equals the gold one; without a box the last "
    '`<answer>` counts, then what follows the last `####`, then a last sentence "The answer is '
    '...", or "So ..." with one number',
    label_form="the gold number",
    problems=PublishedProblems(load=load, splits=SPLITS, options={"source": SOURCE}),
    prompt=prompt,
    label=label,
    score=score,
    right_response=math.right_response,
    wrong_response=math.wrong_response,
    reward_file="gsm8k.py",
    voted_answer=answer_of,
    same_answer=math.same_answer,
    benchmarks={
        # The test split, 1,319 problems (Cobbe et al., 2021). The paper validates on it with 10
        # samples at temperature 0.5, unlike everything else. It uses the "official template of
        # GSM8K", which it does not show; the prompt here asks for the answer in \boxed{}, as in all
        # mathematics.
        "gsm8k": BenchmarkRecord(samples=10, temperature=0.5),
    },
)
