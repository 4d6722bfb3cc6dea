"""A baseline of the user's own: a function, or a class with a memory, in a Python file.

    def my_baseline(batch):                     # mine.py
        return batch.statistics.loo_prompt_mean

    openrlhf-js train --advantage_estimator mine.py:my_baseline ...

docs/own_baseline.md goes from the idea to a learning curve.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import pickle
import re
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openrlhf_js.estimators.batch import Batch, make_batch
from openrlhf_js.estimators.record import Estimator, Look, Memory

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-9  # by which a baseline may move where a sum less the own reward does
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


def load_own(spec: str) -> Estimator:
    """Return the record of the user's baseline, which has been tried on two small batches.

    A function takes a `Batch` and returns baselines (n, m). A class, made without arguments, has
    `baseline(batch)` and `learn(batch)`, and may have `state_dict()` and `load_state_dict(state)`;
    without them a checkpoint holds its attributes.

    `unbiased` is what was found by changing one reward after the other: whether a baseline stays
    where it is when its own reward changes, also after a class has learnt from a batch.

    A file is read again once it has changed; the records that were made of it before stay.

    Raises:
        ValueError: nothing of that name, baselines of a wrong shape or that are not finite, or a
            memory that no checkpoint could hold.
    """
    own = parse_own(spec)
    if own is None:
        raise ValueError(f"{spec!r} is not FILE.py:NAME.")
    if not own.file.is_file():
        raise ValueError(f"{own.spec}: there is no such file.")
    return _load(spec, own._replace(file=own.file.absolute()), own.file.read_bytes())


@functools.cache
def _load(spec: str, own: OwnName, source: bytes) -> Estimator:
    """`load_own` of a file at an absolute path, with this source."""
    made = _import(own, source)
    if inspect.isclass(made):
        needed = [name for name in ("baseline", "learn") if not hasattr(made, name)]
        if needed:
            raise ValueError(f"{spec}: the class needs a method {needed[0]}(batch).")
        _check_memory(spec, made)
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
            look=Look("#8b6508", "-", "d"),
            baseline=functools.partial(_recalled if remembers else _computed, spec, made),
            needs_keys=remembers,
            memory=functools.partial(OwnMemory, spec, made) if remembers else None,
        )

    after_a_step = functools.partial(_after_a_step, spec, made) if inspect.isclass(made) else None
    biased = _contains_own_reward(record(unbiased=False), after_a_step)
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
        self.object = _call(spec, made)

    def recall(self, batch: Batch) -> Any:
        """(n, m) baselines."""
        return _baselines_of(self._spec, self.object.baseline, batch)

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


def _import(own: OwnName, source: bytes) -> Any:
    """What the file has under that name.

    Bytecode is neither read nor written: it may be older than a file that was just edited.
    """
    module = types.ModuleType(f"openrlhf_js own {own.file}")
    module.__file__ = str(own.file)
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    try:
        _call(own.spec, lambda: exec(compile(source, own.file, "exec"), vars(module)))
    finally:
        del sys.modules[module.__name__]  # a checkpoint cannot hold what only this file defines
    if not hasattr(module, own.name):
        names = [
            name
            for name, value in vars(module).items()
            if callable(value) and value.__module__ == module.__name__
        ]
        raise ValueError(f"{own.file} has no {own.name}; it has {', '.join(names) or 'nothing'}.")
    return getattr(module, own.name)


def _check_memory(spec: str, made: type) -> None:
    """Lets an object learn a batch. Raises ValueError if a checkpoint could not hold what it did.

    What changes in the class itself is in no checkpoint, and shared by all runs of a process.
    """
    before = _class_attributes(made)
    memory = _after_a_step(spec, made)
    changed = [name for name, value in _class_attributes(made).items() if before.get(name) != value]
    if changed:
        raise ValueError(
            f"{spec} learns into {changed[0]}, which belongs to the class: set it in __init__ "
            f"(self.{changed[0]} = ...), so that each run has its own and a checkpoint holds it."
        )
    try:
        pickle.dumps(memory.state_dict())
    except Exception as error:  # whatever the user's objects raise
        raise ValueError(
            f"{spec}: a checkpoint cannot hold its state ({error}). Give it state_dict() and "
            "load_state_dict(state), of numbers, texts, tensors, lists and dicts."
        ) from error


def _class_attributes(made: type) -> dict[str, str]:
    """Values of the class that are no methods, as text."""
    return {name: repr(value) for name, value in vars(made).items() if not callable(value)}


def _after_a_step(spec: str, made: type) -> OwnMemory:
    """A new object of the user's class, after one step."""
    memory = OwnMemory(spec, made)
    _, rewards = _tried_rewards()
    batch = _tried_batch(rewards, step=1)
    memory.recall(batch)
    memory.learn(batch)
    return memory


def _call(spec: str, function: Callable[..., Any], *values: Any) -> Any:
    """Calls the user's code; an error names its line."""
    try:
        return function(*values)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise ValueError(f"{spec}: {type(error).__name__} in {place}: {error}") from error


def _baselines_of(spec: str, function: Callable[[Batch], Any], batch: Batch) -> Any:
    """What the user's code returns of a batch, which it must leave as it is."""
    before = batch.rewards.clone()
    baselines = _call(spec, function, batch)
    if not batch.rewards.equal(before):
        raise ValueError(f"{spec} changes batch.rewards: work on batch.rewards.clone().")
    return baselines


def _computed(spec: str, function: Callable[[Batch], Any], batch: Batch) -> Any:
    return _checked(spec, _baselines_of(spec, function, batch), batch)


def _recalled(spec: str, made: type, batch: Batch) -> Any:
    baselines = batch.past
    if baselines is None:  # without a memory, as for the first batch
        if batch.keys is None:
            raise ValueError(f"{spec} needs the keys of the prompts (key_of): give keys=.")
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


def _contains_own_reward(estimator: Estimator, after_a_step: Callable[[], Memory] | None) -> bool:
    """Whether a baseline changes with its own reward, by more than rounding.

    Of a class: at first, and `after_a_step`, with an object of its own for every answer.
    """
    memories = [None] if after_a_step is None else [None, after_a_step]
    tried = list(itertools.product(_tried_rewards(), memories))
    baselines = [_tried_baselines(estimator, *trial) for trial in tried]  # all must be finite
    for (rewards, make_memory), before in zip(tried, baselines, strict=True):
        for i in range(rewards.shape[0]):
            for j in range(rewards.shape[1]):
                changed = rewards.clone()
                changed[i, j] = 1 - changed[i, j]
                after = _tried_baselines(estimator, changed, make_memory)
                if abs(after[i, j] - before[i, j]) > ROUNDING:
                    return True
    return False


def _tried_rewards() -> tuple[Tensor, Tensor]:
    """(6, 3) each: any rewards, and rewards of 0 and 1 with a group of equal ones."""
    import torch

    generator = torch.Generator().manual_seed(0)
    real = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    binary = (real > 0).double()
    binary[0] = 1.0
    return real, binary


def _tried_batch(rewards: Tensor, step: int) -> Batch:
    import torch

    return make_batch(
        rewards,
        lengths=torch.arange(1, rewards.numel() + 1).reshape(rewards.shape),
        keys=torch.arange(len(rewards)),
        step=step,
    )


def _tried_baselines(
    estimator: Estimator, rewards: Tensor, make_memory: Callable[[], Memory] | None
) -> Tensor:
    assert estimator.baseline is not None
    batch = _tried_batch(rewards, step=2)
    if make_memory is not None:
        batch = replace(batch, past=make_memory().recall(batch))
    return estimator.baseline(batch)
