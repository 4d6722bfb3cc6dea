"""The page of an arena: leaderboards, and every question with its answers and verdicts.

One file that needs no other and opens offline. What models and judges wrote is packed and shown as
text, and the page's own script is the only one that a browser runs, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from openrlhf_js import __version__
from openrlhf_js.evaluation.arena.leaderboard import Board
from openrlhf_js.report import arena, html, style
from openrlhf_js.report.arena_data import fitted
from openrlhf_js.report.arena_figure import forest
from openrlhf_js.report.arena_look import STYLE
from openrlhf_js.report.arena_script import SCRIPT


class Page(NamedTuple):
    """A page and what had to be left out of it."""

    html: str
    notes: list[str]


def page(
    heading: str, boards: Sequence[Board], data: dict[str, Any], compared: Sequence[str] = ()
) -> Page:
    """The whole page.

    Args:
        heading: any text.
        boards: the leaderboards.
        data: of `browse.questions_of`; what does not fit is left out.
        compared: sentences of comparisons.
    """
    packed = fitted(data)
    script = f"<script>{SCRIPT}</script>"
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:\">"
    )
    written = time.strftime("%Y-%m-%d %H:%M %Z")
    parts = [
        f"<h1>{html.text(heading)}</h1>",
        html.paragraph(f"Written {written} by openrlhf_js {__version__}.", quiet=True),
        *(
            part
            for each in zip(boards, arena.in_words(boards), strict=True)
            for part in _board(*each)
        ),
        html.paragraph(arena.KEY, quiet=True),
        "<h2>Comparison</h2>" if compared else "",
        *map(html.paragraph, compared),
        *_browser(packed.notes),
        _held("listing", packed.listing),
        *(_held(f"texts-{number}", group) for number, group in enumerate(packed.groups)),
        script,
    ]
    return Page(html.page(heading, parts, f"{policy}<style>{STYLE}</style>"), packed.notes)


def _held(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def _board(board: Board, said: Sequence[str]) -> list[str]:
    picture = forest([board])
    return [
        f"<h2>{html.text(arena.title(board))}</h2>",
        html.table(arena.columns(board), [arena.row(line) for line in board.lines], whole=True),
        *map(html.paragraph, said),
        html.figure(style.svg(picture), f"scores with intervals, {arena.title(board)}", ""),
    ]


def _browser(notes: Sequence[str]) -> list[str]:
    choices = "".join(
        f'<label>{name}<select id="{name}"></select></label>'
        for name in ("model", "judge", "category", "verdict")
    )
    return [
        '<h2 id="questions">Questions</h2>',
        html.paragraph(
            "Both answers, and both games that the judge held over them. At a question's end is "
            "how the model fared in game 1 and game 2: ++ much better, + better, = tie, \u2212 and "
            "\u2212\u2212 worse, ? no verdict. The arrow keys go on and back.",
            quiet=True,
        ),
        *(html.paragraph(note, quiet=True) for note in notes),
        "<noscript><p>The questions need JavaScript; the tables above do not.</p></noscript>",
        '<div class="filters"><label>search in questions, answers and judgments'
        f'<input id="search" type="search" autocomplete="off"></label>{choices}'
        '<span id="count" role="status">loading</span></div>',
        '<div class="browser"><ol id="list"></ol><div id="question"></div></div>',
    ]
