"""js_plus with a history: how near to the value function on streams that stay and that drift?

Every step draws n prompts with m responses. The first of them is held out: the mean squared
distance of its baseline to its value is exact given the others, as in estimator_mse.py, and divided
by RLOO's. Then the whole step enters the history.

*Stationary*: the reduction of that error against RLOO in percent of what the best constant
coefficient reaches, after the burn-in. *Drifting*: the error, averaged over the stream, above
`js`'s in percent (negative is better), and the same in the worst window.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from reward_streams import DRIFTING, STATIONARY, Step, Stream
from rich.console import Console
from running_rule import Groups, Running, check, groups
from value_distributions import draw_groups

from openrlhf_js.cli.progress import Bar
from openrlhf_js.whole_file import whole_file

PROMPTS = (4, 8, 16, 32, 64)
RESPONSES = (2, 4, 8)
BURN_IN, WINDOW = 100, 20
MARKER = "<!-- all below is printed by benchmarks/js_plus_streams.py -->"


@dataclass(frozen=True)
class Cell:
    """Errors of every rule over the steps of a stream, in units of RLOO's: (rules, steps)."""

    stream: Stream
    n: int
    m: int
    errors: np.ndarray
    """js, js_plus, pooled alone, with history by half-life, best constant of each step."""


def draw(step: Step, n: int, m: np.ndarray, generator: np.random.Generator) -> Groups:
    """Return a step of n prompts of len(m) streams; m (r, 1) are the responses to each prompt."""
    mean, variance = draw_groups(step.values, (len(m), n), m, generator)
    return groups(mean * step.scale, variance * step.scale**2, m)


