"""js_plus with a history: how near to the value function on streams that stay and that drift?

Every step draws n prompts with m responses. The first of them is held out: the mean squared
distance of its baseline to its value is exact given the others, as in estimator_mse.py, and divided
by RLOO's. Then the whole step enters the history.

*Stationary*: the reduction of that error against RLOO in percent of what the best constant
coefficient reaches, after the burn-in. *Drifting*: the error, averaged over the stream, above
`js`'s in percent (negative is better), and the same in the worst window.

Axes: h half-lives, r copies of a stream with every m, n prompts, k rules that js_plus is mixed of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from math import exp, log, pi, sin
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from value_distributions import DISTRIBUTIONS, draw_groups, statistics_of

from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.estimators import (
    GroupStatistics,
    coefficients,
    group_statistics,
    history,
    start_history,
    update_history,
)
from openrlhf_js.estimators.coefficients import GUARD, net_dispersion
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.lab.simulate import best_coefficient
from openrlhf_js.lab.values import Values, beta, constant, two_point

PROMPTS = (4, 8, 16, 32, 64)
RESPONSES = (2, 4, 8)
HALF_LIVES = (20.0, 50.0, 100.0)
PROMPTS_PER_STEP = 600  # over all copies of a stream with one m
STEPS, BURN_IN, WINDOW = 400, 100, 20


class StreamSettings(Settings):
    """js_plus with a history on streams that stay and that drift."""

    seed: int = 0
    only: str = Field("", description="streams whose title contains this")


class Step(NamedTuple):
    """What the prompts of one step are drawn from; rewards are multiplied by `scale`."""

    values: Values
    scale: float = 1.0


Streams = dict[str, tuple[Step, ...]]


def stream(at: Callable[[int], Step | Values], steps: int = STEPS) -> tuple[Step, ...]:
    return tuple(s if isinstance(s, Step) else Step(s) for s in map(at, range(steps)))


def halves(before: Step | Values, after: Step | Values) -> tuple[Step, ...]:
    return stream(lambda t: before if t < STEPS // 2 else after)


@cache
def around(mean: float, alike: float) -> Values:
    """Beta values of that mean; the larger `alike` = a + b, the less they differ."""
    return beta(mean * alike, (1 - mean) * alike)


def rising(alike: float, length: int) -> tuple[Step, ...]:
    def at(t: int) -> Values:
        return around(round(0.1 + 0.8 * min(1, t / length), 3), alike)

    return stream(at, max(STEPS, length))


def spreading(low: float, high: float, share: Callable[[int], float]) -> tuple[Step, ...]:
    """Values of mean 1/2, a + b going from low to high in equal ratios."""
    ratio = log(high) - log(low)
    return stream(lambda t: around(0.5, round(exp(log(low) + ratio * share(t)), 3)))


APART, ALIKE = beta(0.3, 0.3), beta(20, 20)
STATIONARY: Streams = {v.title: (Step(v),) * STEPS for v in DISTRIBUTIONS}
DRIFTING: Streams = {
    **{
        f"pass rate 0.1 to 0.9 in {length} steps, a + b = {alike}": rising(alike, length)
        for alike in (1, 4)
        for length in (100, 500)
    },
    "values grow alike: a + b from 0.5 to 60": spreading(0.5, 60, lambda t: t / STEPS),
    "values grow apart: a + b from 60 to 0.5": spreading(60, 0.5, lambda t: t / STEPS),
    "a shift half-way: all 0.5, then Beta(0.3, 0.3)": halves(constant(0.5), APART),
    "a shift half-way: Beta(0.3, 0.3), then all 0.5": halves(APART, constant(0.5)),
    "a rare kind appears half-way: all 0.05, then a share of 0.1 at 0.95": halves(
        constant(0.05), two_point(0.05, 0.95, 0.1)
    ),
    "a shift half-way: Beta(5, 2), then Beta(0.5, 0.5)": halves(beta(5, 2), beta(0.5, 0.5)),
    **{
        f"two data sets in turns of {length}: Beta(20, 20), Beta(0.3, 0.3)": stream(
            lambda t, length=length: APART if t // length % 2 == 0 else ALIKE  # type: ignore[misc]
        )
        for length in (1, 5, 20, 50)
    },
    "curriculum: stages of 50 steps, each from pass rate 0.2 to 0.8": stream(
        lambda t: around(round(0.2 + 0.6 * (t % 50) / 50, 3), (1, 3, 10, 3)[t // 50 % 4])
    ),
    **{
        f"seasons of {period} steps: a + b between 0.6 and 40": spreading(
            0.6,
            40,
            lambda t, period=period: 0.5 + 0.5 * sin(2 * pi * t / period),  # type: ignore[misc]
        )
        for period in (20, 100)
    },
    "Beta(0.5, 0.5), rewards times 1, then 10, then 0.1": stream(
        lambda t: Step(DISTRIBUTIONS[0], (1.0, 10.0, 0.1)[3 * t // STEPS])
    ),
    "Beta(5, 2), then Beta(0.3, 0.3) with rewards times 0.1": halves(beta(5, 2), Step(APART, 0.1)),
    "Beta(0.3, 0.3), then Beta(5, 2) with rewards times 0.1": halves(APART, Step(beta(5, 2), 0.1)),
}


class Running:
    """`RunningStatistics` of r streams of n prompts, each with h half-lives, all at once."""

    def __init__(self, half_lives: tuple[float, ...], streams: int, n: int):
        self.n = n
        self.weight = torch.tensor([[0.5 ** (1 / each)] for each in half_lives])
        self.batches = torch.zeros(len(half_lives), 1)
        shape = (len(half_lives), streams)
        self.variance, self.net = torch.zeros(shape), torch.zeros(shape)
        self.gain, self.cost = torch.zeros(3, *shape), torch.zeros(3, 3, *shape)

    def rules(self, stats: GroupStatistics) -> Tensor:
        """(k, h, r, n) coefficients by all batches, of `js` and of `js_plus`."""
        p, earlier = self.n - 1, (self.n - 1) * self.batches[..., None]
        net = ((p - 1) * net_dispersion(stats) + self.net[..., None]) / (p - 1 + earlier)
        margin = 1 + history.STANDARD_ERRORS * (2 / (p - 1)) ** 0.5
        dispersion = net_dispersion(stats) + stats.within_variance
        net = net.maximum(dispersion / margin - stats.within_variance)
        sigma2 = p * stats.other_reward_variance + self.variance[..., None]
        sigma2 = sigma2 / (p + self.n * self.batches[..., None])
        guard = GUARD / (GUARD + (p - 1 + earlier**2).sqrt())
        pooled = coefficients.best_coefficient(stats, net, sigma2, guard)
        today = (stats.shrinkage, coefficients.corrected_coefficient(stats))
        return torch.stack([pooled, *(each.expand_as(pooled) for each in today)])

    def weights(self) -> Tensor:
        """(k, h, r) of the rules: those with the least loss, on a simplex."""
        c, gain = self.cost, self.gain
        xx, yy = c[0, 0] + c[1, 1] - 2 * c[0, 1], c[0, 0] + c[2, 2] - 2 * c[0, 2]
        xy = c[0, 0] + c[1, 2] - c[0, 1] - c[0, 2]
        prior = (xx + yy) / 2 / self.batches.clamp(min=1e-300)
        known = prior > 0
        xx, yy = (torch.where(known, each + prior, 1.0) for each in (xx, yy))
        sx, sy = (gain[k] - gain[0] - (c[0, k] - c[0, 0]) for k in (1, 2))
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
        return torch.stack([1 - x - y, x, y])

    def update(self, stats: GroupStatistics, rules: Tensor) -> None:
        """Adds a step whose coefficients were `rules`."""
        v2 = stats.reward_variance / (stats.valid_responses - 1)
        own = stats.reward_variance / stats.valid_responses
        noise, net = stats.reward_variance.mean(1), stats.prompt_mean.var(1) - own.mean(1)
        spread = noise + net.clamp(min=0)
        degrees = (self.n - 1) * self.batches
        earlier = ratio(self.variance, self.n * self.batches)
        earlier = earlier + ratio(self.net.clamp(min=0), degrees)
        smaller = (spread > 0) & (spread < earlier / history.OTHER_UNITS)
        units = torch.where(smaller, ratio(spread, earlier), 1.0)
        both = v2 + (stats.prompt_mean - stats.loo_batch_mean).square() - own
        gain = torch.einsum("khrn,rn->khr", rules, v2)
        cost = torch.einsum("khrn,lhrn,rn->klhr", rules, rules, both)
        self.batches = self.weight * (self.batches + 1)
        self.variance = self.weight * (units * self.variance + self.n * noise)
        self.net = self.weight * (units * self.net + (self.n - 1) * net)
        self.gain = self.weight * (units * self.gain + gain)
        self.cost = self.weight * (units * self.cost + cost)


def check() -> None:
    """What is computed here is what the package computes, on three short streams."""
    n, m, half_life = 5, 4, 3.0
    generator = np.random.default_rng(0)
    ours, histories = Running((half_life,), 3, n), [start_history(half_life)] * 3
    for scale in (1.0,) * 9 + (0.1,) * 3:
        values = generator.beta(0.5, 0.5, (3, n, 1))
        batches = torch.from_numpy(scale * (generator.random((3, n, m)) < values))
        stats = statistics_of(batches.mean(2), batches.var(2), torch.full((3, 1), float(m)))
        rules, weights = ours.rules(stats), ours.weights()
        shrinkage = (weights[..., None] * rules).sum(0)[0]
        for r, batch in enumerate(batches):
            expected = torch.tensor(history.rule_weights(histories[r]))
            torch.testing.assert_close(weights[:, 0, r], expected, atol=1e-6, rtol=0)
            expected = history.running_coefficient(group_statistics(batch), histories[r])
            torch.testing.assert_close(shrinkage[r], expected, atol=1e-9, rtol=0)
            histories[r] = update_history(histories[r], batch)
        ours.update(stats, rules)


class Cell(NamedTuple):
    """Errors of js, js_plus, each half-life and the best constant: (5, steps), of RLOO's."""

    title: str
    n: int
    m: int
    errors: np.ndarray


