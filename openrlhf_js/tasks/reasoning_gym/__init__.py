"""Reasoning Gym: generated problems of some hundred kinds, from the library of that name.

The library writes the questions, and its scorers grade, in a worker process that can be killed;
`scorers` says which of them are replaced, and why. Several data sets at once make a mixed file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from openrlhf_js import needs
from openrlhf_js.tasks import pool
from openrlhf_js.tasks.answers import last_answer_tag, stated_answer
from openrlhf_js.tasks.record import (
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
EXTRA = "reasoning-gym"
MAX_ANSWER_CHARACTERS = 20_000
TRIES = 400  # items of a data set in a row without a new one
NOT_OFFERED = {
    "boxnet": "its items hold no right answer that its scorer could be checked with",
    "composite": "it mixes the others, as --dataset a,b does",
    "propositional_logic": "a premise that is repeated scores 1",
    "rush_hour": "its items hold no right answer that its scorer could be checked with",
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

    `dataset` names one or several, with commas between them, made with the library's own settings.
    Test gets one question in 8. Items whose answer the scorer does not take for right are left out.
    """
    needs(EXTRA, "reasoning_gym")
    from openrlhf_js.tasks.reasoning_gym import scorers

    names = _names(dataset, scorers.names())
    streams = {
        name: scorers.entries(name, random_of(f"{NAME}/{name}", split, seed)) for name in names
    }
    seen = set[int]()

    def draw(name: str) -> Item | None:
        item = next(streams[name])
        key = f"{name} {item['question']}"
        if not item["answer"] or split_of(key) != split or not is_new(seen, key):
            return None
        return item if scorers.is_sound(label(item)) else None

    yield from in_turn(draw, names, count, TRIES, f"{split} questions of {{}}")


def _names(dataset: str | None, known: list[str]) -> list[str]:
    """The data sets that an option names; ValueError where one is not offered."""
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
    """The library's question, and where the answer is expected."""
    return [{"role": "user", "content": f"{item['question'].strip()}\n\n{REQUEST}"}]


def label(item: Item) -> str:
    """What the scorer needs, as JSON."""
    kept = {name: item[name] for name in ("dataset", "answer", "metadata")}
    text = json.dumps(kept, ensure_ascii=False, default=str)
    _entry(text)
    return text


@lru_cache(maxsize=4096)
def _entry(label: str) -> dict[str, Any]:
    def read(fields: Any) -> dict[str, Any]:
        texts = fields["dataset"], fields["answer"]
        is_text = all(isinstance(text, str) and text.strip() for text in texts)
        if not is_text or not isinstance(fields["metadata"], dict):
            raise ValueError("no item")
        return dict(fields)

    return read_label(label, read, _FORM)


def answer_of(response: str) -> str | None:
    """What the last `<answer>` holds."""
    return stated_answer(response, last_answer_tag)


@with_text_label
def score(response: str, label: str) -> Score:
    """The library's score, from 0 to 1, of the last `<answer>`; `correct` is 1.

    ValueError if the label is malformed, ModuleNotFoundError without the library.
    """
    _entry(label)
    needs(EXTRA, "reasoning_gym")
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in <answer> tags")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored("malformed", f"{len(answer)} characters in <answer> tags")
    return pool.grade("openrlhf_js.tasks.reasoning_gym.scorers:grade", answer, label)


def right_response(label: str) -> str:
    """The item's own answer."""
    return f"<answer>{_entry(label)['answer']}</answer>"


def wrong_response(label: str) -> str:
    """An answer to no question."""
    _entry(label)
    return "<answer>?</answer>"


TASK = Task(
    name=NAME,
    summary="Reasoning Gym: generated problems of some hundred kinds, from the library of that "
    "name",
    right_if="the library's score of its last `<answer>` is 1, and it earns less for less: "
    "[Reasoning Gym](#reasoning-gym)",
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
