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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from reward_streams import DRIFTING, STATIONARY, Step, Stream
from running_rule import Groups, Running, check, groups
from value_distributions import draw_groups

from openrlhf_js.common.console import progress

PROMPTS = (4, 8, 16, 32, 64)
RESPONSES = (2, 4, 8)
BURN_IN, WINDOW = 100, 20


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


def print_tables(cells: Sequence[Cell], half_lives: tuple[float, ...]) -> None:
    """Prints, for each stream and m, the worst of the sizes n >= 8 (stationary), or of all n."""
    kept = ", ".join(f"{h:g}" for h in half_lives)
    for title, streams, least_n, figures, worst in (
        ("Stationary: percent of the best reduction", STATIONARY, 8, share_of_best, np.min),
        ("Drifting: percent of error above js's", DRIFTING, 4, above_js, np.max),
        (f"Drifting: the same in the worst {WINDOW} steps", DRIFTING, 4, worst_window, np.max),
    ):
        print(f"### {title}\n\nWorst over n: `js` / `js_plus` / **half-lives {kept}**.\n")
        print("| stream | " + " | ".join(f"m = {m}" for m in RESPONSES) + " |")
        print("|---|" + "---:|" * len(RESPONSES))
        for stream in streams:
            own = [c for c in cells if c.stream is stream and c.n >= least_n]
            texts = []
            for m in RESPONSES if own else ():
                found = np.array([np.delete(figures(c)[:-1], 2) for c in own if c.m == m])
                shown = [f"{number:.0f}" for number in worst(found, 0)]
                texts.append(f"{' / '.join(shown[:2])} / **{' / '.join(shown[2:])}**")
            if own:
                print(f"| {stream.title} | {' | '.join(texts)} |")
        print()


def print_goals(cells: Sequence[Cell], half_lives: tuple[float, ...]) -> None:
    still = [c for c in cells if c.stream in STATIONARY and c.n >= 8]
    moving = [c for c in cells if c.stream in DRIFTING]
    for k, half_life in enumerate(half_lives, 3):
        if still:
            low = min(still, key=lambda c: share_of_best(c)[k])
            met = sum(share_of_best(c)[k] >= 97 for c in still)
            print(
                f"- Half-life {half_life:g}, stationary, n >= 8: at least 97 % of the best in "
                f"{met} of {len(still)} cells; lowest {share_of_best(low)[k]:.1f} % "
                f"({_place(low)})."
            )
        if moving:
            high = max(moving, key=lambda c: above_js(c)[k])
            fine = sum(above_js(c)[k] <= 1 for c in moving)
            median = np.median([above_js(c)[k] for c in moving])
            print(
                f"- Half-life {half_life:g}, drifting: at most 1 % worse than js in {fine} of "
                f"{len(moving)} cells; median {median:+.1f} %, worst {above_js(high)[k]:+.2f} % "
                f"({_place(high)})."
            )


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
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    check()
    half_lives = tuple(arguments.half_lives)
    chosen = [s for s in (*STATIONARY, *DRIFTING) if arguments.only in s.title]
    cells = []
    with progress("streams", len(chosen), "streams") as bar:
        for stream in chosen:
            for n in PROMPTS:
                cells += measure(stream, n, half_lives, arguments.prompts_per_step, arguments.seed)
            bar.advance()
    print_tables(cells, half_lives)
    print_goals(cells, half_lives)


if __name__ == "__main__":
    main()
