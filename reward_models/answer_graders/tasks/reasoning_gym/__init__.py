"""Reasoning Gym: generated problems of 85 kinds, from the library of that name.

The library writes the questions, and its scorers grade in a worker process that can be killed.
A data set is refused by name if its scorer runs answers as code, or gives wrong answers the full
score; `research/benchmarks/reasoning_gym_scorers.py` finds these. Several data sets make a mixed
file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from answer_graders import pool
from answer_graders.answers import last_answer_tag, stated_answer
from answer_graders.programs import needs
from answer_graders.record import (
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Split,
    Task,
    in_turn,
    is_new,
    random_of,
    read_label,
    scored,
    split_of,
    with_text_label,
)

NAME = "reasoning_gym"
EXTRA = "answer-graders[reasoning-gym]"
MAX_ANSWER_CHARACTERS = 20_000
TRIES = 400  # items of a data set in a row without a new one
RUNS_ANSWERS = "its scorer runs the answer as Python"
TAKES_WRONG = "its scorer gives 1 to wrong answers"
UNCHECKED = "its items hold no right answer that its scorer could be checked with"
NOT_OFFERED = {
    "binary_matrix": RUNS_ANSWERS,
    "boxnet": UNCHECKED,
    "coin_flip": TAKES_WRONG,
    "complex_arithmetic": TAKES_WRONG,
    "composite": "it mixes the others, as --dataset a,b does",
    "countdown": f"{RUNS_ANSWERS}; the task `countdown` has such problems",
    "fraction_simplification": TAKES_WRONG,
    "game_of_life_halting": TAKES_WRONG,
    "gsm_symbolic": f"{TAKES_WRONG}; the task `gsm8k` has such problems",
    "intermediate_integration": RUNS_ANSWERS,
    "knights_knaves": f"{TAKES_WRONG}; the task `knights_knaves` has such problems",
    "n_queens": RUNS_ANSWERS,
    "polynomial_equations": TAKES_WRONG,
    "polynomial_multiplication": RUNS_ANSWERS,
    "propositional_logic": "its scorer gives 1 to a premise that is repeated",
    "puzzle24": f"{RUNS_ANSWERS}; the task `countdown` has such problems",
    "rush_hour": UNCHECKED,
    "simple_integration": RUNS_ANSWERS,
    "spell_backward": TAKES_WRONG,
    "spiral_matrix": RUNS_ANSWERS,
    "string_insertion": RUNS_ANSWERS,
}
REQUEST = (
    "Reason step by step. Then give the final answer, and nothing else, inside <answer> </answer> "
    "tags."
)
_FORM = 'JSON with the "dataset", the "answer" and the "metadata" of an item'


def generate(
    count: int, seed: int, split: Split = "train", dataset: str | None = None
) -> Iterator[Item]:
    """Items {"dataset", "question", "answer", "metadata"}, equally many of each data set.

    `dataset` names one or several, separated by commas, generated with the library's defaults. Test
    gets one question in 8. Items whose own answer the scorer does not accept are left out.
    """
    needs(EXTRA, "reasoning_gym")
    from answer_graders.tasks.reasoning_gym import library

    names = _names(dataset, library.names())
    streams = {
        name: library.entries(name, random_of(f"{NAME}/{name}", split, seed)) for name in names
    }
    seen = set[int]()

    def draw(name: str) -> Item | None:
        item = next(streams[name])
        key = f"{name} {item['question']}"
        if not item["answer"] or split_of(key) != split or not is_new(seen, key):
            return None
        return item if library.is_sound(label(item)) else None

    yield from in_turn(draw, names, count, TRIES, f"{split} questions of {{}}")


def _names(dataset: str | None, known: list[str]) -> list[str]:
    """The data sets named by the option; ValueError if one is not offered."""
    offered = [name for name in known if name not in NOT_OFFERED]
    names = [name.strip() for name in (dataset or "").split(",") if name.strip()]
    if not names:
        raise ValueError(f"dataset: name one or several of {', '.join(offered)}")
    for name in names:
        if name in NOT_OFFERED:
            raise ValueError(f"the data set {name!r} is not offered: {NOT_OFFERED[name]}")
        if name not in offered:
            raise ValueError(f"no data set {name!r}; there are {', '.join(offered)}")
    return list(dict.fromkeys(names))


def prompt(item: Item) -> list[Message]:
    """The library's question, and where to put the answer."""
    return [{"role": "user", "content": f"{item['question'].strip()}\n\n{REQUEST}"}]


def label(item: Item) -> str:
    """The data set, answer and metadata for the scorer, as JSON."""
    kept = {name: item[name] for name in ("dataset", "answer", "metadata")}
    text = json.dumps(kept, ensure_ascii=False, default=str)
    _entry(text)
    return text


@functools.lru_cache(maxsize=4096)
def _entry(label: str) -> dict[str, Any]:
    def read(fields: Any) -> dict[str, Any]:
        texts = fields["dataset"], fields["answer"]
        is_text = all(isinstance(text, str) and text.strip() for text in texts)
        if not is_text or not isinstance(fields["metadata"], dict):
            raise ValueError("no item")
        return dict(fields)

    return read_label(label, read, _FORM)


def answer_of(response: str) -> str | None:
    """The content of the last `<answer>`."""
    return stated_answer(response, last_answer_tag)


@with_text_label
def score(response: str, label: str) -> Score:
    """The library's score, from 0 to 1, of the last `<answer>`; `correct` is 1.

    ValueError if the label is malformed, ModuleNotFoundError without the library.
    """
    name = _entry(label)["dataset"]
    if name in NOT_OFFERED:
        raise ValueError(f"the data set {name!r} is not offered: {NOT_OFFERED[name]}")
    needs(EXTRA, "reasoning_gym")
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    return pool.grade("answer_graders.tasks.reasoning_gym.library:score", answer, label)


def right_response(label: str) -> str:
    """The item's own answer."""
    return f"<answer>{_entry(label)['answer']}</answer>"


def wrong_response(label: str) -> str:
    """An answer that is right for no question."""
    _entry(label)
    return "<answer>?</answer>"


TASK = Task(
    name=NAME,
    summary="Reasoning Gym: generated problems of 85 kinds, from the library of that name",
    right_if="the library's score of its last `<answer>` is 1; other answers may earn a part",
    label_form="JSON: the data set, the answer, what its scorer needs",
    problems=GeneratedProblems(
        generate=generate,
        default_counts={"train": 2_000, "test": 200},
        options={
            "dataset": Option(
                str | None,
                "data set of the library, or several with commas between them "
                "(reward_models/README.md)",
            ),
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: str(item["dataset"]),
    reward_file="reasoning_gym.py",
    voted_answer=answer_of,
)
