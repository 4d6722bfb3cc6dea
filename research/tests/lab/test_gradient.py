"""Distances of batches' gradients to the true one."""

import numpy as np
import pytest
import torch

from baseline_research.lab.batches import BatchPlan
from baseline_research.lab.gradient import (
    Draws,
    Measured,
    compare,
    draw,
    lengths_of,
    measure,
)
from baseline_research.lab.pool import Samples
from baseline_research.lab.score_pool import ScorePool, different_responses
from baseline_research.lab.settings import LIMIT
from openrlhf_js.estimators import LiveEstimator, baseline
from paired_eval.sampling.prompts import Prompt

NAMES = ("rloo", "js", "bloo", "dr_grpo", "reinforce++", "remax")
PLAN = BatchPlan(batches=8, prompts=3, responses=(2, 3), steps=2, seed=5)


def pool_of(samples, own):
    """The pool with exact products of score gradients (N, M, parameters)."""
    different, places = different_responses(samples)
    vectors = np.zeros((len(different), own.shape[2]))
    vectors[places] = own
    gram = (vectors @ vectors.T).astype(np.float32)
    return ScorePool(samples, places, gram, weights=np.ones(len(different)))


def rloo_gradients(samples, own, columns):
    """(N, parameters) each prompt's gradient by a loop, with each reward's own leave-one-out
    mean."""
    total = np.zeros((len(own), own.shape[2]))
    for i in range(len(own)):
        for j in columns:
            others = [samples.rewards[i, k] for k in columns if k != j]
            total[i] += (samples.rewards[i, j] - np.mean(others)) * own[i, j] / len(columns)
    return total


def test_it_matches_brute_force(samples, own):
    measured = measure(pool_of(samples, own), PLAN, NAMES)
    draws = measured.draws
    half = samples.rewards.shape[1] // 2
    halves = np.arange(half), np.arange(half, 2 * half)
    for place, m in enumerate(PLAN.responses):
        for batch in range(PLAN.batches):
            chosen = draws.prompts[batch]
            columns = draws.columns[batch, :, :m]
            mine = draws.halves[batch]
            assert set(columns.ravel()) <= set(halves[mine])
            rewards = torch.from_numpy(samples.rewards[chosen[:, None], columns])
            first, second = (
                rloo_gradients(samples, own, part) for part in np.array_split(halves[1 - mine], 2)
            )
            for name_place, name in enumerate(NAMES):
                greedy = torch.from_numpy(samples.greedy_rewards[chosen])
                baselines = baseline(name, rewards, greedy_rewards=greedy)
                weights = ((rewards - baselines) / rewards.numel()).numpy()
                g = np.einsum("ij,ijp->p", weights, own[chosen[:, None], columns])
                for rows, distances in (
                    (chosen, measured.distances),
                    (slice(None), measured.distances_to_all),
                ):
                    expected = (g - first[rows].mean(0)) @ (g - second[rows].mean(0))
                    found = distances[place, name_place, batch]
                    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_limit_is_the_best_constant_of_responses_outside_the_batch(samples, own):
    measured = measure(pool_of(samples, own), PLAN, ["rloo", LIMIT])
    half = samples.rewards.shape[1] // 2
    norms = (own**2).sum(-1)
    for batch in range(PLAN.batches):
        chosen = measured.draws.prompts[batch]
        g = np.zeros(own.shape[2])
        for prompt, columns in zip(chosen, measured.draws.columns[batch], strict=True):
            outside = columns[2:]
            constant = (norms[prompt, outside] * samples.rewards[prompt, outside]).sum()
            constant /= norms[prompt, outside].sum()
            for column in columns[:2]:
                g += (samples.rewards[prompt, column] - constant) * own[prompt, column] / 6
        of_truth = np.arange(half) + half * (1 - measured.draws.halves[batch])
        first, second = (
            rloo_gradients(samples, own, part)[chosen].mean(0)
            for part in np.array_split(of_truth, 2)
        )
        expected = (g - first) @ (g - second)
        assert measured.distances[0, 1, batch] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    rows = compare(measured, PLAN)
    assert rows.notes["gradients"][LIMIT] == "oracle"


def coins(generator, prompts, responses):
    """Tosses of coins, whose sides are responses 0 and 1 and pay 0 and 1, with the products of
    their score gradients: each coin has a parameter, and the scores of its sides are -1/2, 1/2."""
    tosses = generator.integers(0, 2, (prompts, responses))
    samples = Samples(
        prompts=[Prompt(f"coin {i}", "", "", [i]) for i in range(prompts)],
        response_tokens=[[[toss] for toss in row] for row in tosses.tolist()],
        rewards=tosses.astype(float),
        finished=np.ones(tosses.shape, dtype=bool),
        greedy_rewards=np.ones(prompts),
        settings={},
    )
    own = np.zeros((prompts, responses, prompts))
    own[np.arange(prompts), :, np.arange(prompts)] = tosses - 0.5
    return pool_of(samples, own)


