"""The user's own baseline: a function, or a class with a memory, in a Python file.

    def my_baseline(batch):                     # mine.py
        return batch.statistics.loo_prompt_mean

    openrlhf-js train --advantage_estimator mine.py:my_baseline ...

docs/baselines.md goes from the idea to a learning curve.
"""

from __future__ import annotations

import functools
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
from openrlhf_js.estimators.record import Estimator

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-9  # how far a baseline may move by rounding, as in `total - own reward`
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


def load_own(spec: str) -> Estimator:
    """Return the record of the user's baseline, after a trial on a small batch.

    A function takes a `Batch` and returns baselines (n, m). A class is constructed without
    arguments. It has `baseline(batch)` and `learn(batch)`, and may have `state_dict()` and
    `load_state_dict(state)`; without these a checkpoint holds its attributes.

    `unbiased` is found by changing one reward at a time: it is True if no baseline moves with its
    own reward, also after a class has learnt from a batch.

    A changed file is read again; records made from its earlier version stay as they are.

    Raises:
        ValueError: no such file or name, baselines of a wrong shape or that are not finite, or a
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
    remembers = inspect.isclass(made)
    if remembers:
        _check_memory(spec, made)
    record = Estimator(
        name=spec,
        summary=(inspect.getdoc(made) or f"{own.name} of {own.file.name}").splitlines()[0],
        source=str(own.file),
        unbiased=True,
        baseline=functools.partial(_recalled if remembers else _computed, spec, made),
        remembers_prompts=remembers,
        needs_keys=remembers,
        memory=functools.partial(OwnMemory, spec, made) if remembers else None,
    )
    if not _moves_with_own_reward(record):
        return record
    warnings.warn(
        f"{spec}: a baseline moves with its own reward, which biases the gradient. Leave the "
        "own reward out, as batch.statistics.loo_prompt_mean does, or know why not.",
        stacklevel=2,
    )
    return replace(record, unbiased=False)


def _import(own: OwnName, source: bytes) -> Any:
    """The object of that name in the file.

    Bytecode is neither read nor written: it may be older than a file that was just edited.
    """
    module = types.ModuleType(f"openrlhf_js own {own.file}")
    module.__file__ = str(own.file)
    sys.modules[module.__name__] = module  # dataclasses look up their module there
    try:
        _call(own.spec, lambda: exec(compile(source, own.file, "exec"), vars(module)))
    finally:
        # Objects of the file's own classes then fail to pickle: a checkpoint could not load them.
        del sys.modules[module.__name__]
    if not hasattr(module, own.name):
        raise ValueError(f"{own.file} has no {own.name}.")
    return getattr(module, own.name)


# --- running the user's code -------------------------------------------------------------------


class OwnMemory:
    """An object of the user's class. `recall` returns the batch's baselines."""

    def __init__(self, spec: str, made: type):
        self._spec = spec
        self.object = _call(spec, made)

    def recall(self, batch: Batch) -> Tensor:
        """(n, m) baselines."""
        return _computed(self._spec, lambda batch: self.object.baseline(batch), batch)

    def learn(self, batch: Batch) -> None:
        """Passes the batch to the object."""
        _call(self._spec, lambda: self.object.learn(batch))

    def state_dict(self) -> dict[str, Any]:
        """The object's own state, or its attributes."""
        if hasattr(self.object, "state_dict"):
            return dict(self.object.state_dict())
        return dict(vars(self.object))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        if hasattr(self.object, "load_state_dict"):
            self.object.load_state_dict(state)
        else:
            vars(self.object).update(state)


def _recalled(spec: str, made: type, batch: Batch) -> Tensor:
    """The baselines that an object recalled for the batch, or else those of a new object."""
    if batch.past is not None:
        return batch.past
    if batch.keys is None:
        raise ValueError(f"{spec} needs the keys of the prompts (key_of): give keys=.")
    return OwnMemory(spec, made).recall(batch)


