"""How far small-batch gradients are from the true one, by estimator: the program `lab gradient`.

The policy gradient of a batch of n prompts with m responses each, with baseline b, is

    g = 1/(n m) sum_ij (r_i^j - b_i^j) grad log pi(y_i^j | x_i)          (the paper's eq. grad)

Its truth is what it would be with endless responses: T = 1/n sum_i grad J_i. Prompts are drawn
whatever the baseline is, and no baseline can lower what that does to the gradient. So

    D = E ||g - T||^2 = E (||g||^2 - 2 <g, T> + ||T||^2)

is the variance of the gradient given the prompts, plus its squared bias. The distance to the
gradient of all N prompts, which is the paper's, is given beside it.

Half of each prompt's responses are for batches, the other half for T, and the next batches take
them the other way round. The T's half gives two estimates, T_1 and T_2, each unbiased and
independent of the other and of g, so <g, T_1 + T_2> and <T_1, T_2> stand for 2 <g, T> and ||T||^2.

Estimators that remember see streams of batches, all from this one policy. They are judged in a
stream's first batch, and in its second half.

Axes: N prompts and M responses of the pool, U different responses; B batches of n prompts and m
responses; e estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import LiveEstimator, find_estimator
from openrlhf_js.lab.mse import left_out
from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import REFERENCE, Ints, LabResult, gradients_of, rows_of
from openrlhf_js.lab.score_pool import ScorePool
from openrlhf_js.stats import Estimate
from openrlhf_js.stats.estimate import Floats, t_estimate

MIDDLE = "js_fixed 0.5"  # halfway between rloo and bloo: the third point of a sweep's parabolas


@dataclass(frozen=True)
class BatchPlan:
    """What batches to compare."""

    batches: int = 2000
    """B, a multiple of the steps."""
    prompts: int = 64
    """n, of a batch."""
    responses: tuple[int, ...] = (2, 4, 8)
    """Every m to be compared."""
    steps: int = 10
    """Batches in a stream."""
    seed: int = 0

    def check(self, prompts: int, responses: int) -> None:
        """Raises ValueError unless a pool of N prompts with M responses each is large enough."""
        if 2 * self.prompts > prompts:
            raise ValueError(
                f"batches of {self.prompts} need {2 * self.prompts} prompts to be drawn from, "
                f"since intervals are over prompts; there are {prompts}"
            )
        if min(self.responses) < 2:
            raise ValueError("m = 1: rloo averages a prompt's other responses; give 2 or more")
        least = max(8, 2 * max(self.responses))
        if responses < least:
            raise ValueError(
                f"m = {max(self.responses)} needs {least} responses to a prompt: half of them are "
                f"for the true gradient; there are {responses}"
            )


class Draws(NamedTuple):
    """Batches, stream by stream. The same for every m and estimator."""

    prompts: Ints
    """(B, n) of each batch, all different."""
    columns: Ints
    """(B, n, M/2) their responses in random order; a batch takes the first m."""
    halves: Ints
    """(B,) which half of the responses the batch is from."""
    steps: Ints
    """(B,) the batch's place in its stream."""


