"""Conditions against a reference, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openrlhf_js.stats.clustered import paired_difference
from openrlhf_js.stats.estimate import Difference


class Comparison(NamedTuple):
    """How far the mean of a condition is above the reference's."""

    name: str
    difference: Difference
    paired: bool  # both have the same seeds
    corrected_p: float


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number.

    Of k p-values in ascending order the i-th becomes the largest of min(1, (k + 1 - j) p_j) over
    j <= i. With a probability of 95 %, no difference that is truly 0 then has less than 0.05.
    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    from statsmodels.stats.multitest import multipletests  # takes a second to import

    return [float(p) for p in multipletests(p_values, method="holm")[1]] if p_values else []


def differences(values: Mapping[str, Mapping[Any, float]], reference: str) -> list[Comparison]:
    """Each other condition's mean minus the reference's, with p-values corrected for their number.

    Runs of the same seed are pairs of `paired_difference`: what both share drops out. Seeds that
    only one has count as independent; with none in common Var = s_a^2 / n_a + s_b^2 / n_b.

    Args:
        values: condition -> seed -> a finite figure. One seed alone bounds nothing, and has p = 1.
        reference: one of the conditions.
    """
    first, found = values[reference], {}
    for name, own in values.items():
        seeds = list(dict.fromkeys([*own, *first]))
        a, b = ([each.get(seed, 0.0) for seed in seeds] for each in (own, first))
        weights = [[seed in each for seed in seeds] for each in (own, first)]
        if name != reference:
            found[name] = paired_difference(a, b, weights_a=weights[0], weights_b=weights[1])
    corrected = holm([each.p_value for each in found.values()])
    return [
        Comparison(name, each, values[name].keys() == first.keys(), p)
        for (name, each), p in zip(found.items(), corrected, strict=True)
    ]
