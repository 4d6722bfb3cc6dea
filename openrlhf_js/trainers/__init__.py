"""The estimators in other training stacks, one file per stack, which imports it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from openrlhf_js.estimators import Batch, Estimator, LiveEstimator
from openrlhf_js.estimators.advantages import warn_once
from openrlhf_js.estimators.flat import Groups
from openrlhf_js.estimators.memory import digest_of, key_of


def prompt_key(prompt: Any) -> int:
    """A key that identifies a prompt by its text, messages or row, with images by their pixels."""
    return key_of(json.dumps(prompt, default=_known_by))


def _known_by(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.hasobject:  # an array of messages
        return value.tolist()
    has_bytes = isinstance(value, bytes) or hasattr(value, "tobytes")
    return digest_of(value) if has_bytes else repr(value)


def check_prompts(record: Estimator, batch: Batch) -> None:
    """Warns once where a batch of one prompt leaves nothing to shrink towards."""
    shrinks_to_batch = record.shrink is not None and record.memory is None
    if shrinks_to_batch and batch.present.sum() == 1:
        warn_once(
            f"{record.name} needs the other prompts of a batch, and a batch has one prompt: it "
            "computes rloo. Use more prompts in a batch.",
            stacklevel=4,
        )


def learn_from(
    live: LiveEstimator,
    prompts: Sequence[Any],
    *,
    rewards: Tensor,
    lengths: Tensor,
    squared_score_norms: Tensor | None,
    step: int,
    responses: Iterable[Any] | None = None,
    mask: Tensor | None = None,
    keys: Sequence[int] | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The advantages (R,) of R training rows, and what to log; then the estimator learns them.

    Args:
        live: the estimator of the run.
        prompts: (R,) ids, any that tell the prompts of this batch apart.
        rewards: (R,).
        lengths: (R,) tokens to train on. A response without any is left out of all means.
        squared_score_norms: (R,); None where they are not known.
        step: the number of the batch in its run.
        responses: (R,) ids of the responses, where one has several rows: its lengths and norms are
            added up, and the reward of its last row counts. By default a row is a response.
        mask: (R,) which rows have a reward; by default all.
        keys: (R,) of the prompts; by default of the ids, which must be the same in all steps.
    """
    rows = _Rows(range(len(prompts)) if responses is None else responses)
    tokens = rows.total(lengths)
    trained = tokens > 0
    if mask is not None:
        trained &= rows.last(mask)
    groups = Groups(prompts[row] for row in rows.last_rows)
    norms = None
    if squared_score_norms is not None:
        norms = groups.pad(rows.total(squared_score_norms), "squared_score_norms")
    if keys is None:
        keys = [key_of(str(prompt)) for prompt in prompts]
    batch = live.batch(
        groups.pad(rows.last(rewards), "rewards"),
        mask=groups.pad(trained, "mask"),
        lengths=groups.pad(tokens, "lengths"),
        squared_score_norms=norms,
        keys=torch.tensor([keys[rows.last_rows[response]] for response in groups.first_rows()]),
        step=step,
    )
    check_prompts(live.record, batch)
    estimate = live.estimate(batch)
    figures = live.describe(batch, estimate)
    live.learn(batch)
    return groups.flatten(estimate.advantages)[rows.response_of], figures


class _Rows:
    """The training rows (R,) of B responses, of which some have several."""

    def __init__(self, responses: Iterable[Any]):
        """Takes the id of each row's response."""
        responses = list(responses)
        last_rows = {response: row for row, response in enumerate(responses)}
        numbers = {response: number for number, response in enumerate(last_rows)}
        self.last_rows = list(last_rows.values())  # (B,)
        self.response_of = torch.tensor([numbers[response] for response in responses])  # (R,)

    def last(self, values: Tensor) -> Tensor:
        """(B,) the value of each response's last row."""
        return values.detach().cpu()[self.last_rows]

    def total(self, values: Tensor) -> Tensor:
        """(B,) the sum over each response's rows, in float64."""
        of_rows = values.detach().cpu().double()
        empty = of_rows.new_zeros(len(self.last_rows))
        return empty.index_add(0, self.response_of, of_rows)


def learn_from_ranks(
    ranks: Any,
    live: LiveEstimator,
    prompts: Sequence[Any],
    *,
    keys: Sequence[int],
    step: int,
    **tensors: Tensor,
) -> tuple[Tensor, dict[str, float]]:
    """As `learn_from`, of the responses of all ranks of a process group; the advantages are those
    of this rank's. Ranks share no prompts."""
    parts: list[Any] = [None] * dist.get_world_size(ranks)
    on_cpu = {name: values.detach().cpu() for name, values in tensors.items()}
    dist.all_gather_object(parts, (prompts, keys, on_cpu), group=ranks)
    advantages, figures = learn_from(
        live,
        [(rank, prompt) for rank, part in enumerate(parts) for prompt in part[0]],
        keys=[key for _, keys, _ in parts for key in keys],
        step=step,
        **{name: torch.cat([of_rank[name] for *_, of_rank in parts]) for name in tensors},
    )
    return advantages.split([len(part[0]) for part in parts])[dist.get_rank(ranks)], figures


def check_settings(settings: Any, needed: Mapping[str, Any]) -> None:
    """Raises ValueError if one of the settings, by dotted name, has another value than needed."""
    for name, value in needed.items():
        came = attrgetter(name)(settings)
        if came != value:
            raise ValueError(
                f"{name} is {came!r}; set {name}={value!r}: no other code may scale, shift or "
                "filter by rewards what the estimator centers."
            )


@contextmanager
def tried_with(package: str, tried: str) -> Iterator[None]:
    """Makes an error of the imports inside it name the version that works."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; pip install {package}=={tried}.") from error


def check_source(
    package: str, tried: str, owner: type | ModuleType, relied_on: Mapping[str, tuple[str, ...]]
) -> None:
    """Raises RuntimeError if a function of an upstream class or module lacks a line of these."""
    for name, lines in relied_on.items():
        method = getattr(owner, name, None)
        source = "" if method is None else inspect.getsource(method)
        for line in lines:
            if line not in source:
                raise RuntimeError(
                    f"{package} {version(package)} has no {line!r} in {owner.__name__}.{name}; "
                    f"pip install {package}=={tried}."
                )
