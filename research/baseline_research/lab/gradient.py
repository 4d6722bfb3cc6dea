"""How far small-batch gradients are from the true one, by estimator: the program `lab gradient`.

The policy gradient of a batch of n prompts with m responses each, with baseline b, is

    g = 1/(n m) sum_ij (r_i^j - b_i^j) grad log pi(y_i^j | x_i)          (the paper's eq. grad)

The true gradient is its limit with infinitely many responses: T = 1/n sum_i grad J_i. No baseline
can reduce the noise that comes from drawing the prompts. So

    D = E ||g - T||^2 = E (||g||^2 - 2 <g, T> + ||T||^2)

is the variance of the gradient given the prompts, plus its squared bias. The paper's distance, to
the gradient of all N prompts, is reported beside it. Adam ignores the length of a gradient, so D is
also reported at the length that minimises it,

    min_c E ||c g - T||^2 = E ||T||^2 (1 - cos^2),    cos^2 = (E <g, T>)^2 / (E ||g||^2 E ||T||^2)

Where a few responses have score gradients much longer than all others, D and this are the figures
of a few batches. Trainers clip the norm of a gradient, so the same is also reported of g / ||g||.

Batches use half of each prompt's responses and T the other half; then the halves swap. The half for
T gives two estimates, T_1 and T_2, each unbiased and independent of the other and of g, so
<g, T_1 + T_2> and <T_1, T_2> estimate 2 <g, T> and ||T||^2.

Estimators with memory see streams of batches, all from this one policy. They are judged in a
stream's first batch, and in its second half. Every prompt in a stream is new to them: otherwise
their memory of a prompt would contain the same responses as its batch.

Axes: N prompts and M responses of the pool, U distinct responses; B batches of n prompts and m
responses; e estimators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from answer_graders.programs.console import progress
from baseline_research.lab.batches import BatchMeans, BatchPlan, measured_names
from baseline_research.lab.pool import Samples
from baseline_research.lab.results import REFERENCE, Ints, LabResult, gradients_of, rows_of
from baseline_research.lab.sampling import sampled
from baseline_research.lab.score_pool import ScorePool, open_score_pool
from baseline_research.lab.settings import LIMIT, ORACLE, GradientSettings
from openrlhf_js.estimators import LiveEstimator, find_estimator
from paired_eval.stats import Estimate
from paired_eval.stats.estimate import Floats

ALL = slice(None)  # all prompts
TINY = np.finfo(float).tiny  # the divisor if all gradients are 0
MIDDLE = "js_fixed 0.5"  # halfway between rloo and bloo: the third point of a sweep's parabolas


def gradients(settings: GradientSettings) -> LabResult:
    """`lab gradient`."""
    check_names(settings.baselines)  # before any work
    samples = sampled(settings)
    names = check_names(settings.baselines, unit=samples.in_unit)
    plan = BatchPlan.of(settings, samples.rewards, settings.steps)
    half = samples.rewards.shape[1] // 2
    if LIMIT in names and max(plan.responses) == half:
        raise ValueError(
            f"{LIMIT} needs responses outside the batch, and m = {half} takes all; give a smaller m"
        )
    pool = open_score_pool(settings, samples)
    result = compare(measure(pool, plan, names), plan)
    return result._replace(notes={**result.notes, **lengths_of(pool)})


class Draws(NamedTuple):
    """Batches, stream by stream; the same for every m and estimator."""

    prompts: Ints
    """(B, n) of each batch, all different."""
    columns: Ints
    """(B, n, M/2) their responses in random order; a batch takes the first m."""
    halves: Ints
    """(B,) which half of the responses the batch is from."""
    steps: Ints
    """(B,) the batch's place in its stream."""


def draw(samples: Samples, plan: BatchPlan) -> Draws:
    """Draws all batches of a plan."""
    prompts, responses = samples.rewards.shape
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
    """Estimates of the prompts' true gradients from one half of the responses."""

    products: Floats
    """(U, N) <s_u, grad J_i>"""
    signals: Floats
    """(N, N) <grad J_i, grad J_k>"""


def truths_of(pool: ScorePool) -> list[Truth]:
    """Truths from the second half of the responses, for batches of the first, and vice versa."""
    half = pool.samples.rewards.shape[1] // 2
    return [truth_of(pool, np.arange(half, 2 * half)), truth_of(pool, np.arange(half))]


def truth_of(pool: ScorePool, columns: NDArray[np.int64]) -> Truth:
    """The truth from these columns of the pool, split in two halves, with rloo on each."""
    first, second = (_true_gradients(pool, part) for part in np.array_split(columns, 2))
    from_first = pool.gram @ first.T
    from_second = pool.gram @ second.T
    return Truth(
        products=((from_first + from_second) / 2).astype(np.float64),
        signals=(second @ from_first).astype(np.float64),
    )


