"""What every interval is handed out as."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A value with its interval. The ends are infinite where the data do not bound them."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return 0.0 if self.low == self.high else (self.high - self.low) / 2

    def plain(self) -> dict[str, float | None]:
        """The same for JSON, which knows no infinity: an end that is not finite is None."""
        return {
            name: number if math.isfinite(number) else None
            for name, number in zip(self._fields, self, strict=True)
        }


class Difference(NamedTuple):
    """A difference with its interval and test."""

    value: float
    low: float
    high: float
    p_value: float
    """Two-sided, of the hypothesis that the true difference is 0."""
    standard_error: float
    degrees_of_freedom: float

    @property
    def estimate(self) -> Estimate:
        """The difference without its test."""
        return Estimate(self.value, self.low, self.high)


def check_confidence(confidence: float) -> None:
    """Raises ValueError unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, such as 0.95; got {confidence}")


def normal_quantile(confidence: float) -> float:
    """z such that a standard normal lies within +-z with this probability; 1.96 for 0.95."""
    check_confidence(confidence)
    return float(special.ndtri((1 + confidence) / 2))


def t_quantile(degrees_of_freedom: Floats | float, confidence: float) -> Floats:
    """The same for Student's t; infinite where there is no degree of freedom."""
    check_confidence(confidence)
    degrees = np.asarray(degrees_of_freedom, dtype=float)
    known = degrees > 0
    return np.where(
        known, special.stdtrit(np.where(known, degrees, 1), (1 + confidence) / 2), np.inf
    )


def t_estimate(value: float, error: float, degrees: float, confidence: float) -> Estimate:
    """value +- t error; without a degree of freedom the ends are infinite."""
    if degrees <= 0:
        check_confidence(confidence)
        return Estimate(value, -math.inf, math.inf)
    half = float(t_quantile(degrees, confidence)) * error
    return Estimate(value, value - half, value + half)