def draw(samples: Samples, plan: BatchPlan) -> Draws:
    """All batches of a plan. Raises ValueError where the pool is too small for it."""
    prompts, responses = samples.rewards.shape
    plan.check(prompts, responses)
    generator = np.random.default_rng(plan.seed)
    steps = np.arange(plan.batches) % plan.steps
    halves = np.arange(plan.batches) // plan.steps % 2
    order = generator.random((plan.batches, prompts)).argsort(1)
    columns = generator.random((plan.batches, plan.prompts, responses // 2)).argsort(2)
    return Draws(
        prompts=order[:, : plan.prompts],
        columns=columns + (halves * (responses // 2))[:, None, None],
        halves=halves,
        steps=steps,
    )


class Truth(NamedTuple):
    """What one half of the responses says of the true gradients of prompts."""

    products: Floats
    """(U, N) <s_u, grad J_i>"""
    signals: Floats
    """(N, N) <grad J_i, grad J_k>"""


def truth_of(pool: ScorePool, columns: NDArray[np.int64]) -> Truth:
    """From these columns of the pool, in two halves, with rloo on each."""
    first, second = (_true_gradients(pool, part) for part in np.array_split(columns, 2))
    from_first = pool.gram @ first.T
    from_second = pool.gram @ second.T
    return Truth(
        products=((from_first + from_second) / 2).astype(np.float64),
        signals=(second @ from_first).astype(np.float64),
    )


def _true_gradients(pool: ScorePool, columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """(N, U) how often each score gradient is in an unbiased estimate of each prompt's grad J."""
    rewards = pool.samples.rewards[:, columns]
    weights = (rewards - rewards.mean(1, keepdims=True)) / (len(columns) - 1)
    sums = np.zeros((len(rewards), len(pool.gram)), dtype=np.float32)
    np.add.at(sums, (np.arange(len(rewards))[:, None], pool.places[:, columns]), weights)
    return sums


class Measured(NamedTuple):
    """What batches came to."""

    names: tuple[str, ...]
    """Of the e estimators."""
    responses: tuple[int, ...]
    """Every m."""
    draws: Draws
    samples: Samples
    distances: Floats
    """(m, e, B) unbiased estimates of D."""
    distances_to_all: Floats
    """(m, e, B) the same of the distance to the gradient of all N prompts."""
    shrinkage: Floats
    """(m, e, B) mean coefficient; NaN for an estimator that has none."""

    def of(self, m: int, name: str) -> Floats:
        """(B,) distances of an estimator. Raises ValueError unless rloo's are positive."""
        at_m = self.distances[self.responses.index(m)]
        reference = at_m[self.names.index(REFERENCE)].mean()
        if not reference > 0:
            raise ValueError(
                f"the mean distance of {REFERENCE} to the true gradient is {reference:.2g}: "
                "each prompt's rewards are all equal, or it is too noisy: sample more responses"
            )
        return at_m[self.names.index(name)]

    def mean(self, values: Floats, batches: NDArray[np.bool_] | None = None) -> Estimate:
        """The mean of a quantity of all batches (B,), or of some."""
        return self.ratio(values, np.ones_like(values), batches)

    def reduction(
        self, values: Floats, reference: Floats, batches: NDArray[np.bool_] | None = None
    ) -> Estimate:
        """By how many percent the mean of values (B,) is below the reference's."""
        ratio = self.ratio(values, reference, batches)
        return Estimate(100 * (1 - ratio.value), 100 * (1 - ratio.high), 100 * (1 - ratio.low))

    def ratio(
        self, values: Floats, reference: Floats, batches: NDArray[np.bool_] | None = None
    ) -> Estimate:
        """The ratio of the means of two quantities of batches, with its interval over prompts."""
        if batches is None:
            batches = np.ones(len(values), dtype=bool)
        values = values[batches]
        reference = reference[batches]
        ratio = float(values.mean() / reference.mean())
        residuals = (values - ratio * reference) / reference.mean()
        prompts = len(self.samples.rewards)
        error = error_over_prompts(residuals, self.draws.prompts[batches], prompts)
        return t_estimate(ratio, error, prompts - 1)


def error_over_prompts(values: Floats, chosen: Ints, prompts: int) -> float:
    """The standard error of the mean of a quantity of batches, over other prompts and draws.

    To first order the mean moves by n/N h_i with prompt i, where h_i is the mean of the batches
    that have this prompt, less that of all (Hoeffding; with n of N prompts drawn without
    replacement, times (N - 1)/(N - n)). What the draws of finitely many batches add to the spread
    of the h_i is subtracted.

    Args:
        values: (B,) of batches.
        chosen: (B, n) the prompts of each batch, all different.
        prompts: N.
    """
    n = chosen.shape[1]

    def sums(of_batches: Floats) -> Floats:
        return np.bincount(chosen.ravel(), np.repeat(of_batches, n), prompts).astype(np.float64)

    deviations = values - values.mean()
    counts = np.maximum(sums(np.ones_like(values)), 2)
    effects = sums(deviations) / counts
    noise = (sums(deviations**2) / counts - effects**2) / (counts - 1)
    spread = max(0.0, float((effects**2 - noise).mean()))
    over_prompts = n**2 / prompts * spread * ((prompts - 1) / (prompts - n)) ** 2
    return float(np.sqrt(over_prompts + deviations.var() / len(values)))


def measure(
    pool: ScorePool, plan: BatchPlan, names: Sequence[str], title: str = "batches"
) -> Measured:
    """The distances of every estimator's gradients."""
    names = tuple(dict.fromkeys(names))
    draws = draw(pool.samples, plan)
    half = pool.samples.rewards.shape[1] // 2
    truths = [truth_of(pool, np.arange(half, 2 * half)), truth_of(pool, np.arange(half))]
    shape = len(plan.responses), len(names), plan.batches
    distances = np.empty(shape)
    distances_to_all = np.empty(shape)
    shrinkage = np.empty(shape)
    with progress(title, len(plan.responses) * plan.batches, "batches") as bar:
        for place, m in enumerate(plan.responses):
            batches = _batches(pool, draws, m, names)
            for batch, (index, weights, coefficients) in enumerate(batches):
                gram = pool.gram[np.ix_(index, index)]
                squared_norms = ((weights.astype(np.float32) @ gram) * weights).sum(1)
                products, signals = truths[draws.halves[batch]]
                of_batch = draws.prompts[batch]
                for rows, to in ((of_batch, distances), (slice(None), distances_to_all)):
                    with_truth = weights @ products[index][:, rows].mean(1)
                    signal = signals[rows][:, rows].mean()
                    to[place, :, batch] = squared_norms - 2 * with_truth + signal
                shrinkage[place, :, batch] = coefficients
                bar.advance()
    return Measured(
        names, plan.responses, draws, pool.samples, distances, distances_to_all, shrinkage
    )


def _batches(
    pool: ScorePool, draws: Draws, m: int, names: Sequence[str]
) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Of every batch: its responses (n m,) among the different ones, how often each estimator's
    gradient has each of them (e, n m), and each one's mean coefficient (e,)."""
    makers = [_live_maker(name, pool, m) for name in names]
    lengths = pool.samples.lengths
    live: list[LiveEstimator] = []
    for batch, prompts in enumerate(draws.prompts):
        if draws.steps[batch] == 0:
            live = [make() for make in makers]
        rows = prompts[:, None]
        columns = draws.columns[batch, :, :m]
        rewards = torch.from_numpy(pool.samples.rewards[rows, columns])
        index = pool.places[rows, columns]
        weights = []
        coefficients = []
        for estimator in live:
            given = estimator.batch(
                rewards,
                greedy_rewards=torch.from_numpy(pool.samples.greedy_rewards[prompts]),
                lengths=lengths[rows, columns],
                squared_score_norms=pool.weights[index],
                keys=torch.from_numpy(prompts),
                step=1 + int(draws.steps[batch]),
            )
            estimate = estimator.estimate(given)
            estimator.learn(given)
            weights.append((rewards - estimate.baseline).flatten() / rewards.numel())
            coefficient = np.nan
            if estimate.shrinkage is not None:
                coefficient = float(estimate.shrinkage.coefficient.mean())
            coefficients.append(coefficient)
        yield index.ravel(), torch.stack(weights).numpy(), np.array(coefficients)


def _live_maker(name: str, pool: ScorePool, m: int) -> Callable[[], LiveEstimator]:
    """Makes an estimator as it is before a stream; of the past, it knows m rewards a prompt."""

    def make() -> LiveEstimator:
        if name == MIDDLE:
            return LiveEstimator("js_fixed", shrinkage=0.5)
        live = LiveEstimator(name)
        past = pool.samples.past
        if past is not None:
            known = live.batch(
                past[:, :m],
                squared_score_norms=np.full((len(past), m), pool.weights.mean()),
                keys=torch.arange(len(past)),
                step=0,
            )
            live.start(known)
        return live

    return make


def check_names(names: Sequence[str], samples: Samples | None = None) -> None:
    """Raises ValueError for estimators that cannot be compared: at all, or on these samples."""
    in_unit = samples is None or (samples.rewards.min() >= 0 and samples.rewards.max() <= 1)
    reasons = left_out(2, past=True, unit=bool(in_unit))
    reasons["grpo"] = "has another true gradient; take dr_grpo, which is grpo without its division"
    reasons["js_fixed"] = "has a coefficient to choose: lab sweep shows them all"
    for name in names:
        find_estimator(name)
        if name in reasons:
            raise ValueError(f"{name} {reasons[name]}")


def compare(measured: Measured, pool: ScorePool, plan: BatchPlan) -> LabResult:
    """The result of `lab gradient`."""
    rows = []
    first = measured.draws.steps == 0
    late = measured.draws.steps >= plan.steps / 2
    to_all = measured.distances_to_all.mean(2)
    for (place, m), (name_place, name) in product(
        enumerate(plan.responses), enumerate(measured.names)
    ):
        reference = measured.of(m, REFERENCE)
        distances = measured.of(m, name)
        remembers = find_estimator(name).remembers
        judged = late if remembers else None
        reference_to_all = to_all[place, measured.names.index(REFERENCE)]
        quantities: dict[str, Estimate | float] = {
            "distance": measured.mean(distances, judged),
            "reduction_percent": measured.reduction(distances, reference, judged),
            "distance_to_all": to_all[place, name_place],
            "reduction_to_all_percent": 100 * (1 - to_all[place, name_place] / reference_to_all),
            "shrinkage": measured.shrinkage[place, name_place].mean(),
        }
        if remembers:
            quantities["first_reduction_percent"] = measured.reduction(distances, reference, first)
        rows += rows_of(quantities, m=m, estimator=name)
    arrays = {
        "estimators": np.array(measured.names),
        "m": np.array(plan.responses),
        "prompts": measured.draws.prompts,
        "distances": measured.distances,
        "distances_to_all": measured.distances_to_all,
    }
    notes = {
        "gradients": gradients_of(measured.names),
        **notes_of(measured, plan),
        **_lengths_of(pool),
    }
    return LabResult(rows, caption_of(measured, plan), arrays, notes)


def caption_of(measured: Measured, plan: BatchPlan) -> str:
    """What was measured, and what intervals are over."""
    return (
        f"{plan.batches} batches of {plan.prompts} of {len(measured.samples.prompts)} prompts; "
        "95 % intervals over prompts; reductions against rloo"
    )


def notes_of(measured: Measured, plan: BatchPlan) -> dict[str, Any]:
    """What the JSON says of batches and samples."""
    return {
        "prompts": len(measured.samples.prompts),
        "batch_prompts": plan.prompts,
        "batches": plan.batches,
        "steps": plan.steps,
        "samples": measured.samples.settings,
    }


def _lengths_of(pool: ScorePool) -> dict[str, Any]:
    """How long score gradients of right responses are beside those of wrong ones, where rewards
    tell them apart: squared, and by the weights that log-probabilities give."""
    rewards = pool.samples.rewards
    right = rewards == 1
    wrong = rewards == 0
    if not right.any() or not wrong.any():
        return {}
    lengths = {"squared_norms": pool.squared_norms, "weights": pool.weights[pool.places]}
    ratios = {name: values[right].mean() / values[wrong].mean() for name, values in lengths.items()}
    return {"right_over_wrong": ratios}
