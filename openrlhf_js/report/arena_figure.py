"""The scores of a leaderboard with their intervals, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.evaluation.arena.leaderboard import Board
from openrlhf_js.report import arena, style
from openrlhf_js.report.style import INK, printable

SHOWN_MODELS = 60
NAME_WIDTH = 36
TITLE_WIDTH = 66  # characters that fit at the full size


def forest(boards: Sequence[Board]) -> Figure:
    """One picture above the other, each of one board, the best model on top.

    Args:
        boards: at least one.
    """
    most = max(min(len(board.lines), SHOWN_MODELS) for board in boards)
    with rc_context(style.HOUSE):
        figure = style.figure(len(boards), 1, 8.0, 1.2 + 0.3 * most)
        for axes, board in zip(figure.axes, boards, strict=True):
            _forest(axes, board)
    return figure


def _forest(axes: Axes, board: Board) -> None:
    lines = board.lines[:SHOWN_MODELS][::-1]
    lowest = min(line.score if line.ci_low is None else line.ci_low for line in lines)
    highest = max(line.score if line.ci_high is None else line.ci_high for line in lines)
    for place, line in enumerate(lines):
        baseline = line.model == board.baseline
        if not baseline and line.ci_low is not None and line.ci_high is not None:
            axes.plot([line.ci_low, line.ci_high], [place, place], color=INK, linewidth=1.6)
        axes.plot(
            [line.score],
            [place],
            marker="D" if baseline else "o",
            color=INK,
            markerfacecolor="white" if baseline else INK,
            markersize=6,
            linestyle="none",
        )
    axes.axvline(50, color=INK, linewidth=1, linestyle=style.DASHED)
    axes.set_yticks(range(len(lines)), [_name(line.model) for line in lines])
    axes.set_ylim(-0.7, len(lines) - 0.3)
    room = 0.03 * max(1.0, highest - lowest)
    axes.set_xlim(max(-1.0, lowest - room), min(101.0, highest + room))
    left_out = len(board.lines) - len(lines)
    note = f"Interval: {board.interval}. The diamond is the baseline."
    more = f" {left_out} lower ones are not shown." if left_out else ""
    title = arena.title(board)
    style.dress(axes, title, "score, per cent", "", note + more)
    if len(title) > TITLE_WIDTH:
        size = 12 * TITLE_WIDTH / len(title)
        axes.set_title(
            printable(title), loc="left", fontsize=size, fontweight="bold", color=INK, pad=20
        )
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color=style.GRID, linewidth=0.8)


def _name(name: str) -> str:
    return printable(name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…")