def _computed(spec: str, function: Callable[[Batch], Any], batch: Batch) -> Tensor:
    """(n, m) baselines that the function returns for a batch. ValueError if they do not fit."""
    import torch

    copied = replace(batch, rewards=batch.rewards.clone())  # the function may change them
    returned = _call(spec, function, copied)
    try:
        baselines = torch.as_tensor(returned).to(batch.rewards)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{spec} must return a tensor (n, m): {error}.") from error
    if baselines.shape != batch.rewards.shape:
        raise ValueError(
            f"{spec} must return one baseline a response, of shape {tuple(batch.rewards.shape)}; "
            f"got {tuple(baselines.shape)}."
        )
    bad = batch.mask & ~baselines.isfinite()
    if bad.any():
        prompt, response = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{spec}: the baseline of prompt {prompt}, response {response} is "
            f"{baselines[prompt, response]}; it must be finite. Mind groups of equal rewards, and "
            "masked responses."
        )
    return baselines


def _call(spec: str, function: Callable[..., Any], *values: Any) -> Any:
    """Calls the user's code; an error names the line that raised it."""
    own = parse_own(spec)
    assert own is not None
    try:
        return function(*values)
    except Exception as error:
        raise ValueError(f"{spec}: {error_in_file(error, own.file)}") from error


def error_in_file(error: BaseException, file: Path) -> str:
    """Return what a user's file raised, in one line: "TypeError in mine.py, line 3: ...".

    The line is the file's last one in the traceback, or that of a syntax error in the file or in
    one that it imports.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.lineno and Path(str(error.filename)).is_file():
        return f"{kind} in {Path(str(error.filename)).name}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.absolute())]
    place = f" in {file.name}, line {lines[-1]}" if lines else f" in {file.name}"
    message = " ".join(str(error).split())
    return f"{kind}{place}: {message}" if message else f"{kind}{place}"


# --- the trial before a run --------------------------------------------------------------------


def _check_memory(spec: str, made: type) -> None:
    """Raises ValueError if a checkpoint could not hold an object's state after a batch.

    Changes to class attributes are in no checkpoint, and are shared by all runs of a process.
    """
    before = _class_attributes(made)
    state = _after_a_step(OwnMemory(spec, made)).state_dict()
    for name, value in _class_attributes(made).items():
        if before.get(name) != value:
            raise ValueError(
                f"{spec} learns into {name}, which belongs to the class and is in no checkpoint: "
                f"set it in __init__ (self.{name} = ...)."
            )
    try:
        pickle.dumps(state)
    except Exception as error:  # whatever the user's objects raise
        raise ValueError(
            f"{spec}: a checkpoint cannot hold its state ({error}). Give it state_dict() and "
            "load_state_dict(state), of numbers, texts, tensors, lists and dicts."
        ) from error


def _class_attributes(made: type) -> dict[str, str]:
    """The class attributes other than methods, as text."""
    return {name: repr(value) for name, value in vars(made).items() if not callable(value)}


def _moves_with_own_reward(record: Estimator) -> bool:
    """Whether a baseline changes with its own reward by more than rounding; a class is tried before
    and after it has learnt from a batch."""
    rewards = _tried_rewards()
    for has_learnt in {False, record.remembers}:
        before = _tried_baselines(record, rewards, has_learnt)
        for place in itertools.product(*map(range, rewards.shape)):
            changed = rewards.clone()
            changed[place] = 1 - changed[place]
            after = _tried_baselines(record, changed, has_learnt)
            if abs(after[place] - before[place]) > ROUNDING:
                return True
    return False


def _tried_baselines(record: Estimator, rewards: Tensor, has_learnt: bool) -> Tensor:
    """(6, 3) baselines of rewards; a class is tried with a new object."""
    assert record.baseline is not None
    batch = _tried_batch(rewards, step=2)
    if has_learnt and record.memory is not None:
        batch = replace(batch, past=_after_a_step(record.memory()).recall(batch))
    return record.baseline(batch)


def _after_a_step(memory: Any) -> Any:
    """The memory, after it has learnt from one batch."""
    batch = _tried_batch(_tried_rewards(), step=1)
    memory.recall(batch)
    memory.learn(batch)
    return memory


def _tried_rewards() -> Tensor:
    """(6, 3) rewards of 0 and 1, with one group of equal rewards."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rewards = (torch.randn(6, 3, generator=generator, dtype=torch.float64) > 0).double()
    rewards[0] = 1.0
    return rewards


def _tried_batch(rewards: Tensor, step: int) -> Batch:
    import torch

    lengths = torch.arange(1, rewards.numel() + 1).reshape(rewards.shape)
    return make_batch(rewards, lengths=lengths, keys=torch.arange(len(rewards)), step=step)