def _true_gradients(pool: ScorePool, columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """(N, U) the weight of each score gradient in an unbiased estimate of each prompt's grad J."""
    rewards = pool.samples.rewards[:, columns]
    weights = (rewards - rewards.mean(1, keepdims=True)) / (len(columns) - 1)
    sums = np.zeros((len(rewards), len(pool.gram)), dtype=np.float32)
    np.add.at(sums, (np.arange(len(rewards))[:, None], pool.places[:, columns]), weights)
    return sums


class Gradients(NamedTuple):
    """Every estimator's gradient of one batch."""

    responses: Ints
    """(n m,) of the batch, among the U different ones."""
    weights: Floats
    """(e, n m) how often each estimator's gradient has each of their score gradients."""
    shrinkage: Floats
    """(e,) mean coefficient; NaN for an estimator that has none."""

    def squared_norms(self, pool: ScorePool) -> Floats:
        """(e,) ||g||^2."""
        gram = pool.gram[np.ix_(self.responses, self.responses)]
        return ((self.weights.astype(np.float32) @ gram) * self.weights).sum(1)

    def products(self, truth: Truth, prompts: Ints | slice) -> Floats:
        """(e,) <g, T>, with T of these prompts."""
        return self.weights @ truth.products[self.responses][:, prompts].mean(1)


class Measured(NamedTuple):
    """The distances and norms measured in all batches."""

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
    squared_norms: Floats
    """(m, e, B) ||g||^2."""
    products: Floats
    """(m, e, B) unbiased estimates of <g, T>."""
    shrinkage: Floats
    """(m, e, B) mean coefficient; NaN for an estimator that has none."""

    @property
    def over(self) -> BatchMeans:
        """Means over the batches."""
        return BatchMeans(self.draws.prompts, len(self.samples.rewards))

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

    def at_best_length(
        self, m: int, name: str, judged: NDArray[np.bool_], *, normalized: bool = False
    ) -> Floats:
        """(judged,) distances of an estimator's gradients times the one factor that fits best;
        `normalized`: of each gradient divided by its norm, or 0 if its square is measured below 0.
        """
        where = self.responses.index(m), self.names.index(name), judged
        squared_norms = self.squared_norms[where]
        products = self.products[where]
        signals = self.distances[where] - squared_norms + 2 * products
        if normalized:
            norms = np.sqrt(np.where(squared_norms > 0, squared_norms, np.inf))
            squared_norms = np.isfinite(norms).astype(float)
            products = products / norms
        factor = products.sum() / max(squared_norms.sum(), TINY)
        return factor**2 * squared_norms - 2 * factor * products + signals


def measure(
    pool: ScorePool, plan: BatchPlan, names: Sequence[str], title: str = "batches"
) -> Measured:
    """The distances of every estimator's gradients."""
    names = tuple(dict.fromkeys(names))
    draws = draw(pool.samples, plan)
    truths = truths_of(pool)
    figures = []
    with progress(title, len(plan.responses) * plan.batches, "batches") as bar:
        for m in plan.responses:
            of_m = []
            for batch, gradients in enumerate(gradients_of_batches(pool, draws, m, names)):
                truth = truths[draws.halves[batch]]
                of_m.append(_figures_of(gradients, pool, truth, draws.prompts[batch]))
                bar.advance()
            figures.append(np.stack(of_m, -1))
    return Measured(names, plan.responses, draws, pool.samples, *np.stack(figures, 1))


def _figures_of(gradients: Gradients, pool: ScorePool, truth: Truth, prompts: Ints) -> Floats:
    """(5, e) the five float arrays of `Measured`, for one batch."""
    squared_norms = gradients.squared_norms(pool)
    products = gradients.products(truth, prompts)
    distances = squared_norms - 2 * products + truth.signals[prompts][:, prompts].mean()
    products_with_all = gradients.products(truth, ALL)
    distances_to_all = squared_norms - 2 * products_with_all + truth.signals.mean()
    return np.stack([distances, distances_to_all, squared_norms, products, gradients.shrinkage])


def gradients_of_batches(
    pool: ScorePool, draws: Draws, m: int, names: Sequence[str]
) -> Iterator[Gradients]:
    """The gradients of every batch; in each stream the estimators start without memory."""
    lengths = pool.samples.lengths
    prompts_of_pool = len(pool.samples.prompts)
    live: dict[str, LiveEstimator] = {}
    for batch, step in enumerate(draws.steps):
        if step == 0:
            live = {name: _live(name) for name in names if name != LIMIT}
        prompts = draws.prompts[batch]
        places = prompts[:, None], draws.columns[batch, :, :m]
        responses = pool.places[places]
        rewards = torch.from_numpy(pool.samples.rewards[places])
        weights = []
        shrinkage = []
        for name in names:
            if name == LIMIT:
                constants = best_constants(pool, prompts, draws.columns[batch, :, m:])
                weights.append((rewards - constants).flatten() / rewards.numel())
                shrinkage.append(np.nan)
                continue
            estimator = live[name]
            given = estimator.batch(
                rewards,
                greedy_rewards=torch.from_numpy(pool.samples.greedy_rewards[prompts]),
                lengths=lengths[places],
                squared_score_norms=pool.weights[responses],
                keys=torch.from_numpy(prompts + batch * prompts_of_pool),  # none repeats
                step=1 + int(step),
            )
            estimate = estimator.estimate(given)
            estimator.learn(given)
            weights.append((given.rewards - estimate.baseline).flatten() / given.rewards.numel())
            shrinkage.append(np.nan)
            if estimate.shrinkage is not None:
                shrinkage[-1] = float(estimate.shrinkage.coefficient.mean())
        yield Gradients(responses.ravel(), torch.stack(weights).numpy(), np.array(shrinkage))


def best_constants(pool: ScorePool, prompts: Ints, columns: Ints) -> torch.Tensor:
    """(n, 1) E[w r] / E[w] of each prompt over these responses (n, K), with w = ||s||^2.

    The mean reward where all w are 0.
    """
    places = prompts[:, None], columns
    rewards = pool.samples.rewards[places]
    squared_norms = pool.gram.diagonal()[pool.places[places]].astype(np.float64)
    total = squared_norms.sum(1)
    weighted = (squared_norms * rewards).sum(1) / np.maximum(total, TINY)
    constants = np.where(total > 0, weighted, rewards.mean(1))
    return torch.from_numpy(constants)[:, None]


def _live(name: str) -> LiveEstimator:
    if name == MIDDLE:
        return LiveEstimator("js_fixed", shrinkage=0.5)
    return LiveEstimator(name)


def check_names(names: Sequence[str], *, unit: bool = True) -> tuple[str, ...]:
    """rloo and these. Raises ValueError for an estimator that cannot be compared; `unit` says
    whether rewards lie in [0, 1]."""
    if "grpo" in names:
        raise ValueError("grpo has another true gradient; take dr_grpo, grpo without its division")
    if ORACLE in names:
        raise ValueError(f"{ORACLE} has a coefficient to choose: lab heterogeneity shows them all")
    return measured_names(names, unit=unit)


def compare(measured: Measured, plan: BatchPlan) -> LabResult:
    """The rows for every estimator at every m."""
    rows = []
    for m, name in product(measured.responses, measured.names):
        rows += rows_of(_quantities(measured, plan, m, name), m=m, estimator=name)
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
    }
    return LabResult(rows, plan.caption(len(measured.samples.prompts)), arrays, notes)


