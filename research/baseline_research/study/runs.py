"""What a study is made of: runs, and the cells in which their estimators are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

OWN = "own"  # the task of a study that trains with the user's flags


class Cell(NamedTuple):
    """A setting to compare estimators in; runs of one cell and seed have the same start."""

    task: str
    mix: str
    prompts: int  # in a batch; 0 for a budget, which each estimator splits for itself
    responses: int  # to each prompt; of a budget, all of a batch

    @property
    def title(self) -> str:
        """The cell's name in tables and above pictures."""
        size = f"{self.prompts} x {self.responses}"
        if not self.prompts:
            size = f"{self.responses} responses a step"
        return size if self.task == OWN else f"{self.task}, {self.mix}, {size}"


class Run(NamedTuple):
    """One training run; its fields are those of a cell and three more."""

    task: str
    mix: str
    prompts: int
    responses: int
    estimator: str
    learning_rate: float
    seed: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Run:
        """The run of a record."""
        return cls._make(record[name] for name in cls._fields)

    @property
    def cell(self) -> Cell:
        """The cell in which its estimator is compared."""
        return Cell(self.task, self.mix, self.prompts, self.responses)

    @property
    def pair(self) -> tuple[Cell, int]:
        """The cell and seed that it shares with the runs it is compared with."""
        return self.cell, self.seed

    @property
    def name(self) -> str:
        """A name for files; without the signs at which upstream cuts the path of a data set."""
        cell = f"{self.task}-{self.mix}-{self.prompts}x{self.responses}"
        estimator = re.sub("[:@]", "-", self.estimator)
        return f"{cell}-{estimator}-{self.learning_rate:g}-{self.seed}"


def seeds_of(text: str) -> range:
    """The seeds that `10` or `100-109` names."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))
