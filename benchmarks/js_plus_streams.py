"""js_plus with a history: how near to the value function on streams that stay and that drift?

Every step draws n prompts with m responses. The first of them is held out: the mean squared
distance of its baseline to its value is exact given the others, as in estimator_mse.py, and divided
by RLOO's. Then the whole step enters the history.

*Stationary*: the reduction of that error against RLOO in percent of what the best constant
coefficient reaches, after the burn-in. *Drifting*: the error, averaged over the stream, above
`js`'s in percent (negative is better), and the same in the worst window.

Axes: r rows, which are copies of a stream with every m (and every half-life), n prompts, k RULES.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import pi, sin
from typing import Any, NamedTuple

import numpy as np
import torch
from markdown_table import print_table
from torch import Tensor
from value_distributions import DISTRIBUTIONS, constant, draw_groups, statistics_of

from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.estimators import (
    GroupStatistics,
    RunningStatistics,
    group_statistics,
    history,
    start_history,
    update_history,
)
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.lab.simulate import Values, best_coefficient, beta, two_point

PROMPTS = (4, 8, 16, 32, 64)
RESPONSES = (2, 4, 8)
HALF_LIVES = (20.0, 50.0, 100.0)
PROMPTS_PER_STEP = 600  # over all copies of a stream with one m
STEPS, BURN_IN, WINDOW = 400, 100, 20

Stream = list[tuple[Values, float]]  # for each step, and what rewards are multiplied by
At = Callable[[int], float]  # of the step


class StreamSettings(Settings):
    """js_plus with a history on streams that stay and that drift."""

    seed: int = 0
    only: str = Field("", description="streams whose title contains this")


def parts(*values: Values, scales: tuple[float, ...] = (1.0,)) -> Stream:
    """A stream in parts of equal length."""
    both = ([each[len(each) * t // STEPS] for t in range(STEPS)] for each in (values, scales))
    return list(zip(*both, strict=True))


def drift(mean: At, alike: At, steps: int = STEPS) -> Stream:
    """Beta values of mean a / (a + b) that differ the less the larger `alike` = a + b is."""
    found = [(round(mean(t), 3), round(alike(t), 3)) for t in range(steps)]
    return [(beta(m * total, (1 - m) * total), 1.0) for m, total in found]


def spread(low: float, high: float, share: At) -> Stream:
    """Values of mean 1/2, a + b going from low to high in equal ratios."""
    return drift(lambda t: 0.5, lambda t: low * (high / low) ** share(t))


APART, ALIKE, HIGH = beta(0.3, 0.3), beta(20, 20), beta(5, 2)
LESS = (1.0, 0.1)
STATIONARY = {values.title: parts(values) for values in DISTRIBUTIONS}
DRIFTING = {
    **{
        f"pass rate 0.1 to 0.9 in {length} steps, a + b = {alike}": drift(
            lambda t, length=length: 0.1 + 0.8 * min(1, t / length),
            lambda t, alike=alike: alike,
            max(STEPS, length),
        )
        for alike in (1, 4)
        for length in (100, 500)
    },
    "values grow alike: a + b from 0.5 to 60": spread(0.5, 60, lambda t: t / STEPS),
    "values grow apart: a + b from 60 to 0.5": spread(60, 0.5, lambda t: t / STEPS),
    "a shift half-way: all 0.5, then Beta(0.3, 0.3)": parts(constant(0.5), APART),
    "a shift half-way: Beta(0.3, 0.3), then all 0.5": parts(APART, constant(0.5)),
    "a rare kind appears half-way: all 0.05, then a share of 0.1 at 0.95": parts(
        constant(0.05), two_point(0.05, 0.95, 0.1)
    ),
    "a shift half-way: Beta(5, 2), then Beta(0.5, 0.5)": parts(HIGH, DISTRIBUTIONS[0]),
    **{
        f"two data sets in turns of {length}: Beta(20, 20), Beta(0.3, 0.3)": parts(
            *(APART, ALIKE) * (STEPS // length // 2)
        )
        for length in (1, 5, 20, 50)
    },
    "curriculum: stages of 50 steps, each from pass rate 0.2 to 0.8": drift(
        lambda t: 0.2 + 0.6 * (t % 50) / 50, lambda t: (1, 3, 10, 3)[t // 50 % 4]
    ),
    **{
        f"seasons of {period} steps: a + b between 0.6 and 40": spread(
            0.6, 40, lambda t, period=period: 0.5 + 0.5 * sin(2 * pi * t / period)
        )
        for period in (20, 100)
    },
    "Beta(0.5, 0.5), rewards times 1, then 10, then 0.1": parts(
        DISTRIBUTIONS[0], scales=(1.0, 10.0, 0.1)
    ),
    "Beta(5, 2), then Beta(0.3, 0.3) with rewards times 0.1": parts(HIGH, APART, scales=LESS),
    "Beta(0.3, 0.3), then Beta(5, 2) with rewards times 0.1": parts(APART, HIGH, scales=LESS),
}


def start(half_lives: Tensor) -> RunningStatistics:
    """A history for each row (r, 1); its fields are tensors of that shape."""
    zero = torch.zeros_like(half_lives)
    return RunningStatistics(half_lives, *[zero] * 5, (zero,) * 3, (zero,) * 9)


def weights(running: RunningStatistics) -> Tensor:
    """(r, k) `history.rule_weights` of every row."""
    gain, cost = running.gain, [running.cost[row : row + 3] for row in (0, 3, 6)]
    xx, yy = (cost[0][0] + cost[k][k] - 2 * cost[0][k] for k in (1, 2))
    xy = cost[0][0] + cost[1][2] - cost[0][1] - cost[0][2]
    prior = (xx + yy) / 2 / running.batches
    known = prior > 0  # not NaN, as before the first batch
    xx, yy = (torch.where(known, each + prior, 1.0) for each in (xx, yy))
    sx, sy = (gain[k] - gain[0] - (cost[0][k] - cost[0][0]) for k in (1, 2))
    determinant, across = xx * yy - xy * xy, xx + yy - 2 * xy
    x, y = (sx * yy - sy * xy) / determinant, (sy * xx - sx * xy) / determinant
    inside = (determinant > 0) & (x >= 0) & (y >= 0) & (x + y <= 1)
    along = torch.where(across > 0, (sx - sy - xy + yy) / across, 0.0).clamp(0, 1)
    zero = torch.zeros_like(xx)
    xs = torch.stack([torch.where(inside, x, 0), (sx / xx).clamp(0, 1), zero, along])
    ys = torch.stack([torch.where(inside, y, 0), zero, (sy / yy).clamp(0, 1), 1 - along])
    losses = xs**2 * xx + 2 * xs * ys * xy + ys**2 * yy - 2 * (xs * sx + ys * sy)
    least = losses.argmin(0, keepdim=True)
    x, y = (torch.where(known, each.gather(0, least)[0], 0.0) for each in (xs, ys))
    return torch.cat([1 - x - y, x, y], 1)


def updated(running: RunningStatistics, stats: GroupStatistics, rules: Tensor) -> RunningStatistics:
    """`history.update_history` of every row; the step had the coefficients `rules` (r, k, n)."""
    n = rules.shape[2]
    own = stats.reward_variance / stats.valid_responses
    noise = stats.reward_variance.mean(1, keepdim=True)
    net = stats.prompt_mean.var(1, keepdim=True) - own.mean(1, keepdim=True)
    now = noise + net.clamp(min=0)
    earlier = ratio(running.variance, running.prompts)
    earlier = earlier + ratio(running.net.clamp(min=0), running.degrees)
    smaller = (now > 0) & (now < earlier / history.OTHER_UNITS)
    running = history._scaled(running, torch.where(smaller, ratio(now, earlier), 1.0))
    v2 = stats.reward_variance / (stats.valid_responses - 1)
    both = v2 + (stats.prompt_mean - stats.loo_batch_mean).square() - own
    gain, cost = rules @ v2[..., None], (rules * both[:, None]) @ rules.mT
    more = (1, n, n * noise, n - 1, (n - 1) * net)
    sums = (old + new for old, new in zip(running[1:6], more, strict=True))
    gains = map(torch.add, running.gain, gain.unbind(1))
    costs = map(torch.add, running.cost, cost.reshape(-1, 9, 1).unbind(1))
    return history._aged(RunningStatistics(running.half_life, *sums, tuple(gains), tuple(costs)))


def check() -> None:
    """What is computed here is what the package computes, on three short streams."""
    n, m, half_life = 5, 4, 3.0
    generator = np.random.default_rng(0)
    running, each_own = start(torch.full((3, 1), half_life)), [start_history(half_life)] * 3
    for scale in (1.0,) * 9 + (0.1,) * 3:
        values = generator.beta(0.5, 0.5, (3, n, 1))
        batches = torch.from_numpy(scale * (generator.random((3, n, m)) < values))
        stats = statistics_of(batches.mean(2), batches.var(2), torch.full((3, 1), float(m)))
        rules, mix = history._coefficients(running, stats), weights(running)
        for r, batch in enumerate(batches):
            expected = torch.tensor(history.rule_weights(each_own[r]))
            torch.testing.assert_close(mix[r], expected, atol=1e-6, rtol=0)
            expected = history.running_coefficient(group_statistics(batch), each_own[r])
            torch.testing.assert_close(mix[r] @ rules[r], expected, atol=1e-9, rtol=0)
            each_own[r] = update_history(each_own[r], batch)
        running = updated(running, stats, rules)


class Cell(NamedTuple):
    """Errors of js, js_plus, each half-life and the best constant: (6, steps), of RLOO's."""

    title: str
    n: int
    m: int
    errors: np.ndarray


