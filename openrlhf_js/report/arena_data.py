"""The questions of an arena as the page holds them: an index, and the texts in packed groups.

Packed is JSON, then gzip, then base64, so that no text can end the element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.browse import without_thinking

LARGEST_BYTES = 19_000_000  # of packed texts
GROUP = 50  # questions that are unpacked together
TITLE = 120  # characters of a question in the list
LEVEL = 6


class Packed(NamedTuple):
    """What the page holds."""

    listing: str
    """Everything but the texts."""
    groups: list[str]
    notes: list[str]
    """What had to be left out, in words."""

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.listing) + sum(map(len, self.groups))


def fitted(data: dict[str, Any], largest_bytes: int = LARGEST_BYTES) -> Packed:
    """The data packed, and made to fit: without thinking, and then without the last models.

    Args:
        data: of `browse.questions_of`.
        largest_bytes: one model is shown in any case.
    """
    notes: list[str] = []
    found = packed(data)
    if found.size > largest_bytes and (bare := without_thinking(data)) != data:
        notes.append("What the models thought before they answered is left out: too large.")
        data, found = bare, packed(bare)
    models = len(data["models"])
    while found.size > largest_bytes and models > 1:
        models = max(1, min(models - 1, int(models * largest_bytes / found.size)))
        found = packed(of_models(data, models))
    if models < len(data["models"]):
        left_out = ", ".join(data["models"][models:])
        notes.append(
            f"Not among the questions, since the page would be too large: {left_out}. Choose by "
            "--models which ones are."
        )
    return found._replace(notes=notes)


def packed(data: dict[str, Any]) -> Packed:
    """All of it, however large."""
    questions = data["questions"]
    index = {
        "models": data["models"],
        "judges": data["judges"],
        "group": GROUP,
        "questions": [_entry(question) for question in questions],
    }
    texts = [_texts(question) for question in questions]
    groups = [_pack(texts[start : start + GROUP]) for start in range(0, len(texts), GROUP)]
    return Packed(_pack(index), groups, [])


def of_models(data: dict[str, Any], count: int) -> dict[str, Any]:
    """The first models alone, and the questions that they have."""
    kept = {str(place) for place in range(count)}
    questions = [
        {**each, "models": {place: own for place, own in each["models"].items() if place in kept}}
        for each in data["questions"]
    ]
    return {
        **data,
        "models": data["models"][:count],
        "questions": [each for each in questions if each["models"]],
    }


def _entry(question: dict[str, Any]) -> dict[str, Any]:
    """What the list and the filters need: verdicts by model and judge, None without one."""
    return {
        "uid": question["uid"],
        "category": question["category"],
        "cluster": question["cluster"],
        "title": " ".join(question["prompt"][: 4 * TITLE].split())[:TITLE],
        "baseline": question["baseline"]["name"],
        "models": {
            place: {judge: [game and game[0] for game in games] for judge, games in judged.items()}
            for place, judged in _judged(question)
        },
    }


def _texts(question: dict[str, Any]) -> dict[str, Any]:
    """The texts; those of a game are None where it was not held."""
    return {
        "prompt": question["prompt"],
        "baseline": question["baseline"],
        "models": {
            place: {
                **question["models"][place],
                "judged": {
                    judge: [None if game is None else game[1] for game in games]
                    for judge, games in judged.items()
                },
            }
            for place, judged in _judged(question)
        },
    }


def _judged(question: dict[str, Any]) -> Sequence[tuple[str, dict[str, Any]]]:
    return [(place, own["judged"]) for place, own in question["models"].items()]


def _pack(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, LEVEL, mtime=0)).decode()
