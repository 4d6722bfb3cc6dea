"""The way of a row's datasource to the grader: its label bears it.

Upstream's data set reads the datasource of every row, for the evaluation's metrics, and drops it on
the way to a reward function, which gets the label. A label that is text can bear it unnoticed.
"""

from __future__ import annotations

from typing import Any

from openrlhf.datasets import PromptDataset


class SourcedLabel(str):
    """A label that knows its row's datasource, and is in all else the text that it was.

    Attributes:
        datasource: what the row holds under the key `datasource`.
    """

    datasource: str


def with_datasource(label: Any, datasource: Any) -> Any:
    """The label, which bears the datasource if both are text."""
    if not isinstance(label, str) or not isinstance(datasource, str):
        return label
    sourced = SourcedLabel(label)
    sourced.datasource = datasource
    return sourced


class SourcedPrompts(PromptDataset):
    """Upstream's data set of prompts, whose labels bear their datasource."""

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        datasource, prompt, label, images = super().__getitem__(idx)
        return datasource, prompt, with_datasource(label, datasource), images
