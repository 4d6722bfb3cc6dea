"""What mixing tasks or difficulties does: each group of prompts by itself, and the mix of all.

A mix whose values differ more between prompts (a larger s) calls for less shrinkage; a mix of
tasks that are alike in value but not in kind calls for as much, and may save less of the
gradient's variance (the paper's appendices on heterogeneity).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js.lab import sweep
from openrlhf_js.lab.gradient import Measured
from openrlhf_js.lab.gradient_summary import (
    REFERENCE,
    intervals,
    precision,
    reduction,
    saved_of,
    squared_errors,
)
from openrlhf_js.lab.reductions import listed, percent
from openrlhf_js.lab.small_batches import Ints, Plan, draw, mean_shrinkage
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty import Estimate, clustered_mean
from openrlhf_js.uncertainty.estimate import Floats

MIX = "mix"
SPOKEN = "js"


class Moments(NamedTuple):
    """What prompts' values are like.

    Attributes:
        value: mean over prompts, with its interval.
        v: mean squared standard error of a leave-one-out prompt mean, sigma^2 / (m - 1).
        s: variance of the values between prompts, without the noise of their means.
    """

    value: Estimate
    v: float
    s: float


def sets(groups: Sequence[str]) -> dict[str, Ints]:
    """Rows of the pool for each group by itself and for the mix, about equally many of each.

    A group gives as many prompts as the smallest one has, its first; the mix takes equal shares.

    Args:
        groups: of each prompt.

    Raises:
        ValueError: there is one group only, or a group has too few prompts for a share of the mix.
    """
    names = sorted(set(groups))
    if len(names) < 2:
        raise ValueError(
            f"all {len(groups)} prompts are of one group, {names[:1]}; give prompts of two or more "
            "groups (a column that --group_key names, or several files)"
        )
    if MIX in names:
        raise ValueError(f"a group is called {MIX!r}, as the mix of all groups is; rename it")
    rows = {
        name: np.array([i for i, group in enumerate(groups) if group == name]) for name in names
    }
    least = min(names, key=lambda name: len(rows[name]))
    size = len(rows[least])
    if size // len(names) < 1:
        raise ValueError(
            f"group {least!r} has {size} prompts, too few for a mix of {len(names)} groups; give "
            f"{len(names)} or more of each"
        )
    found = {name: rows[name][:size] for name in names}
    shares = [found[name][: size // len(names)] for name in names]
    return {**found, MIX: np.concatenate(shares)}


def select(samples: Samples, rows: Ints) -> Samples:
    """The samples of some prompts."""
    greedy = samples.greedy_rewards
    return samples._replace(
        prompts=[samples.prompts[i] for i in rows],
        labels=[samples.labels[i] for i in rows],
        groups=[samples.groups[i] for i in rows],
        prompt_tokens=[samples.prompt_tokens[i] for i in rows],
        response_tokens=[samples.response_tokens[i] for i in rows],
        rewards=samples.rewards[rows],
        finished=samples.finished[rows],
        greedy_rewards=None if greedy is None else greedy[rows],
    )


def joined(parts: Mapping[str, Samples]) -> Samples:
    """Samples of one policy for several files, each a group.

    Args:
        parts: by the name of the group.
    """
    several = list(parts.values())
    greedy = [each.greedy_rewards for each in several]
    known = [each for each in greedy if each is not None]
    return Samples(
        prompts=[each for part in several for each in part.prompts],
        labels=[each for part in several for each in part.labels],
        groups=[name for name, part in parts.items() for _ in part.prompts],
        prompt_tokens=[each for part in several for each in part.prompt_tokens],
        response_tokens=[each for part in several for each in part.response_tokens],
        rewards=np.concatenate([each.rewards for each in several]),
        finished=np.concatenate([each.finished for each in several]),
        greedy_rewards=np.concatenate(known) if len(known) == len(greedy) else None,
        settings={**several[0].settings, "groups": {k: v.settings for k, v in parts.items()}},
    )


def moments(rewards: Floats, m: int) -> Moments:
    """The moments of prompts' values.

    Args:
        rewards: (prompts, responses), all of the pool.
        m: responses a prompt in a batch.
    """
    means, variance = rewards.mean(1), rewards.var(1, ddof=1).mean()
    between = means.var(ddof=1) - variance / rewards.shape[1]
    return Moments(clustered_mean(means), float(variance / (m - 1)), float(max(0.0, between)))


def compare(
    samples: Samples,
    plan: Plan,
    measure: Callable[[Samples, str], Measured],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Summary and arrays of `lab heterogeneity`.

    Args:
        samples: of several groups.
        plan: the batches of every set; of one m.
        measure: the distances of `sweep.SWEPT` for the samples of one set, which it is given with
            its name.

    Raises:
        ValueError: see `sets` and `gradient_summary.reduction`.
    """
    rows, curves, precise, disjoint = [], [], {}, True
    of_sets = sets(samples.groups)
    for name, chosen in of_sets.items():
        own = select(samples, chosen)
        measured = measure(own, name)
        design = draw(len(chosen), own.rewards.shape[1], plan)
        disjoint &= design.disjoint
        at = {each: measured.distances[measured.names.index(each), 0] for each in sweep.SWEPT}
        parabola = sweep.parabolas(*(at[each] for each in sweep.POINTS))
        curves.append(sweep.curve(parabola))
        precise[name] = precision(own, design, measured)
        least = sweep.minimiser(parabola, plan.seed)
        of = moments(own.rewards, plan.responses[0])
        base = squared_errors(own, design, plan, REFERENCE)[0]
        for estimator in sweep.ESTIMATED:
            mse = reduction(squared_errors(own, design, plan, estimator)[0], base)
            saved = reduction(at[estimator], at[REFERENCE])
            shrinkage = mean_shrinkage(own, design, plan.responses[0], estimator)
            rows.append(_row(name, estimator, of, clustered_mean(shrinkage), mse, saved, least))
    summary = {
        "finding": _finding(plan, disjoint, rows),
        "rows": rows,
        "m": plan.responses[0],
        "precise": precise,
        "disjoint": disjoint,
    }
    arrays = {
        "sets": np.array(list(of_sets)),
        "shrinkage": sweep.GRID,
        "reduction_percent": np.stack([each.values for each in curves]),
        "reduction_low": np.stack([each.low for each in curves]),
        "reduction_high": np.stack([each.high for each in curves]),
    }
    return summary, arrays


