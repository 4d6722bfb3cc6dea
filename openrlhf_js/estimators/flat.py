"""Rewards as most stacks hold them: one list, with the prompt of each response beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.group_stats import as_tensor


def as_plain(value: Any) -> Any:
    """An array or tensor as Python numbers, by which it is compared; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


class Groups:
    """The prompt groups of B responses, of any sizes and in any order.

    Groups are numbered by first appearance, and responses in their order within the group.

    Examples:
        >>> groups = Groups(["a", "b", "a"])
        >>> groups.pad([1, 0, 0], "rewards")
        tensor([[1, 0],
                [0, 0]])
        >>> groups.mask
        tensor([[ True,  True],
                [ True, False]])
    """

    def __init__(self, ids: Iterable[Any]):
        """Takes ids (B,): a list of numbers, strings or other hashables, an array or a tensor.

        Raises ValueError for ids of another shape.
        """
        try:
            ids = [as_plain(each) for each in as_plain(ids)]
            numbers = {group: row for row, group in enumerate(dict.fromkeys(ids))}
        except TypeError as error:
            raise ValueError(
                f"groups must be a flat list (B,) with the id of each reward's prompt ({error})."
            ) from error
        sizes = [0] * len(numbers)
        places = []
        for group in ids:
            row = numbers[group]
            places.append((row, sizes[row]))
            sizes[row] += 1
        self._rows, self._columns = torch.tensor(places, dtype=torch.int64).reshape(-1, 2).T
        self.shape = (len(sizes), max(sizes, default=0))
        self.mask = self.pad(torch.ones(len(places), dtype=torch.bool), "mask")
        """(n, m) bool, True where there is a response."""

    def pad(self, values: Any, name: str) -> Tensor:
        """(n, m) of values (B,), 0 where a group has fewer than m responses."""
        flat = as_tensor(values, name)
        if flat.shape != self._rows.shape:
            came = tuple(flat.shape)
            raise ValueError(
                f"{name} and groups must be lists of the same length; got {came} and "
                f"{tuple(self._rows.shape)}."
            )
        padded = flat.new_zeros(self.shape)
        padded[self._rows, self._columns] = flat
        return padded

    def first_rows(self) -> list[int]:
        """The index, among the B responses, of each group's first one."""
        return (self._columns == 0).nonzero().flatten().tolist()

    def pad_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs that come with flat rewards, in the shapes that `make_batch` takes."""
        padded = dict(inputs)
        padded["mask"] = self.mask
        if inputs.get("mask") is not None:
            padded["mask"] = self.mask & self.pad(inputs["mask"], "mask").to(self.mask.device)
        for name in ("lengths", "squared_score_norms"):
            if inputs.get(name) is not None:
                padded[name] = self.pad(inputs[name], name)
        return padded

    def flatten(self, values: Tensor) -> Tensor:
        """(B,) of values (n, m), in the order of the ids."""
        return values[self._rows, self._columns]
