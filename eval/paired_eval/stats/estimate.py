"""The types of intervals and tests, and the Student's t functions behind them."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95
ROUNDING = 1e-12  # a smaller standard error is that of equal values


class Estimate(NamedTuple):
    """A value with its interval. The ends are infinite where the data do not bound them."""

    value: float
    low: float
    high: float

    def plain(self) -> dict[str, float | None]:
        """The estimate for JSON, which has no infinity: an end that is not finite is None."""
        return {
            name: number if math.isfinite(number) else None
            for name, number in zip(self._fields, self, strict=True)
        }


class Difference(NamedTuple):
    """A difference with its interval and test."""

    value: float
    low: float
    high: float
    p_value: float  # two-sided, of the hypothesis that the true difference is 0
    standard_error: float
    degrees_of_freedom: float

    @property
    def estimate(self) -> Estimate:
        """The difference without its test."""
        return Estimate(self.value, self.low, self.high)


def t_quantile(degrees: float) -> float:
    """t such that Student's t lies within +-t with a probability of 95 %."""
    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))


def t_estimate(value: float, error: float, degrees: float) -> Estimate:
    """value +- t error; with 0 degrees of freedom the ends are infinite."""
    half = t_quantile(degrees) * error if degrees > 0 else math.inf
    return Estimate(value, value - half, value + half)


def t_difference(value: float, error: float, degrees: float, clusters: int) -> Difference:
    """A difference with Student's t test.

    Without spread there is no t test; p is then that of the sign test, 2^(1 - clusters).
    """
    if error <= ROUNDING * max(1.0, abs(value)):
        error = 0.0
    interval = t_estimate(value, error, degrees)
    if degrees <= 0:
        p_value = 1.0
        error = math.inf
    elif error > 0:
        p_value = float(2 * special.stdtr(degrees, -abs(value) / error))
    else:
        p_value = 1.0 if abs(value) <= ROUNDING else 2.0 ** (1 - clusters)
    return Difference(
        value=value,
        low=interval.low,
        high=interval.high,
        p_value=p_value,
        standard_error=error,
        degrees_of_freedom=float(degrees),
    )


def welch(variances: list[float], degrees: list[float]) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum; 0 if one part has none."""
    if min(degrees) <= 0:
        return 0.0
    squares = sum(v**2 / df for v, df in zip(variances, degrees, strict=True))
    return sum(variances) ** 2 / squares if squares > 0 else min(degrees)


def detectable_effect(standard_error: float, degrees_of_freedom: float) -> float:
    """The smallest true effect that a two-sided t test at 5 % finds with a probability of 80 %.

    The statistic of an effect d is a noncentral t with noncentrality d / standard_error: about 2.8
    standard errors for many clusters; infinite with 0 degrees of freedom.
    """
    if degrees_of_freedom <= 0 or math.isinf(standard_error):
        return math.inf
    from scipy.optimize import brentq  # takes half a second to import

    critical = t_quantile(degrees_of_freedom)

    def excess(noncentrality: float) -> float:
        above = 1 - special.nctdtr(degrees_of_freedom, noncentrality, critical)
        # With few degrees of freedom scipy returns nan where this is negligible.
        below = np.nan_to_num(special.nctdtr(degrees_of_freedom, noncentrality, -critical))
        return float(above + below) - 0.8

    return standard_error * float(brentq(excess, 0, 2 * critical, xtol=1e-10))
