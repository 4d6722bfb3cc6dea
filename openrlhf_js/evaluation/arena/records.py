"""What Arena-Hard's files hold, in the words of this project; both schemas become these."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_NAME_BYTES = 200  # names of files end at 255, and get something behind and before


def file_name(model: str) -> str:
    """What a model or judge is called in names of files: its last part, as upstream has it.

    Raises:
        ValueError: there is none, or it is too long, or holds what does not print.
    """
    name = model.rstrip("/").rsplit("/", 1)[-1]
    size = len(name.encode(errors="replace"))
    if name in ("", ".", "..") or not name.isprintable() or size > LONGEST_NAME_BYTES:
        raise ValueError(f"{model!r:.80} is no name for a model: give one such as my-model")
    return name


class Question(NamedTuple):
    """One question.

    Attributes:
        uid: its name, the same in all files.
        category: such as "hard_prompt" or "creative_writing"; "arena-hard-v0.1" for the older set.
        prompt: what the models are asked.
        cluster: upstream's finer grouping, "" where there is none.
    """

    uid: str
    category: str
    prompt: str
    cluster: str = ""


class Style(NamedTuple):
    """What the style of an answer is measured by: counts."""

    tokens: int
    headers: int
    lists: int
    bold: int


class Answer(NamedTuple):
    """One model's answer to one question.

    Attributes:
        uid: the question's.
        model: its name in the pool.
        text: what the judge sees, without thinking.
        style: counts of `text`; None where the file has none of it.
        thinking: what the model thought before it answered, "" if nothing is known.
        ans_id: the answer's own name.
    """

    uid: str
    model: str
    text: str
    style: Style | None = None
    thinking: str = ""
    ans_id: str = ""


class Game(NamedTuple):
    """One comparison. In a judgment's first game A is the baseline, in its second A is the model.

    Attributes:
        verdict: one of `verdict.VERDICTS`, such as "A>>B"; None: the judge gave none.
        text: all that the judge said.
    """

    verdict: str | None
    text: str


class Judgment(NamedTuple):
    """Both games of one model's answer against the baseline's.

    Attributes:
        games: a game is None where it failed and was stored so.
    """

    uid: str
    category: str
    judge: str
    model: str
    baseline: str
    games: tuple[Game | None, Game | None]