def measure(title: str, steps: Stream, n: int, seed: int) -> list[Cell]:
    """A cell for each of RESPONSES."""
    generator = np.random.default_rng([seed, n])
    copies = max(8, PROMPTS_PER_STEP // n)
    m = np.repeat(RESPONSES, copies)[:, None]
    running = start(torch.tensor(HALF_LIVES).repeat_interleave(len(m))[:, None])
    errors = []
    for values, scale in steps:
        mean, variance = draw_groups(values, (len(m), n), m, generator)
        given = map(torch.from_numpy, (mean * scale, variance * scale**2, m.astype(float)))
        stats = statistics_of(*(each.repeat(len(HALF_LIVES), 1) for each in given))
        rules = history._coefficients(running, stats)
        mixed = (weights(running) * rules[..., 0]).sum(1)
        held_out = torch.cat([*rules[: len(m), 1:, 0].T, mixed]).reshape(-1, len(m)).numpy()
        off = stats.loo_batch_mean[: len(m), 0].numpy() / scale - values.mean
        distance = (values.s2 + off**2) / (values.sigma2 / (m[:, 0] - 1))
        found = (1 - held_out) ** 2 + held_out**2 * distance
        best = [1 - best_coefficient(values, n, each) for each in RESPONSES]
        errors.append(np.vstack([found.reshape(-1, len(RESPONSES), copies).mean(2), best]))
        running = updated(running, stats, rules)
    by_step = np.array(errors)  # (steps, rules, responses)
    return [Cell(title, n, each, by_step[:, :, k].T) for k, each in enumerate(RESPONSES)]


def share_of_best(cell: Cell) -> np.ndarray:
    """(5,) percent of the best reduction, after the burn-in."""
    reduction = 1 - cell.errors[:, BURN_IN:].mean(1)
    return 100 * reduction[:-1] / reduction[-1]


def above_js(cell: Cell) -> np.ndarray:
    """(5,) percent of error above js's, over the whole stream."""
    mean = cell.errors[:-1].mean(1)
    return 100 * (mean / mean[0] - 1)


def worst_window(cell: Cell) -> np.ndarray:
    """(5,) the same in the window where it is largest."""
    ends = np.cumsum(np.pad(cell.errors[:-1], ((0, 0), (1, 0))), 1)
    windows = ends[:, WINDOW:] - ends[:, :-WINDOW]
    return 100 * (windows / windows[0] - 1).max(1)


def print_worst(
    title: str, cells: list[Cell], figures: Callable[[Cell], np.ndarray], worst: Any
) -> None:
    """For each stream and m, the worst of all n."""

    def text(stream: str, m: int) -> str:
        own = [figures(cell) for cell in cells if (cell.title, cell.m) == (stream, m)]
        numbers = [f"{number:.0f}" for number in worst(own, axis=0)]
        return f"{' / '.join(numbers[:2])} / **{' / '.join(numbers[2:])}**"

    half_lives = ", ".join(f"{each:g}" for each in HALF_LIVES)
    print(f"### {title}\n\nWorst over n: `js` / `js_plus` / **half-lives {half_lives}**.\n")
    streams = dict.fromkeys(cell.title for cell in cells)
    rows = ((stream, *(text(stream, m) for m in RESPONSES)) for stream in streams)
    print_table(["stream", *(f"m = {m}" for m in RESPONSES)], rows)
    print()


def print_goals(still: list[Cell], moving: list[Cell]) -> None:
    def place(cell: Cell) -> str:
        return f"({cell.title}; n = {cell.n}, m = {cell.m})"

    for k, half_life in enumerate(HALF_LIVES, 2):
        if still:
            shares = np.array([share_of_best(cell)[k] for cell in still])
            print(
                f"- Half-life {half_life:g}, stationary, n >= 8: at least 97 % of the best in "
                f"{sum(shares >= 97)} of {len(still)} cells; lowest {min(shares):.1f} % "
                f"{place(still[shares.argmin()])}."
            )
        if moving:
            above = np.array([above_js(cell)[k] for cell in moving])
            print(
                f"- Half-life {half_life:g}, drifting: at most 1 % worse than js in "
                f"{sum(above <= 1)} of {len(moving)} cells; median {np.median(above):+.1f} %, "
                f"worst {max(above):+.2f} % {place(moving[above.argmax()])}."
            )


def main() -> None:
    settings = parse(StreamSettings, "benchmarks/js_plus_streams.py", sys.argv[1:])
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    check()
    chosen = [each for each in (STATIONARY | DRIFTING).items() if settings.only in each[0]]
    cells = []
    with progress("streams", len(chosen), "streams") as bar:
        for title, steps in chosen:
            for n in PROMPTS:
                cells += measure(title, steps, n, settings.seed)
            bar.advance()
    still = [cell for cell in cells if cell.title in STATIONARY and cell.n >= 8]
    moving = [cell for cell in cells if cell.title in DRIFTING]
    print_worst("Stationary: percent of the best reduction", still, share_of_best, np.min)
    print_worst("Drifting: percent of error above js's", moving, above_js, np.max)
    print_worst(f"Drifting: the same in the worst {WINDOW} steps", moving, worst_window, np.max)
    print("### Goals\n")
    print_goals(still, moving)


if __name__ == "__main__":
    main()
