"""What a test could have seen: the smallest true effect that it finds with a given power."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from openrlhf_js.stats.estimate import Floats

POWER = 0.8
ALPHA = 0.05


def detectable_effect(
    standard_error: float, degrees_of_freedom: float, *, power: float = POWER, alpha: float = ALPHA
) -> float:
    """The smallest true effect that a two-sided t test finds with this power; infinite without df.

    The test statistic of an effect d is a noncentral t with noncentrality d / standard_error. Takes
    the fields of `intervals.Difference`. About 2.8 standard errors for many clusters.

    Raises:
        ValueError: a negative or non-finite error, or not 0 < alpha < power < 1.
    """
    _check(power, alpha)
    if not standard_error >= 0:
        raise ValueError(f"standard_error must be 0 or more, got {standard_error}")
    if degrees_of_freedom <= 0 or math.isinf(standard_error):
        return math.inf
    critical = float(special.stdtrit(degrees_of_freedom, 1 - alpha / 2))

    def excess(noncentrality: float) -> float:
        above = 1 - special.nctdtr(degrees_of_freedom, noncentrality, critical)
        # For few degrees of freedom scipy has nan where this is far below any precision.
        below = np.nan_to_num(special.nctdtr(degrees_of_freedom, noncentrality, -critical))
        return float(above + below) - power

    return standard_error * float(optimize.brentq(excess, 0, _upper(excess), xtol=1e-10))


def paired_detectable_effect(
    deviation: float, items: int, *, power: float = POWER, alpha: float = ALPHA
) -> float:
    """The same for a paired test by item.

    Args:
        deviation: standard deviation over items of the differences, in the values' unit.
        items: number of items; fewer than two see nothing (infinite).
        power: probability of finding the effect.
        alpha: probability of finding one that is not there.
    """
    if items < 2:
        _check(power, alpha)
        return math.inf
    return detectable_effect(deviation / math.sqrt(items), items - 1, power=power, alpha=alpha)


def mcnemar_power(items: int, discordant: float, difference: float, alpha: float = ALPHA) -> float:
    """The exact power of McNemar's exact test on two models' right and wrong answers.

    An item is discordant if one model is right and the other is not, with probability q; then the
    better one is right with probability (q + d) / (2 q). The test is binomial on the discordant
    items, whose number is itself binomial:

        power = sum_n Bin(n; items, q) sum_(b in rejection region of n) Bin(b; n, (q + d) / (2 q)).

    Raises:
        ValueError: not 0 <= difference <= discordant <= 1, or no item.
    """
    if items < 1 or not 0 <= difference <= discordant <= 1:
        raise ValueError(
            "needs an item and 0 <= difference <= discordant <= 1, got "
            f"{items}, {difference}, {discordant}"
        )
    if discordant == 0:
        return 0.0
    number = np.arange(items + 1)
    # The largest b for which P(B <= b) <= alpha / 2 with B ~ Bin(number, 1/2), -1 for none; the
    # inverse is continuous, and its whole part may be one off by rounding.
    last = np.floor(np.nan_to_num(special.bdtrik(alpha / 2, number, 0.5), nan=-1.0))
    last = np.where(special.bdtr(last + 1, number, 0.5) <= alpha / 2, last + 1, last)
    last = np.where(special.bdtr(last, number, 0.5) > alpha / 2, last - 1, last)
    better = (discordant + difference) / (2 * discordant)

    def lower_tail(share: float) -> Floats:
        return special.bdtr(np.maximum(last, 0), number, share)

    found = np.where(
        last >= 0,
        lower_tail(better) + lower_tail(1 - better),
        0.0,
    )
    return float((_binomial(number, items, discordant) * found).sum())


def mcnemar_detectable_difference(
    items: int, discordant: float, *, power: float = POWER, alpha: float = ALPHA
) -> float:
    """The smallest difference of two models' shares that McNemar's exact test finds.

    Args:
        items: number of items, each answered once by both models.
        discordant: share of the items that one gets right and the other wrong.
        power: probability of finding the difference.
        alpha: probability of finding one that is not there, at most.

    Returns:
        A difference of shares; infinite if even d = discordant is found too seldom.
    """
    _check(power, alpha)

    def excess(difference: float) -> float:
        return mcnemar_power(items, discordant, difference, alpha) - power

    if discordant == 0 or excess(discordant) < 0:
        return math.inf
    return float(optimize.brentq(excess, 0, discordant, xtol=1e-10))


def proportions_detectable_difference(
    share: float, items_a: int, items_b: int, *, power: float = POWER, alpha: float = ALPHA
) -> float:
    """The smallest rise above a share that an unpaired test of two shares finds; approximate.

    On the scale 2 arcsin(sqrt p) both shares have the variance 1 / items (Cohen, "Statistical
    power analysis for the behavioral sciences", 1988, chapter 6):

        2 arcsin(sqrt p2) = 2 arcsin(sqrt p1) + (z_(1 - alpha/2) + z_power) sqrt(1/a + 1/b).

    Returns:
        p2 - p1; infinite if even p2 = 1 is found too seldom.
    """
    _check(power, alpha)
    if not 0 <= share <= 1 or min(items_a, items_b) < 1:
        raise ValueError(f"needs 0 <= share <= 1 and items, got {share}, {items_a}, {items_b}")
    quantiles = float(special.ndtri(1 - alpha / 2) + special.ndtri(power))
    angle = 2 * math.asin(math.sqrt(share)) + quantiles * math.sqrt(1 / items_a + 1 / items_b)
    return math.sin(angle / 2) ** 2 - share if angle < math.pi else math.inf


def _upper(excess: Callable[[float], float]) -> float:
    bound = 4.0
    while excess(bound) < 0:
        bound *= 2
    return bound


def _check(power: float, alpha: float) -> None:
    if not 0 < alpha < power < 1:
        raise ValueError(f"needs 0 < alpha < power < 1, got alpha {alpha} and power {power}")


def _binomial(number: NDArray[np.int64], trials: int, share: float) -> Floats:
    logs = special.gammaln(trials + 1) - special.gammaln(number + 1)
    logs = logs - special.gammaln(trials - number + 1)
    return np.exp(logs + special.xlogy(number, share) + special.xlog1py(trials - number, -share))