def _quantities(
    measured: Measured, plan: BatchPlan, m: int, name: str
) -> dict[str, Estimate | float]:
    """An estimator's quantities at one m. One with memory is judged in the second half of each
    stream, and in its first batch."""
    place = measured.responses.index(m)
    number = measured.names.index(name)
    distances = measured.of(m, name)
    reference = measured.of(m, REFERENCE)
    to_all = measured.distances_to_all[place].mean(1)
    over = measured.over

    def reduction(batches: NDArray[np.bool_]) -> Estimate:
        return over.some(batches).reduction(distances[batches], reference[batches])

    def reduction_at_best_length(*, normalized: bool) -> Estimate:
        own, others = (
            measured.at_best_length(m, each, judged, normalized=normalized)
            for each in (name, REFERENCE)
        )
        return over.some(judged).reduction(own, others)

    steps = measured.draws.steps
    remembers = name != LIMIT and find_estimator(name).remembers
    judged = steps >= plan.steps / 2 if remembers else steps >= 0
    quantities: dict[str, Estimate | float] = {
        "distance": over.some(judged).mean(distances[judged]),
        "reduction_percent": reduction(judged),
        "reduction_at_best_length_percent": reduction_at_best_length(normalized=False),
        "reduction_normalized_percent": reduction_at_best_length(normalized=True),
        "distance_to_all": to_all[number],
        "reduction_to_all_percent": 100
        * (1 - to_all[number] / to_all[measured.names.index(REFERENCE)]),
        "shrinkage": measured.shrinkage[place, number].mean(),
    }
    if remembers:
        quantities["first_reduction_percent"] = reduction(steps == 0)
    return quantities


def notes_of(measured: Measured, plan: BatchPlan) -> dict[str, Any]:
    """The JSON's notes about batches and samples."""
    return {
        "prompts": len(measured.samples.prompts),
        "batch_prompts": plan.prompts,
        "batches": plan.batches,
        "steps": plan.steps,
        "samples": measured.samples.settings,
    }


def lengths_of(pool: ScorePool) -> dict[str, Any]:
    """The squared length of right responses' score gradients over that of wrong ones', if rewards
    tell them apart: the means, the medians, which no rare long one decides, and the means of the
    weights that log-probabilities give."""
    rewards = pool.samples.rewards
    right = rewards == 1
    wrong = rewards == 0
    if not right.any() or not wrong.any():
        return {}
    squared_norms = pool.gram.diagonal()[pool.places].astype(np.float64)
    weights = pool.weights[pool.places]
    ratios = {
        "squared_norms": squared_norms[right].mean() / squared_norms[wrong].mean(),
        "squared_norm_medians": np.median(squared_norms[right])
        / max(np.median(squared_norms[wrong]), TINY),
        "weights": weights[right].mean() / weights[wrong].mean(),
    }
    return {"right_over_wrong": ratios}
