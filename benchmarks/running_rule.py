"""js_plus with a history, for many streams and half-lives at once, in numpy.

The same as `openrlhf_js.estimators.history`, which `check` compares it with. Axes: h half-lives,
r streams, n prompts. The streams may differ in the number of responses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from openrlhf_js.estimators import start_history, update_history
from openrlhf_js.estimators.coefficients import GUARD
from openrlhf_js.estimators.group_stats import group_statistics
from openrlhf_js.estimators.history import (
    OTHER_UNITS,
    STANDARD_ERRORS,
    rule_weights,
    running_coefficient,
)

PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


class Groups(NamedTuple):
    """One step: (r, n) means and variances of prompt groups, and what the other prompts show."""

    mean: np.ndarray
    variance: np.ndarray
    m: np.ndarray
    """(r, 1) responses to each prompt."""
    others_mean: np.ndarray
    dispersion: np.ndarray
    """Unbiased variance of the other prompts' means."""
    sigma2: np.ndarray
    """Mean variance of the other prompts."""


def groups(mean: np.ndarray, variance: np.ndarray, m: np.ndarray) -> Groups:
    p = mean.shape[1] - 1
    center = mean.mean(1, keepdims=True)
    deviation = mean - center
    total, squares = deviation.sum(1, keepdims=True), (deviation**2).sum(1, keepdims=True)
    others = (total - deviation) / p
    dispersion = (squares - deviation**2 - p * others**2).clip(0) / max(1, p - 1)
    sigma2 = (variance.sum(1, keepdims=True) - variance).clip(0) / p
    return Groups(mean, variance, m, center + others, dispersion, sigma2)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, 1.0)


def js(step: Groups) -> np.ndarray:
    p, v = step.mean.shape[1] - 1, step.sigma2 / step.m
    return p / (p + 1) * ratio(v, v + step.dispersion * (p - 1) / p)


def plus(step: Groups, net: np.ndarray, sigma2: np.ndarray, guard: np.ndarray) -> np.ndarray:
    p, m = step.mean.shape[1] - 1, step.m
    s2 = net.clip(0) + guard * sigma2
    v2 = sigma2 / (m - 1)
    return ratio(v2, v2 + s2 * (1 + 1 / p) + step.sigma2 / m / p)


def js_plus(step: Groups) -> np.ndarray:
    p = step.mean.shape[1] - 1
    net = step.dispersion - step.sigma2 / step.m
    return plus(step, net, step.sigma2, np.asarray(GUARD / (GUARD + (p - 1) ** 0.5)))