def _row(
    name: str,
    estimator: str,
    of: Moments,
    shrinkage: Estimate,
    mse: Estimate,
    saved: Estimate,
    least: Estimate,
) -> dict[str, Any]:
    return {
        "prompts": name,
        "value": of.value.value,
        "v": of.v,
        "s": of.s,
        "estimator": estimator,
        "shrinkage": shrinkage.value,
        "shrinkage_low": shrinkage.low,
        "shrinkage_high": shrinkage.high,
        "best_shrinkage": least.value,
        "best_low": least.low,
        "best_high": least.high,
        "mse_reduction_percent": mse.value,
        "mse_reduction_low": mse.low,
        "mse_reduction_high": mse.high,
        "reduction_percent": saved.value,
        "reduction_low": saved.low,
        "reduction_high": saved.high,
    }


def _finding(plan: Plan, disjoint: bool, rows: list[dict[str, Any]]) -> str:
    own = [row for row in rows if row["estimator"] == SPOKEN]
    said = listed(
        [
            f"{percent(saved_of(row))} on {row['prompts']}, where its lambda is "
            f"{row['shrinkage']:.2f} and the best {row['best_shrinkage']:.2f} "
            f"({row['best_low']:.2f} to {row['best_high']:.2f})"
            for row in own
        ]
    )
    return (
        f"At m = {plan.responses[0]}, {SPOKEN} lowers the squared distance of {REFERENCE}'s "
        f"gradient by {said} ({plan.batches} batches of {plan.prompts} prompts of each set; "
        f"{intervals(disjoint)})."
    )
