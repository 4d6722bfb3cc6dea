"""Conditions against a reference, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from openrlhf_js.stats.clustered import paired_difference
from openrlhf_js.stats.estimate import Difference


class Comparison(NamedTuple):
    """How far the mean of a condition is above the reference's."""

    name: str
    difference: Difference
    paired: bool  # both have the same seeds
    corrected_p: float


def differences(values: Mapping[str, Mapping[Any, float]], reference: str) -> list[Comparison]:
    """Each other condition's mean minus the reference's, with p-values corrected for their number.

    Runs of the same seed share prompts and their order; what is hard for both drops out, as in
    `paired_difference`. Seeds that only one of the two has are no pairs: they count as independent,
    and without a common seed the variance is Welch's, s_a^2 / n_a + s_b^2 / n_b.

    Of k p-values in ascending order the i-th becomes the largest of min(1, (k + 1 - j) p_j) over
    j <= i. With a probability of 95 %, no difference that is truly 0 then has less than 0.05.
    Source: Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian Journal
    of Statistics 6, 1979).

    Args:
        values: condition -> seed -> a finite figure. One seed alone bounds nothing, and has p = 1.
        reference: one of the conditions.
    """
    others = {name: own for name, own in values.items() if name != reference}
    if not others:
        return []
    from statsmodels.stats.multitest import multipletests  # takes a second to import

    first = values[reference]
    found = [_difference(own, first) for own in others.values()]
    corrected = multipletests([each.p_value for each in found], method="holm")[1]
    return [
        Comparison(name, difference, own.keys() == first.keys(), float(p))
        for (name, own), difference, p in zip(others.items(), found, corrected, strict=True)
    ]


def _difference(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Difference:
    seeds = list(dict.fromkeys([*ours, *theirs]))
    (a, weights_a), (b, weights_b) = (
        ([each.get(seed, 0.0) for seed in seeds], [seed in each for seed in seeds])
        for each in (ours, theirs)
    )
    return paired_difference(a, b, weights_a=weights_a, weights_b=weights_b)
