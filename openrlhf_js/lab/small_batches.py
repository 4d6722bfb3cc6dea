"""Which of a pool's responses make the precise gradient, and which the small batches.

No response does both, so that a small batch tells nothing of the error of what it is compared to.
The first columns of the pool are two halves of the precise gradient; the rest is the reserve that
small batches are drawn from. Axes: N prompts and M responses of the pool; B batches of n prompts
and m responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openrlhf_js.estimators import ESTIMATORS, baseline
from openrlhf_js.estimators.advantages import find_estimator, make_batch
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty.estimate import Floats

Ints = NDArray[np.int64]

MIDDLE = "js_fixed 0.5"
"""The baseline halfway between `rloo` and `bloo`, the third point of `lab sweep`'s parabolas."""
SCALED = {"dr_grpo": "rloo"}
"""Baselines whose advantages are (m - 1) / m times those of another one: they need no passes."""
LEAST_HALF = 2  # responses a prompt; the precise gradient's baseline is rloo
LARGEST_RESERVE = 2 / 3  # of the pool


@dataclass(frozen=True)
class Plan:
    """What small batches to compare.

    Attributes:
        batches: B of them.
        prompts: n of a batch.
        responses: the m to compare, each 2 or more.
        seed: of the draw.
    """

    batches: int = 20
    prompts: int = 64
    responses: tuple[int, ...] = (2, 4, 8)
    seed: int = 0


class Design(NamedTuple):
    """Who is where.

    Attributes:
        half: responses a prompt in each half of the precise gradient: columns 0 to half - 1 are the
            first, half to 2 half - 1 the second.
        prompts: (B, n) the prompts of each batch, all different.
        columns: (B, n, m) their responses, for the largest m; a smaller one takes the first.
        disjoint: whether no response is in two batches.
    """

    half: int
    prompts: Ints
    columns: Ints
    disjoint: bool


def draw(pool_prompts: int, pool_responses: int, plan: Plan) -> Design:
    """Draws the batches.

    Every batch has prompts of its own draw, without replacement, as a step of training has. If two
    thirds of the pool suffice, no response is drawn twice; then the batches are independent draws
    for these N prompts. If not, half of the pool is the reserve, each batch takes different
    responses from it, and two batches may share some: an interval over batches then says what
    other batches from this pool would give, not what another pool would.

    Args:
        pool_prompts: N.
        pool_responses: M.
        plan: what to draw.

    Raises:
        ValueError: the pool is too small, or a number does not make sense.
    """
    n, largest = plan.prompts, max(plan.responses, default=0)
    if min(plan.responses, default=0) < 2:
        raise ValueError(f"every m must be 2 or more, got {list(plan.responses)}: rloo needs it")
    if plan.batches < 2 or n < 2:
        raise ValueError(
            f"needs 2 batches and 2 prompts in each, got {plan.batches} and {n}: one has no "
            "interval, or no other prompt"
        )
    if n > pool_prompts:
        raise ValueError(
            f"a batch of {n} prompts cannot be drawn from {pool_prompts}; take smaller batches or "
            "more prompts"
        )
    if pool_responses < largest + 2 * LEAST_HALF:
        raise ValueError(
            f"m = {largest} needs {largest + 2 * LEAST_HALF} responses a prompt or more, for the "
            f"batches and for the precise gradient; got {pool_responses}. Sample more, or take a "
            "smaller m"
        )
    rng = np.random.default_rng(plan.seed)
    prompts = np.stack(
        [rng.choice(pool_prompts, n, replace=False) for _ in range(plan.batches)]
    ).astype(np.int64)
    uses = np.bincount(prompts.ravel(), minlength=pool_prompts)
    needed = int(uses.max()) * largest
    disjoint = needed <= pool_responses * LARGEST_RESERVE and needed <= (
        pool_responses - 2 * LEAST_HALF
    )
    reserve = needed if disjoint else max(largest, pool_responses // 2)
    half = (pool_responses - reserve) // 2
    if disjoint:
        columns = _dealt(prompts, uses, largest)
    else:
        keys = rng.random((plan.batches, n, pool_responses - 2 * half))
        columns = np.argsort(keys, axis=2)[:, :, :largest]
    return Design(half, prompts, 2 * half + columns, disjoint)


def _dealt(prompts: Ints, uses: Ints, largest: int) -> Ints:
    """(B, n, m) columns of the reserve; each use of a prompt takes the next ones."""
    used = np.zeros_like(uses)
    first = np.empty_like(prompts)
    for batch, chosen in enumerate(prompts):
        first[batch] = used[chosen] * largest
        used[chosen] += 1
    return first[:, :, None] + np.arange(largest)


def batch_rewards(samples: Samples, design: Design, batch: int, m: int) -> Floats:
    """(n, m) rewards of a small batch."""
    rows = design.prompts[batch][:, None]
    return samples.rewards[rows, design.columns[batch, :, :m]]


def batch_baseline(samples: Samples, design: Design, batch: int, m: int, name: str) -> Floats:
    """(n, m) baselines of a small batch.

    Args:
        samples: the pool.
        design: of `draw`.
        batch: its number.
        m: responses a prompt.
        name: of an estimator, or MIDDLE.

    Raises:
        ValueError: as the estimator says.
    """
    rewards = torch.from_numpy(batch_rewards(samples, design, batch, m))
    if name == MIDDLE:
        return baseline("js_fixed", rewards, shrinkage=0.5).numpy()
    greedy = None
    if samples.greedy_rewards is not None:
        greedy = torch.from_numpy(samples.greedy_rewards[design.prompts[batch]])
    return baseline(name, rewards, greedy_rewards=greedy).numpy()


def batch_weights(samples: Samples, design: Design, batch: int, m: int, name: str) -> Floats:
    """(n, m) what each score gradient counts: (r - b) / (n m)."""
    rewards = batch_rewards(samples, design, batch, m)
    return (rewards - batch_baseline(samples, design, batch, m, name)) / rewards.size


def mean_shrinkage(samples: Samples, design: Design, m: int, name: str) -> Floats:
    """(B,) the mean coefficient of each batch, of an estimator that shrinks prompt by prompt.

    Raises:
        ValueError: it is none of those.
    """
    coefficient = find_estimator(name).coefficient
    if coefficient is None:
        known = ", ".join(each for each, estimator in ESTIMATORS.items() if estimator.coefficient)
        raise ValueError(f"{name} has no shrinkage by prompt; those that have: {known}")
    found = []
    for batch in range(len(design.prompts)):
        rewards = torch.from_numpy(batch_rewards(samples, design, batch, m))
        found.append(float(coefficient(make_batch(name, rewards, None, None, None)).mean()))
    return np.array(found)


def check_names(names: tuple[str, ...], samples: Samples) -> None:
    """Refuses baselines that cannot be compared on these samples.

    Raises:
        ValueError: an unknown or repeated name, one that divides advantages by a standard
            deviation, or one that needs what is not there.
    """
    for name in names:
        if name == MIDDLE:
            continue
        estimator = find_estimator(name)
        if name == "grpo":
            raise ValueError(
                "grpo divides each prompt's advantages by their standard deviation, and so has "
                "another true gradient; take dr_grpo, which is grpo without it"
            )
        if estimator.needs_greedy and samples.greedy_rewards is None:
            raise ValueError(f"{name} needs a greedy response to every prompt; sample them too")
        if estimator.needs_shrinkage:
            raise ValueError(f"{name} has a coefficient to choose: lab sweep shows them all")
    if len(set(names)) < len(names):
        raise ValueError(f"each baseline once, please: got {', '.join(names)}")