def test_distances_are_those_to_the_true_gradient():
    """grad J of a coin is 1/4 in its own parameter. With two tosses of n coins, rloo's gradient is
    (r_1 - r_2)^2 / (2 n) in that of each, with a mean of 1/(4 n) and a mean square of 1/(8 n^2);
    so with n = 4 of N = 8

        E ||g||^2 = 1/(8 n)        D = 1/(8 n) - 1/(16 n)        to all: 1/(8 n) - 1/(16 N)
    """
    generator = np.random.default_rng(1)
    plan = BatchPlan(batches=20, prompts=4, responses=(2,), steps=1)
    given_prompts = []
    to_all = []
    for _ in range(150):
        measured = measure(coins(generator, prompts=8, responses=12), plan, ["rloo"])
        given_prompts.append(measured.distances.mean())
        to_all.append(measured.distances_to_all.mean())
    assert np.mean(given_prompts) == pytest.approx(1 / 64, rel=0.08)
    assert np.mean(to_all) == pytest.approx(1 / 32 - 1 / 128, rel=0.08)


def test_draws_are_different_prompts_and_halves_take_turns(samples):
    plan = BatchPlan(batches=12, prompts=3, responses=(2, 15), steps=3)
    draws = draw(samples, plan)
    assert all(len(set(chosen)) == 3 for chosen in draws.prompts.tolist())
    assert draws.halves.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert draws.steps.tolist() == [0, 1, 2] * 4
    assert sorted(draws.columns[0, 1]) == list(range(15))
    assert sorted(draws.columns[3, 0]) == list(range(15, 30))


def test_estimators_that_remember_see_streams(samples, own):
    """Their memory begins anew in each, and what they know is of the stream's earlier batches, with
    the weights of log-probabilities. A prompt that a stream draws again is a new one."""
    pool = pool_of(samples, own)
    pool = pool._replace(weights=np.arange(1.0, len(pool.gram) + 1))
    measured = measure(pool, PLAN, ["rloo", "js_grad"])
    first = measured.draws.steps == 0
    live = LiveEstimator("js_grad")
    for batch in (2, 3):  # the second stream
        chosen = measured.draws.prompts[batch]
        places = chosen[:, None], measured.draws.columns[batch, :, :3]
        given = live.batch(
            torch.from_numpy(samples.rewards[places]),
            squared_score_norms=pool.weights[pool.places[places]],
            keys=torch.from_numpy(chosen + batch * len(samples.prompts)),
            step=batch - 1,
        )
        advantages = live.estimate(given).advantages.numpy()
        live.learn(given)
        g = np.einsum("ij,ijp->p", advantages / advantages.size, own[places])
        halves = np.array_split(np.arange(15) + 15 * (1 - measured.draws.halves[batch]), 2)
        truths = [rloo_gradients(samples, own, part)[chosen].mean(0) for part in halves]
        expected = (g - truths[0]) @ (g - truths[1])
        assert measured.distances[1, 1, batch] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    rows = {}
    for row in compare(measured, PLAN).rows:
        rows[row.settings["m"], row.settings["estimator"], row.quantity] = row.value
    for quantity, batches in (("reduction_percent", ~first), ("first_reduction_percent", first)):
        distances = measured.distances[1][:, batches].mean(1)
        expected = 100 * (1 - distances[1] / distances[0])
        assert rows[3, "js_grad", quantity] == pytest.approx(expected)
    assert (3, "rloo", "first_reduction_percent") not in rows


def made(distances, samples, plan, squared_norms=None, products=None):
    """A measurement with these distances (m, 2, B), of rloo and js."""
    batches = distances.shape[2]
    return Measured(
        names=("rloo", "js"),
        responses=plan.responses,
        draws=Draws(
            prompts=np.arange(batches)[:, None] + np.arange(2) % len(samples.prompts),
            columns=np.zeros((batches, 2, 4), dtype=int),
            halves=np.zeros(batches, dtype=int),
            steps=np.zeros(batches, dtype=int),
        ),
        samples=samples,
        distances=distances,
        distances_to_all=distances + 1,
        squared_norms=np.ones_like(distances) if squared_norms is None else squared_norms,
        products=np.ones_like(distances) if products is None else products,
        shrinkage=np.full(distances.shape, 0.25),
    )


