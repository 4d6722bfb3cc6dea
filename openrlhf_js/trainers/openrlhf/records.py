"""Records that travel with a prompt and its responses through upstream's code.

Upstream passes a prompt and a label as two strings from its data set through Ray to an engine. For
each response it gets a dict back, and keeps the entries that it has fields for. Since it passes on
whatever stands in those places, our records do: `Label` and `Prompt` replace the strings; `Outcome`
is in the dict and then in `Sample`, upstream's experience with one more field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf.trainer.ppo_utils.experience import Experience

from openrlhf_js.estimators.memory import digest_of, key_of

EVALUATION = 2**32  # the number of an evaluation's first prompt; all evaluations share their seeds


class Label(NamedTuple):
    """A row's label as it is in the data; it goes from the data set to the grader."""

    value: Any
    datasource: str
    """"" if the row has none."""


class Prompt(NamedTuple):
    """A prompt; it goes from the generator of rollouts to an engine."""

    text: str
    number: int
    """Its place among all prompts the run draws, from 0; in an evaluation, from `EVALUATION`."""

    @property
    def is_trained(self) -> bool:
        return self.number < EVALUATION


class Outcome(NamedTuple):
    """What is known of a response besides its tokens and its reward."""

    prompt_number: int
    prompt_key: int
    error: str | None = None
    """Why it has no reward, if it is masked."""
    greedy_reward: float | None = None
    """The reward of the prompt's greedy response, which remax needs."""


@dataclass
class Sample(Experience):  # type: ignore[misc]
    """Upstream's experience of one or several responses, with the outcome of each."""

    outcomes: list[Outcome] = field(default_factory=list)

    @classmethod
    def of(cls, experience: Any, outcomes: list[Outcome]) -> Sample:
        return cls(**vars(experience), outcomes=outcomes)


def prompt_key(text: str, label: Label, images: Any = None) -> int:
    """The key of a prompt in an estimator's memory: from text, label, datasource and images.

    A whole number as a label is the same as its digits.
    """
    value = label.value
    datasource = label.datasource if type(value) in (str, int) else ""
    listed = images if isinstance(images, list) else [images]
    pictures = [_content_of(image) for image in listed if image]
    return key_of(text, str(value) if isinstance(value, int) else value, datasource, *pictures)


def _content_of(image: Any) -> str:
    """The digest of an image, wherever its file is: of its bytes, or of its pixels if decoded."""
    if isinstance(image, Mapping):  # how `datasets` holds an undecoded image
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str):
        return _content_of_file(image)
    return digest_of(image)


@cache
def _content_of_file(path: str) -> str:
    try:
        return digest_of(Path(path).read_bytes())
    except OSError:  # an address, or an image written as text
        return path
