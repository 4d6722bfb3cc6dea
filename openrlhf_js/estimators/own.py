"""A baseline of the user's own: a function, or a class with a memory, in a Python file.

    def my_baseline(batch):                     # mine.py
        return batch.statistics.loo_prompt_mean

    openrlhf-js train --advantage_estimator mine.py:my_baseline ...

docs/own_baseline.md goes from the idea to a learning curve.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import re
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.estimators.batch import Batch, make_batch
from openrlhf_js.estimators.record import Estimator, Look

SPEC = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


class OwnName(NamedTuple):
    """What `path/to/mine.py:my_baseline` names."""

    file: Path
    name: str

    @property
    def spec(self) -> str:
        """The same with an absolute path, for other processes."""
        return f"{self.file.absolute()}:{self.name}"


def parse_own(spec: str) -> OwnName | None:
    """Return the file and the name in it; None for anything but `FILE.py:NAME`."""
    match = SPEC.fullmatch(spec)
    return None if match is None else OwnName(Path(match["file"]), match["name"])


def label_of(estimator: str) -> str:
    """An estimator's name in what is kept; that of a user's own changes with its file."""
    own = parse_own(estimator)
    if own is None:
        return estimator
    if not own.file.is_file():
        raise ValueError(f"{estimator}: there is no such file.")
    version = hashlib.sha256(own.file.read_bytes()).hexdigest()[:8]
    return f"{own.file.name}:{own.name}@{version}"


@functools.cache
def load_own(spec: str) -> Estimator:
    """Return the record of the user's baseline, which has been tried on two small batches.

    A function takes a `Batch` and returns baselines (n, m). A class, made without arguments, has
    `baseline(batch)` and `learn(batch)`, and may have `state_dict()` and `load_state_dict(state)`;
    without them a checkpoint holds its attributes.

    `unbiased` is what was found by changing one reward after the other: whether a baseline stays
    where it is when its own reward changes.

    Raises:
        ValueError: nothing of that name, or baselines of a wrong shape or that are not finite.
    """
    own = parse_own(spec)
    if own is None:
        raise ValueError(f"{spec!r} is not FILE.py:NAME.")
    made = _import(own)
    if inspect.isclass(made):
        needed = [name for name in ("baseline", "learn") if not hasattr(made, name)]
        if needed:
            raise ValueError(f"{spec}: the class needs a method {needed[0]}(batch).")
        _make(spec, made)
    elif not callable(made):
        raise ValueError(f"{spec} is neither a function nor a class, but {made!r:.100}.")

    def record(unbiased: bool) -> Estimator:
        remembers = inspect.isclass(made)
        return Estimator(
            name=spec,
            summary=(inspect.getdoc(made) or f"{own.name} of {own.file.name}").splitlines()[0],
            equation=r"b_i^j = \text{" + own.name.replace("_", r"\_") + "}",
            source=str(own.file),
            unbiased=unbiased,
            look=Look("#b8860b", "-", "d"),
            baseline=functools.partial(_recalled if remembers else _computed, spec, made),
            needs_keys=remembers,
            memory=functools.partial(OwnMemory, spec, made) if remembers else None,
        )

    biased = _contains_own_reward(record(unbiased=False))
    if biased:
        warnings.warn(
            f"{spec}: a baseline moves with its own reward, which biases the gradient. Leave the "
            "own reward out, as batch.statistics.loo_prompt_mean does, or know why not.",
            stacklevel=2,
        )
    return record(unbiased=not biased)


class OwnMemory:
    """An object of the user's class. What it recalls of a batch are the batch's baselines."""

    def __init__(self, spec: str, made: type):
        self._spec = spec
        self.object = _make(spec, made)

    def recall(self, batch: Batch) -> Any:
        """(n, m) baselines."""
        return _call(self._spec, self.object.baseline, batch)

    def learn(self, batch: Batch) -> None:
        """Hands the batch over."""
        _call(self._spec, self.object.learn, batch)

    def start(self, batch: Batch) -> None:
        """Hands samples of the untrained policy over, to `start` if there is one."""
        _call(self._spec, getattr(self.object, "start", self.object.learn), batch)

    def state_dict(self) -> dict[str, Any]:
        """The object's own state, or its attributes."""
        if hasattr(self.object, "state_dict"):
            return dict(self.object.state_dict())
        return dict(vars(self.object))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        if hasattr(self.object, "load_state_dict"):
            self.object.load_state_dict(state)
        else:
            vars(self.object).update(state)


def _import(own: OwnName) -> Any:
    """What the file has under that name."""
    if not own.file.is_file():
        raise ValueError(f"{own.spec}: there is no such file.")
    module_spec = importlib.util.spec_from_file_location(own.file.stem, own.file)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    _call(own.spec, module_spec.loader.exec_module, module)
    if not hasattr(module, own.name):
        names = [name for name, value in vars(module).items() if callable(value)]
        raise ValueError(f"{own.file} has no {own.name}; it has {', '.join(names) or 'nothing'}.")
    return getattr(module, own.name)


def _make(spec: str, made: type) -> Any:
    return _call(spec, made)


def _call(spec: str, function: Callable[..., Any], *values: Any) -> Any:
    """Calls the user's code; an error names its line."""
    try:
        return function(*values)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise ValueError(f"{spec}: {type(error).__name__} in {place}: {error}") from error


def _computed(spec: str, function: Callable[[Batch], Any], batch: Batch) -> Any:
    return _checked(spec, _call(spec, function, batch), batch)


def _recalled(spec: str, made: type, batch: Batch) -> Any:
    baselines = batch.past
    if baselines is None:  # without a memory, as for the first batch
        baselines = OwnMemory(spec, made).recall(batch)
    return _checked(spec, baselines, batch)


def _checked(spec: str, baselines: Any, batch: Batch) -> Any:
    """The baselines as a tensor of the rewards' type. Raises ValueError where they do not fit."""
    import torch

    try:
        values = torch.as_tensor(baselines).to(batch.rewards)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{spec} must return a tensor (n, m): {error}.") from error
    wanted = tuple(batch.rewards.shape)
    if values.shape != batch.rewards.shape:
        came = tuple(values.shape)
        raise ValueError(
            f"{spec} must return one baseline a response, of shape {wanted}; got {came}."
        )
    bad = batch.mask & ~values.isfinite()
    if bad.any():
        prompt, response = bad.nonzero()[0].tolist()
        value = values[prompt, response].item()
        raise ValueError(
            f"{spec}: the baseline of prompt {prompt}, response {response} is {value}; it must be "
            "finite. Mind groups of equal rewards, and masked responses."
        )
    return values


def _contains_own_reward(estimator: Estimator) -> bool:
    """Whether a baseline changes with its own reward.

    Tried on any rewards, and on 0 and 1 with a group of equal ones.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    real = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    binary = (real > 0).double()
    binary[0] = 1.0
    tried = [(rewards, _baselines(estimator, rewards)) for rewards in (real, binary)]
    for rewards, before in tried:
        for i in range(rewards.shape[0]):
            for j in range(rewards.shape[1]):
                changed = rewards.clone()
                changed[i, j] = 1 - changed[i, j]
                if _baselines(estimator, changed)[i, j] != before[i, j]:
                    return True
    return False


def _baselines(estimator: Estimator, rewards: Any) -> Any:
    import torch

    assert estimator.baseline is not None
    batch = make_batch(
        rewards,
        lengths=torch.arange(1, rewards.numel() + 1).reshape(rewards.shape),
        keys=torch.arange(len(rewards)),
        step=1,
    )
    return estimator.baseline(batch)