def measure(
    stream: Stream, n: int, half_lives: tuple[float, ...], prompts: int, seed: int
) -> list[Cell]:
    """Return a cell for each of RESPONSES."""
    generator = np.random.default_rng([seed, n])
    copies = max(8, prompts // n)
    m = np.repeat(RESPONSES, copies)[:, None]
    history = Running(half_lives, len(m))
    errors = []
    for step in stream.steps:
        drawn = draw(step, n, m, generator)
        shrunk, rules = history.shrunk(drawn)
        pooled, js, plus = rules
        values = step.values
        v2 = values.sigma2 / (m[:, 0] - 1)
        off = drawn.others_mean[:, 0] / step.scale - values.mean
        distance = (values.s2 + off**2) / v2
        held_out = np.stack([js[:, 0], plus[:, 0], pooled[-1, :, 0], *shrunk[:, :, 0]])
        found = (1 - held_out) ** 2 + held_out**2 * distance
        best = v2 + values.s2 * n / (n - 1) + values.sigma2 / m[:, 0] / (n - 1)
        errors.append(np.vstack([found, 1 - v2 / best]).reshape(-1, len(RESPONSES), copies).mean(2))
        history.update(drawn, rules)
    by_step = np.array(errors)  # (steps, rules, responses)
    return [Cell(stream, n, m, by_step[:, :, k].T) for k, m in enumerate(RESPONSES)]


def share_of_best(cell: Cell) -> np.ndarray:
    """(rules,) percent of the best reduction, after the burn-in."""
    reduction = 1 - cell.errors[:, BURN_IN:].mean(1)
    return 100 * reduction / reduction[-1]


def above_js(cell: Cell) -> np.ndarray:
    """(rules,) percent of error above js's, over the whole stream."""
    mean = cell.errors.mean(1)
    return 100 * (mean / mean[0] - 1)


def worst_window(cell: Cell) -> np.ndarray:
    """(rules,) the same in the window where it is largest."""
    ends = np.cumsum(np.pad(cell.errors, ((0, 0), (1, 0))), 1)
    windows = ends[:, WINDOW:] - ends[:, :-WINDOW]
    return 100 * (windows / windows[0] - 1).max(1)


def markdown(cells: Sequence[Cell], half_lives: tuple[float, ...], measured: str) -> str:
    kept = ", ".join(f"{h:g}" for h in half_lives)
    lines = [
        measured,
        "",
        "### Stationary streams",
        "",
        f"Percent of the best reduction after {BURN_IN} steps: "
        f"`js` / `js_plus` / **with half-lives {kept}**.",
        "",
        *_header(),
    ]
    for stream in STATIONARY:
        lines += _rows(cells, stream, lambda c: _text(np.delete(share_of_best(c)[:-1], 2), 2))
    lines += [
        "",
        "### Drifting streams",
        "",
        "Percent of error above `js`'s over the stream: `js_plus` / pooled alone, with half-life "
        f"{half_lives[-1]:g} / **with half-lives {kept}** (best coefficient of every step).",
        "",
        *_header(),
    ]
    for stream in DRIFTING:
        lines += _rows(
            cells, stream, lambda c: f"{_text(above_js(c)[1:-1], 2)} ({above_js(c)[-1]:.0f})"
        )
    lines += [
        "",
        f"### Worst window of {WINDOW} steps",
        "",
        "Percent of error above `js`'s in that window: `js_plus` / pooled alone / **half-lives** "
        f"**{kept}**.",
        "",
        *_header(),
    ]
    for stream in DRIFTING:
        lines += _rows(cells, stream, lambda c: _text(worst_window(c)[1:-1], 2))
    return "\n".join([*lines, "", *_goals(cells, half_lives)]) + "\n"


def _header() -> list[str]:
    return [
        "| stream | n | " + " | ".join(f"m = {m}" for m in RESPONSES) + " |",
        "|---|---:|" + "---:|" * len(RESPONSES),
    ]


def _rows(cells: Sequence[Cell], stream: Stream, text: Callable[[Cell], str]) -> list[str]:
    found = []
    for n in PROMPTS if any(c.stream is stream for c in cells) else ():
        row = [text(c) for c in cells if c.stream is stream and c.n == n]
        title = stream.title if n == PROMPTS[0] else ""
        found.append(f"| {title} | {n} | " + " | ".join(row) + " |")
    return found


def _text(numbers: np.ndarray, plain: int) -> str:
    """The numbers, bold after the first `plain` of them."""
    shown = [f"{round(float(number))}" for number in numbers]
    return f"{' / '.join(shown[:plain])} / **{' / '.join(shown[plain:])}**"


def _goals(cells: Sequence[Cell], half_lives: tuple[float, ...]) -> list[str]:
    lines = ["### Goals", ""]
    still = [c for c in cells if c.stream in STATIONARY and c.n >= 8]
    moving = [c for c in cells if c.stream in DRIFTING]
    for k, half_life in enumerate(half_lives, 3):
        if still:
            low = min(still, key=lambda c: share_of_best(c)[k])
            met = sum(share_of_best(c)[k] >= 97 for c in still)
            lines.append(
                f"- Half-life {half_life:g}, stationary, n >= 8: at least 97 % of the best in "
                f"{met} of {len(still)} cells; lowest {share_of_best(low)[k]:.1f} % "
                f"({_place(low)})."
            )
        if moving:
            high = max(moving, key=lambda c: above_js(c)[k])
            fine = sum(above_js(c)[k] <= 1 for c in moving)
            median = np.median([above_js(c)[k] for c in moving])
            window = max(moving, key=lambda c: worst_window(c)[k])
            lines.append(
                f"- Half-life {half_life:g}, drifting: at most 1 % worse than js in {fine} of "
                f"{len(moving)} cells; median {median:+.1f} %, worst {above_js(high)[k]:+.2f} % "
                f"({_place(high)}); worst window {worst_window(window)[k]:+.0f} % "
                f"({_place(window)})."
            )
    return lines


def _place(cell: Cell) -> str:
    return f"{cell.stream.title}; n = {cell.n}, m = {cell.m}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--prompts_per_step",
        type=int,
        default=600,
        help="over all copies of a stream with one m (default: %(default)s)",
    )
    parser.add_argument(
        "--half_lives",
        type=float,
        nargs="+",
        default=[20, 50, 100],
        help="in steps (default: 20 50 100)",
    )
    parser.add_argument("--only", default="", help="streams whose title contains this")
    parser.add_argument(
        "--markdown", type=Path, help=f"replace what this file has below the line {MARKER}"
    )
    arguments = parser.parse_args()
    before = ""
    if arguments.markdown is not None:
        before, marker, _ = arguments.markdown.read_text(encoding="utf-8").partition(MARKER)
        if not marker or arguments.only:
            parser.error(f"--markdown needs a file with the line {MARKER}, and no --only")
    torch.set_num_threads(1)
    check()
    half_lives = tuple(arguments.half_lives)
    chosen = [s for s in (*STATIONARY, *DRIFTING) if arguments.only in s.title]
    places = [(s, n) for s in chosen for n in PROMPTS]
    cells = []
    with Bar("streams", len(places), Console(stderr=True), "sizes") as bar:
        for done, (stream, n) in enumerate(places, 1):
            prompts = arguments.prompts_per_step
            cells += measure(stream, n, half_lives, prompts, arguments.seed)
            bar.update(done, done)
    measured = (
        f"Seed {arguments.seed}; {arguments.prompts_per_step} prompts per step over all copies of "
        "a stream with one m."
    )
    text = markdown(cells, half_lives, measured)
    sys.stdout.write(text)
    if arguments.markdown is not None:
        with whole_file(arguments.markdown) as file:
            file.write(f"{before}{MARKER}\n\n{text}".encode())


if __name__ == "__main__":
    main()