def test_shorter_gradients_are_no_nearer_at_their_best_length(samples):
    """js has rloo's gradients, half as long, which is nearer; where its products are 1.1 times as
    large, it points nearer: cos^2 is 0.5 of rloo and 0.605 of js."""
    squared_norms = np.array([[[7.0, 9.0], [7.0, 9.0]]]) * [[1], [0.25]]
    products = np.array([[[3.0, 5.0], [3.0, 5.0]], [[3.0, 5.0], [3.3, 5.5]]]) * [[1], [0.5]]
    plan = BatchPlan(2, 2, (2,))
    for product, wanted in zip(products, (0, 100 * (1 - 0.395 / 0.5)), strict=True):
        distances = squared_norms - 2 * product + 4
        measured = made(distances, samples, plan, squared_norms, product[None])
        rows = {row.quantity: row for row in compare(measured, plan).rows}  # the last is of js
        assert rows["reduction_percent"].value > 30
        assert rows["reduction_at_best_length_percent"].value == pytest.approx(wanted)


def test_a_rare_long_gradient_does_not_decide_where_each_is_divided_by_its_norm(samples):
    """js has rloo's gradients, but for the first, which is ten times as long. Of cos^2, 0.25 of
    rloo, the long one leaves js little; divided by their norms, the two are equal."""
    squared_norms = np.array([[[4.0, 4.0], [400.0, 4.0]]])
    products = np.array([[[2.0, 2.0], [20.0, 2.0]]])
    distances = squared_norms - 2 * products + 4
    plan = BatchPlan(2, 2, (2,))
    measured = made(distances, samples, plan, squared_norms, products)
    rows = {row.quantity: row.value for row in compare(measured, plan).rows}  # the last is of js
    cos2 = (20 + 2) ** 2 / ((400 + 4) * (4 + 4))
    wanted = 100 * (1 - (1 - cos2) / (1 - 0.25))
    assert rows["reduction_at_best_length_percent"] == pytest.approx(wanted)
    assert rows["reduction_normalized_percent"] == pytest.approx(0)


def test_a_gradient_whose_squared_norm_is_measured_below_0_counts_as_0(samples):
    """js has rloo's gradients, but for the second, whose norm is lost in noise."""
    squared_norms = np.array([[[4.0, 4.0], [4.0, -0.1]]])
    products = np.array([[[2.0, 2.0], [2.0, 0.1]]])
    plan = BatchPlan(2, 2, (2,))
    distances = squared_norms - 2 * products + 4
    measured = made(distances, samples, plan, squared_norms, products)
    rows = {row.quantity: row.value for row in compare(measured, plan).rows}  # the last is of js
    wanted = 100 * (1 - ((4 - 1) + 4) / (2 * (4 - 1)))
    assert rows["reduction_normalized_percent"] == pytest.approx(wanted)


def test_rows_and_caption(samples):
    rloo = np.array([[4.0, 6.0, 5.0, 5.0], [2.0, 2.0, 3.0, 1.0]])
    plan = BatchPlan(4, 2, (2, 4))
    measured = made(np.stack([rloo, 0.9 * rloo], 1), samples, plan)
    result = compare(measured, plan)
    rows = {}
    for row in result.rows:
        rows[row.settings["m"], row.settings["estimator"], row.quantity] = row
    assert rows[2, "rloo", "distance"].value == pytest.approx(5.0)
    assert rows[2, "rloo", "reduction_percent"].value == 0
    assert rows[4, "js", "reduction_percent"].value == pytest.approx(10)
    assert rows[4, "js", "reduction_percent"].high == pytest.approx(10)  # in every batch
    assert rows[2, "js", "reduction_to_all_percent"].value == pytest.approx(100 * 0.5 / 6)
    assert rows[2, "js", "shrinkage"].value == 0.25
    assert result.notes["gradients"]["js"] == "unbiased"
    assert result.caption.startswith("4 batches of 2 of 6 prompts; 95 % intervals over prompts")


def test_lengths_of_right_over_wrong(samples):
    rewards = np.array([[1.0, 0.0, 0.0, 0.0]])
    places = np.array([[0, 1, 1, 2]])  # the last is a rare long one
    pool = ScorePool(
        samples._replace(rewards=rewards), places, np.diag([2.0, 8.0, 32.0]), np.array([1.0, 2, 5])
    )
    ratios = {"squared_norms": 0.125, "squared_norm_medians": 0.25, "weights": 1 / 3}
    assert lengths_of(pool)["right_over_wrong"] == pytest.approx(ratios)
    alike = samples._replace(rewards=np.ones_like(rewards))
    assert lengths_of(pool._replace(samples=alike)) == {}