def measure(title: str, steps: tuple[Step, ...], n: int, seed: int) -> list[Cell]:
    """A cell for each of RESPONSES."""
    generator = np.random.default_rng([seed, n])
    copies = max(8, PROMPTS_PER_STEP // n)
    m = np.repeat(RESPONSES, copies)[:, None]
    running = Running(HALF_LIVES, len(m), n)
    errors = []
    for values, scale in steps:
        mean, variance = draw_groups(values, (len(m), n), m, generator)
        given = map(torch.from_numpy, (mean * scale, variance * scale**2, m.astype(float)))
        stats = statistics_of(*given)
        rules = running.rules(stats)
        shrinkage = (running.weights()[..., None] * rules).sum(0)[..., 0]
        held_out = torch.cat([rules[1:, 0, :, 0], shrinkage]).numpy()
        off = stats.loo_batch_mean[:, 0].numpy() / scale - values.mean
        distance = (values.s2 + off**2) / (values.sigma2 / (m[:, 0] - 1))
        found = (1 - held_out) ** 2 + held_out**2 * distance
        best = [1 - best_coefficient(values, n, each) for each in RESPONSES]
        errors.append(np.vstack([found.reshape(-1, len(RESPONSES), copies).mean(2), best]))
        running.update(stats, rules)
    by_step = np.array(errors)  # (steps, rules, responses)
    return [Cell(title, n, each, by_step[:, :, k].T) for k, each in enumerate(RESPONSES)]


def share_of_best(cell: Cell) -> np.ndarray:
    """(4,) percent of the best reduction, after the burn-in."""
    reduction = 1 - cell.errors[:, BURN_IN:].mean(1)
    return 100 * reduction[:-1] / reduction[-1]


def above_js(cell: Cell) -> np.ndarray:
    """(4,) percent of error above js's, over the whole stream."""
    mean = cell.errors[:-1].mean(1)
    return 100 * (mean / mean[0] - 1)


def worst_window(cell: Cell) -> np.ndarray:
    """(4,) the same in the window where it is largest."""
    ends = np.cumsum(np.pad(cell.errors[:-1], ((0, 0), (1, 0))), 1)
    windows = ends[:, WINDOW:] - ends[:, :-WINDOW]
    return 100 * (windows / windows[0] - 1).max(1)


def print_table(cells: list[Cell], figures: Callable[[Cell], np.ndarray], worst: Any) -> None:
    """For each stream and m, the worst of all n."""
    half_lives = ", ".join(f"{each:g}" for each in HALF_LIVES)
    print(f"Worst over n: `js` / `js_plus` / **half-lives {half_lives}**.\n")
    print("| stream | " + " | ".join(f"m = {m}" for m in RESPONSES) + " |")
    print("|---|" + "---:|" * len(RESPONSES))
    for title in dict.fromkeys(cell.title for cell in cells):
        texts = []
        for m in RESPONSES:
            own = [figures(c) for c in cells if (c.title, c.m) == (title, m)]
            shown = [f"{number:.0f}" for number in worst(own, axis=0)]
            texts.append(f"{' / '.join(shown[:2])} / **{' / '.join(shown[2:])}**")
        print(f"| {title} | {' | '.join(texts)} |")
    print()


def print_goals(still: list[Cell], moving: list[Cell]) -> None:
    def place(cell: Cell) -> str:
        return f"({cell.title}; n = {cell.n}, m = {cell.m})"

    for k, half_life in enumerate(HALF_LIVES, 2):
        shares, above = [share_of_best(c)[k] for c in still], [above_js(c)[k] for c in moving]
        if still:
            print(
                f"- Half-life {half_life:g}, stationary, n >= 8: at least 97 % of the best in "
                f"{sum(np.array(shares) >= 97)} of {len(still)} cells; lowest {min(shares):.1f} % "
                f"{place(still[np.argmin(shares)])}."
            )
        if moving:
            print(
                f"- Half-life {half_life:g}, drifting: at most 1 % worse than js in "
                f"{sum(np.array(above) <= 1)} of {len(moving)} cells; median "
                f"{np.median(above):+.1f} %, worst {max(above):+.2f} % "
                f"{place(moving[np.argmax(above)])}."
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
    print("### Stationary: percent of the best reduction\n")
    print_table(still, share_of_best, np.min)
    print("### Drifting: percent of error above js's\n")
    print_table(moving, above_js, np.max)
    print(f"### Drifting: the same in the worst {WINDOW} steps\n")
    print_table(moving, worst_window, np.max)
    print("### Goals\n")
    print_goals(still, moving)


if __name__ == "__main__":
    main()
