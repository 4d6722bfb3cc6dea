"""Which judgments rest on other texts than the files hold now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openrlhf_js.evaluation.arena import schemas
from openrlhf_js.evaluation.arena.files import read_judgments
from openrlhf_js.evaluation.arena.lines import Warn
from openrlhf_js.evaluation.arena.records import Judgment

Texts = Callable[[Judgment], Sequence[str]]

HEAD_CHARACTERS = 64  # of a text, which are looked for first
MOST_PLACES = 8  # where they are looked at, before the whole text is looked for


def judgments_of_now(path: Path, texts: Texts, warn: Warn) -> dict[str, Judgment]:
    """A judge's judgments of a model by uid; those of old texts count only if they are complete.

    An incomplete one would get its other game from other answers than its first.

    Args:
        path, texts, warn: as of `read_and_tell`; the file may not be there.
    """
    if not path.is_file():
        return {}
    judged, old = read_and_tell(path, texts, warn)
    return {each.uid: each for each in judged if _complete(each) or each.uid not in old}


def read_and_tell(path: Path, texts: Texts, warn: Warn) -> tuple[list[Judgment], set[str]]:
    """A judge's judgments of a model, and the uids of those of old texts.

    It tells of those of them that are complete: to judge these anew costs money, and is for the
    user to say. A line of v2.0 holds what the judge was told; nothing can be said of lines that do
    not. Whatever the template, it has the texts in it as they are. A text that is a part of the old
    one is not seen to differ.

    Args:
        texts: the question and both answers as they are now; none where that is not known.
        warn: gets a line for each line that cannot be read, and one for old texts.

    Raises:
        OSError: the file cannot be read.
    """
    changed: list[Judgment] = []

    def see(judgment: Judgment, row: schemas.Row) -> None:
        shown = list(_shown(row))
        now = texts(judgment) if shown else ()
        if any(not _holds(each, text) for each in shown for text in now):
            changed.append(judgment)

    judged = read_judgments(path, warn, see)
    ids = {id(each) for each in changed}  # of several lines of a question only one counts
    old = [each for each in judged if id(each) in ids]
    stale = [each.uid for each in old if _complete(each)]
    if stale:
        warn(
            f"{path}: {len(stale)} judgments are of other answers or questions than those of now, "
            f"the first is {stale[0]!r:.60}; they count nevertheless. To judge them anew, move "
            "this file away and judge again: what has not changed comes from the ledger, for "
            "nothing"
        )
    return judged, {each.uid for each in old}


def _complete(judgment: Judgment) -> bool:
    return all(game and game.verdict for game in judgment.games)


def _shown(row: schemas.Row) -> Iterator[str]:
    """What the user's message was in each game that has it."""
    games: Any = row.get("games")
    for game in games:
        told = game.get("prompt") if isinstance(game, dict) else None
        for message in told if isinstance(told, list) else ():
            text = message.get("content") if isinstance(message, dict) else None
            if isinstance(text, str) and message.get("role") == "user":
                yield text
                break


def _holds(shown: str, text: str) -> bool:
    """Whether a text was shown, perhaps with U+FFFD for half characters, as a line holds them."""
    return _is_in(text, shown) or _is_in(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), shown
    )


def _is_in(text: str, shown: str) -> bool:
    """`text in shown`; faster, since a short text is found much faster than a long one."""
    place = -1
    for _ in range(MOST_PLACES):
        place = shown.find(text[:HEAD_CHARACTERS], place + 1)
        if place < 0 or shown.startswith(text, place):
            return place >= 0
    return text in shown
