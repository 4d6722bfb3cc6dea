"""What a reward server may answer for one response, read without trusting it."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from openrlhf_js.plugin.errors import BadReward

LARGEST_LOGS = 64  # more figures than that for one response are no logs


class BadAnswer(Exception):
    """The server answered, but with nothing that a reward server answers."""


class Answer(NamedTuple):
    """The reward of one response, the score for filtering and evaluation, and figures to log."""

    reward: float
    score: float
    logs: dict[str, float]


def read_answer(body: bytes) -> Answer:
    """The answer to a request with one query: {"rewards": [r], "scores": [s], "extra_logs": {}}.

    A number may stand with or without a list of one around it. `scores` may be missing, and is the
    reward then. A figure of `extra_logs` that is not one finite number is left out.

    Args:
        body: what came with status 200, at most some hundred kilobytes.

    Raises:
        BadAnswer: it is not of that form; another try or another server may do better.
        BadReward: it is of that form, but the reward is null, NaN or infinite.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):  # of which "not UTF-8" is one
        raise BadAnswer(f"not JSON: {excerpt(body)}") from None
    if not isinstance(content, dict) or "rewards" not in content:
        raise BadAnswer(f'no JSON object with "rewards": {excerpt(body)}')
    reward = _number(content["rewards"], "reward")
    score = content.get("scores")
    logs = content.get("extra_logs")
    return Answer(
        reward,
        reward if score is None else _number(score, "score"),
        _figures(logs) if isinstance(logs, dict) else {},
    )


def excerpt(body: bytes) -> str:
    """The beginning of a body, printable and on one line."""
    return repr(" ".join(body[:300].decode(errors="replace").split())[:150])


def _number(value: Any, what: str) -> float:
    if isinstance(value, list):
        if len(value) != 1:
            raise BadAnswer(f"{len(value)} {what}s came back for one response")
        value = value[0]
    if value is None:
        raise BadReward(f"the {what} is null")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadAnswer(f"the {what} is {str(value)[:100]!r} ({type(value).__name__}), no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadReward(f"the {what} is {number}")
    return number


def _figures(logs: dict[str, Any]) -> dict[str, float]:
    figures = {}
    for key, value in list(logs.items())[:LARGEST_LOGS]:
        try:
            figures[key] = _number(value, "figure")
        except (BadAnswer, BadReward):
            continue
    return figures
