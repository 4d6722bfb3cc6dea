"""Distributions of prompts: the values that they have, and how rewards spread around those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path

import numpy as np

from openrlhf_js.stats.estimate import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


@dataclass(frozen=True)
class Values:
    """A distribution of prompts: rewards are Bernoulli, or Gaussian where `noise` is given.

    `s2` is the variance of the values, `sigma2` the mean variance of a prompt's rewards; `noise`
    draws standard deviations of prompts' rewards.
    """

    description: str
    draw: Draw
    mean: float
    s2: float
    sigma2: float
    noise: Draw | None = None

    @property
    def title(self) -> str:
        """The rewards, and the values around which they spread."""
        return f"{'Bernoulli' if self.noise is None else 'Gaussian'}, {self.description}"


def _values(description: str, draw: Draw, mean: float, s2: float) -> Values:
    return Values(description, draw, mean, s2, mean - mean**2 - s2)


def beta(a: float, b: float) -> Values:
    """Values ~ Beta(a, b), a and b greater than 0."""
    mean, s2 = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    return _values(f"values Beta({a:g}, {b:g})", lambda g, shape: g.beta(a, b, shape), mean, s2)


def _points(description: str, points: Floats, shares: Sequence[float] | None = None) -> Values:
    """One of the points, each with its share, or equally likely."""
    mean = float(np.average(points, weights=shares))
    s2 = float(np.average((points - mean) ** 2, weights=shares))
    return _values(description, lambda g, shape: g.choice(points, shape, p=shares), mean, s2)


def two_point(low: float, high: float, share: float) -> Values:
    """Values that are `high` with probability `share`, else `low`."""
    points = np.array([high, low], dtype=np.float64)
    return _points(f"values {low:g} or {high:g} (share {share:g})", points, (share, 1 - share))


def constant(value: float) -> Values:
    """The same value for every prompt."""
    return _points(f"every value {value:g}", np.array([value], dtype=np.float64))


def normal(mean: float, std: float) -> Values:
    """Values ~ N(mean, std^2), for Gaussian rewards."""
    return _values(
        f"values N({mean:g}, {std:g}^2)",
        lambda g, shape: mean + std * g.standard_normal(shape),
        mean,
        std**2,
    )


def drawn_from(values: Floats, name: str) -> Values:
    """Each prompt has one of the values (k,) of a file, drawn with replacement."""
    return _points(f"{len(values)} values of {name}", values)


def gaussian_rewards(values: Values, noise: float) -> Values:
    """The same values with Gaussian rewards of this standard deviation around them."""
    words = f"{values.description}, noise {noise:g}"
    draw: Draw = lambda g, shape: np.full(shape, noise)  # noqa: E731
    return replace(values, description=words, sigma2=noise**2, noise=draw)


KINDS: dict[str, Callable[..., Values]] = {
    "beta:A,B": beta,
    "uniform": lambda: beta(1, 1),
    "two_point:LOW,HIGH,SHARE": two_point,
    "constant:VALUE": constant,
    "normal:MEAN,STD": normal,
    "file:PATH": lambda path: drawn_from(read(Path(path)), Path(path).name),
}


def parse(text: str) -> Values:
    """The distribution that a flag names, with Bernoulli rewards."""
    kind, _, rest = text.partition(":")
    if kind == "file":
        return KINDS["file:PATH"](rest)
    try:
        numbers = [float(number) for number in rest.split(",") if rest]
        found = {form.partition(":")[0]: make for form, make in KINDS.items()}[kind](*numbers)
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"no values {text!r}; give one of {' '.join(KINDS)}") from None
    if not (isfinite(found.mean) and 0 <= found.s2 < inf):
        raise ValueError(f"{found.title} have no mean or variance; give other numbers")
    return found


def read(path: Path) -> Floats:
    """The values of a file: `values` in the npz of `lab value`, or text with one value a line."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            values = file["values"]
    else:
        values = np.loadtxt(path, ndmin=1)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"{path} needs one finite value for each prompt; got {values!r:.80}")
    return np.asarray(values, dtype=np.float64)
