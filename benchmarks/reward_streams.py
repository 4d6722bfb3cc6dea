"""Streams of prompt distributions, one for each training step, that js_plus is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import exp, log, pi, sin

from value_distributions import DISTRIBUTIONS

from openrlhf_js.lab.values import Values, beta, constant, two_point

STEPS = 400


@dataclass(frozen=True)
class Step:
    """What the prompts of one step are drawn from; rewards are multiplied by `scale`."""

    values: Values
    scale: float = 1.0


@dataclass(frozen=True)
class Stream:
    """A training run, as the baseline sees it."""

    title: str
    steps: tuple[Step, ...]


@cache
def around(mean: float, prompts_alike: float) -> Values:
    """Beta values of that mean; the larger `prompts_alike`, the less they differ."""
    return beta(mean * prompts_alike, (1 - mean) * prompts_alike)


def stream(title: str, at: Callable[[int], Step | Values], steps: int = STEPS) -> Stream:
    made = [at(t) for t in range(steps)]
    return Stream(title, tuple(s if isinstance(s, Step) else Step(s) for s in made))


def rising(alike: float, length: int) -> Stream:
    return stream(
        f"pass rate 0.1 to 0.9 in {length} steps, a + b = {alike:g}",
        lambda t: around(round(0.1 + 0.8 * min(1, t / length), 3), alike),
        max(STEPS, length),
    )


def between(low: float, high: float, share: float) -> float:
    return round(exp(log(low) + (log(high) - log(low)) * share), 3)


def alternating(length: int) -> Stream:
    return stream(
        f"two data sets in turns of {length}: Beta(20, 20), Beta(0.3, 0.3)",
        lambda t: APART if t // length % 2 == 0 else ALIKE,
    )


APART, ALIKE = beta(0.3, 0.3), beta(20, 20)
STATIONARY = tuple(stream(v.title, lambda t, v=v: v) for v in DISTRIBUTIONS)  # type: ignore[misc]
DRIFTING = (
    *(rising(alike, length) for alike in (1, 4) for length in (100, 500)),
    stream(
        "values grow alike: a + b from 0.5 to 60",
        lambda t: around(0.5, between(0.5, 60, t / STEPS)),
    ),
    stream(
        "values grow apart: a + b from 60 to 0.5",
        lambda t: around(0.5, between(60, 0.5, t / STEPS)),
    ),
    stream(
        "a shift half-way: all 0.5, then Beta(0.3, 0.3)",
        lambda t: constant(0.5) if t < STEPS // 2 else APART,
    ),
    stream(
        "a shift half-way: Beta(0.3, 0.3), then all 0.5",
        lambda t: APART if t < STEPS // 2 else constant(0.5),
    ),
    stream(
        "a rare kind appears half-way: all 0.05, then a share of 0.1 at 0.95",
        lambda t: constant(0.05) if t < STEPS // 2 else two_point(0.05, 0.95, 0.1),
    ),
    stream(
        "a shift half-way: Beta(5, 2), then Beta(0.5, 0.5)",
        lambda t: beta(5, 2) if t < STEPS // 2 else beta(0.5, 0.5),
    ),
    *(alternating(length) for length in (1, 5, 20, 50)),
    stream(
        "curriculum: stages of 50 steps, each from pass rate 0.2 to 0.8",
        lambda t: around(round(0.2 + 0.6 * (t % 50) / 50, 3), (1, 3, 10, 3)[t // 50 % 4]),
    ),
    *(
        stream(
            f"seasons of {period} steps: a + b between 0.6 and 40",
            lambda t, period=period: around(  # type: ignore[misc]
                0.5, between(0.6, 40, 0.5 + 0.5 * sin(2 * pi * t / period))
            ),
        )
        for period in (20, 100)
    ),
    stream(
        "Beta(0.5, 0.5), rewards times 1, then 10, then 0.1",
        lambda t: Step(DISTRIBUTIONS[0], (1.0, 10.0, 0.1)[3 * t // STEPS]),
    ),
    stream(
        "Beta(5, 2), then Beta(0.3, 0.3) with rewards times 0.1",
        lambda t: Step(beta(5, 2)) if t < STEPS // 2 else Step(APART, 0.1),
    ),
    stream(
        "Beta(0.3, 0.3), then Beta(5, 2) with rewards times 0.1",
        lambda t: Step(APART) if t < STEPS // 2 else Step(beta(5, 2), 0.1),
    ),
)