class Running:
    """The histories of r streams, each with h half-lives."""

    def __init__(self, half_lives: tuple[float, ...], streams: int):
        shape = (len(half_lives), streams)
        self.weight = 0.5 ** (1 / np.array(half_lives))[:, None]
        self.batches = np.zeros((len(half_lives), 1))
        self.prompts, self.degrees = self.batches.copy(), self.batches.copy()
        self.variance, self.net = np.zeros(shape), np.zeros(shape)
        self.gain, self.cost = np.zeros((3, *shape)), np.zeros((6, *shape))

    def pooled(self, step: Groups) -> np.ndarray:
        """(h, r, n) the coefficient by today's other prompts and earlier ones."""
        p = step.mean.shape[1] - 1
        degrees = self.degrees[..., None]
        today = step.dispersion - step.sigma2 / step.m
        net = ((p - 1) * today + self.net[..., None]) / (p - 1 + degrees).clip(1e-300)
        margin = 1 + STANDARD_ERRORS * (2 / max(1, p - 1)) ** 0.5
        net = np.maximum(net, step.dispersion / margin - step.sigma2 / step.m)
        sigma2 = (p * step.sigma2 + self.variance[..., None]) / (p + self.prompts[..., None])
        return plus(step, net, sigma2, GUARD / (GUARD + (p - 1 + degrees**2) ** 0.5))

    def weights(self) -> np.ndarray:
        """(3, h, r) of the pooled coefficient, js and js_plus."""
        c00, c01, c02, c11, c12, c22 = self.cost
        xx, yy, xy = c00 + c11 - 2 * c01, c00 + c22 - 2 * c02, c00 + c12 - c01 - c02
        prior = (xx + yy) / 2 / self.batches.clip(1e-300)
        known = prior > 0
        sx, sy = (self.gain[k] - self.gain[0] - (c - c00) for k, c in ((1, c01), (2, c02)))
        xx, yy = np.where(known, xx + prior, 1.0), np.where(known, yy + prior, 1.0)
        determinant = xx * yy - xy * xy
        safe = np.where(determinant > 0, determinant, 1.0)
        x, y = (sx * yy - sy * xy) / safe, (sy * xx - sx * xy) / safe
        inside = (determinant > 0) & (x >= 0) & (y >= 0) & (x + y <= 1)
        across = xx + yy - 2 * xy
        along = np.where(across > 0, (sx - sy - xy + yy) / np.where(across > 0, across, 1), 0)
        along = along.clip(0, 1)
        zero = np.zeros_like(xx)
        xs = np.stack([(sx / xx).clip(0, 1), zero, along])
        ys = np.stack([zero, (sy / yy).clip(0, 1), 1 - along])
        losses = xs**2 * xx + 2 * xs * ys * xy + ys**2 * yy - 2 * (xs * sx + ys * sy)
        edge = losses.argmin(0)[None]
        x = np.where(inside, x, np.take_along_axis(xs, edge, 0)[0])
        y = np.where(inside, y, np.take_along_axis(ys, edge, 0)[0])
        return np.where(known, np.stack([1 - x - y, x, y]), np.array([1.0, 0, 0])[:, None, None])

    def update(self, step: Groups, rules: tuple[np.ndarray, ...]) -> None:
        """Adds a step whose three coefficients, each broadcastable to (h, r, n), are `rules`."""
        n, m = step.mean.shape[1], step.m
        noise = step.variance.mean(1)
        net = step.mean.var(1, ddof=1) - noise / m[:, 0]
        self.to_units(noise + net.clip(0))
        self.batches += 1
        self.prompts += n
        self.degrees += n - 1
        self.variance += n * noise
        self.net += (n - 1) * net
        v2 = step.variance / (m - 1)
        both = v2 + (step.mean - step.others_mean) ** 2 - step.variance / m
        self.gain += np.stack([(rule * v2).sum(-1) * np.ones_like(self.net) for rule in rules])
        costs = [(rules[k] * rules[i] * both).sum(-1) for k, i in PAIRS]
        self.cost += np.stack([cost * np.ones_like(self.net) for cost in costs])
        for name in ("batches", "prompts", "degrees", "variance", "net", "gain", "cost"):
            setattr(self, name, getattr(self, name) * self.weight)

    def to_units(self, spread: np.ndarray) -> None:
        """Makes the sums smaller where rewards have become much smaller; (r,) their spread."""
        earlier = self.variance / self.prompts.clip(1e-300)
        earlier = earlier + self.net.clip(0) / self.degrees.clip(1e-300)
        smaller = (spread > 0) & (spread < earlier / OTHER_UNITS)
        factor = np.where(smaller, ratio(spread, earlier), 1.0)
        for sums in (self.variance, self.net, self.gain, self.cost):
            sums *= factor

    def shrunk(self, step: Groups) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """(h, r, n) lambda of `js_plus` with its history, and the three it is mixed of."""
        rules = (self.pooled(step), js(step), js_plus(step))
        weights = self.weights()[..., None]
        return sum(w * rule for w, rule in zip(weights, rules, strict=True)), rules


def check() -> None:
    """Compare what is computed here with the package's coefficients, on three short streams."""
    n, m, half_life = 5, 4, 3.0
    generator = np.random.default_rng(0)
    ours = Running((half_life,), 3)
    histories = [start_history(half_life)] * 3
    for scale in (1.0,) * 9 + (0.1,) * 3:
        values = generator.beta(0.5, 0.5, (3, n, 1))
        rewards = scale * (generator.random((3, n, m)) < values)
        step = groups(rewards.mean(2), rewards.var(2, ddof=1), np.full((3, 1), m))
        shrinkage, rules = ours.shrunk(step)
        weights = ours.weights()
        for r in range(3):
            batch = torch.from_numpy(rewards[r])
            package = running_coefficient(group_statistics(batch), histories[r])
            np.testing.assert_allclose(shrinkage[0, r], package, atol=1e-9)
            np.testing.assert_allclose(weights[:, 0, r], rule_weights(histories[r]), atol=1e-6)
            histories[r] = update_history(histories[r], batch)
        ours.update(step, rules)
