"""One line of a file, of either schema, as a record; the errors say what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from openrlhf_js.evaluation.arena.benches import baseline_of
from openrlhf_js.evaluation.arena.records import (
    Answer,
    Game,
    Judgment,
    Question,
    Style,
    file_name,
)
from openrlhf_js.evaluation.arena.verdict import MEANING

Row = Mapping[str, Any]
Say = Callable[[str], None]  # told what is odd about the line, and what happens now

OLDER_CATEGORY = "arena-hard-v0.1"  # the only bench that was ever judged in the older schema
_FAILED = "$ERROR$"  # what the older program writes as the answer then; the newer one writes null
_MOST = 2**53  # of anything counted: more is no count, and no float holds it


def question(row: Row, say: Say) -> Question:
    """A line of `question.jsonl`.

    Raises:
        ValueError: something needed is missing or of the wrong type.
    """
    prompt: Any = row.get("prompt")
    if prompt is None:
        prompt = _only_turn(row)
    if not isinstance(prompt, str):
        raise ValueError(f"the prompt must be text, not {type(prompt).__name__}")
    category = _text(row, "category")
    return Question(_uid(row), category, prompt, _text(row, "cluster", "subcategory", default=""))


def answer(row: Row, say: Say) -> Answer:
    """A line of `model_answer/MODEL.jsonl`; counts of its style that cannot be read are left out.

    Raises:
        ValueError: something needed is missing or of the wrong type.
    """
    content = _content(row)
    thought: Any = ""
    if isinstance(content, dict):
        thought = content.get("thought") or ""
        content = content.get("answer")
    if content is None or content == _FAILED:
        raise ValueError("there is no answer: the call of the model had failed")
    if not isinstance(content, str) or not isinstance(thought, str):
        raise ValueError("the answer must be text")
    try:
        counts = style(row.get("metadata", row.get("conv_metadata")))
    except ValueError as error:
        say(f"{error}; the answer is kept without its style")
        counts = None
    return Answer(
        uid=_uid(row),
        model=_text(row, "model", "model_id"),
        text=content,
        style=counts,
        thinking=thought,
        ans_id=_text(row, "ans_id", "answer_id", default=""),
    )


def _content(row: Row) -> Any:
    if "messages" in row:
        messages = _list(row, "messages")
        if not messages or not isinstance(messages[-1], dict):
            raise ValueError("'messages' must end with the model's message")
        return messages[-1].get("content")
    choices = _list(row, "choices")
    if not choices or not isinstance(choices[0], dict):
        raise ValueError("'choices' must hold at least one choice with its turns")
    return _only_turn(choices[0])


def _only_turn(row: Row) -> Any:
    turns = _list(row, "turns")
    if len(turns) != 1:
        raise ValueError(f"{len(turns)} turns, where one is understood")
    turn: Any = turns[0]
    return turn.get("content") if isinstance(turn, dict) else turn


def style(metadata: Any) -> Style | None:
    """The counts of an answer; None where there are none.

    Raises:
        ValueError: there are some, but not all four, or they are no counts.
    """
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise ValueError("'metadata' must hold counts by name")
    names = ("token_len", "header_count", "list_count", "bold_count")
    lacks = [name for name in names if name not in metadata]
    if lacks:
        raise ValueError(f"'metadata' lacks {', '.join(lacks)}")
    return Style(*(_count(metadata[name], name) for name in names))


def _count(value: Any, name: str) -> int:
    values = list(value.values()) if isinstance(value, dict) else [value]
    for each in values:
        whole = isinstance(each, int | float) and not isinstance(each, bool)
        if not whole or not 0 <= each <= _MOST or each != int(each):
            raise ValueError(f"'metadata' must hold counts; {name} holds {each!r:.40}")
    return sum(map(int, values))


def judgment(row: Row, say: Say) -> Judgment:
    """A line of `model_judgment/JUDGE/MODEL.jsonl`.

    The older schema names neither category nor baseline: they are what they were officially.

    Raises:
        ValueError: something needed is missing or of the wrong type.
    """
    games = _list(row, "games")
    if len(games) != 2:
        raise ValueError(f"{len(games)} games, where two are understood")
    category = _text(row, "category", default=OLDER_CATEGORY)
    model = _text(row, "model", "model_id")
    baseline = _text(row, "baseline", default=baseline_of(category))
    for name in filter(None, (model, baseline)):
        file_name(name)  # or the line is left out
    return Judgment(
        uid=_uid(row),
        category=category,
        judge=_text(row, "judge", default=""),
        model=model,
        baseline=baseline,
        games=(_game(games[0], say), _game(games[1], say)),
    )


def _game(game: Any, say: Say) -> Game | None:
    if game is None:
        return None
    if not isinstance(game, dict):
        raise ValueError(f"a game must be an object or null, not {type(game).__name__}")
    text = game.get("judgment")
    if isinstance(text, dict):
        text = text.get("answer")
    score = game.get("score")
    if text is not None and not isinstance(text, str):
        raise ValueError("a game's 'judgment' must be text")
    if score is not None and (not isinstance(score, str) or score not in MEANING):
        say(f"the score {score!r:.40} is no verdict; the game counts as one without")
        score = None
    return Game(None if score is None else MEANING[score], text or "")


def _uid(row: Row) -> str:
    return _text(row, "uid", "question_id")


def _text(row: Row, *names: str, default: str | None = None) -> str:
    """The value of the first of several names that is there; numbers are taken as their text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and (value or default is not None):
            return value.encode(errors="replace").decode()  # half a character has no UTF-8
        if value is not None:
            raise ValueError(f"{name!r} must be text, not {value!r:.40}")
    if default is None:
        seen = ", ".join(map(str, list(row)[:12])) or "none"
        raise ValueError(f"no {' or '.join(map(repr, names))}; keys seen: {seen:.200}")
    return default


def _list(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name!r} must be a list, not {type(value).__name__}")
    return value
