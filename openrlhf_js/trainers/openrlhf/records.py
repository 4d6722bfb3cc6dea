"""What travels with a prompt and its responses, of which upstream knows nothing.

Upstream hands a prompt and a label as two strings from its data set through Ray to an engine, and
for each response a dict back, of which it keeps what it has a field for. Each record here stands in
one of those places, since upstream passes on whatever is there: `Label` and `Prompt` in place of
the strings, `Outcome` in the dict and then in `Sample`, upstream's experience with one more field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf.trainer.ppo_utils.experience import Experience

from openrlhf_js.estimators.memory import digest_of, key_of

EVALUATION = 2**32  # the number of an evaluation's first prompt; every one has the same seeds


class Label(NamedTuple):
    """A row's label as it is in the data, from the data set to the grader."""

    value: Any
    datasource: str
    """"" where the row has none."""


class Prompt(NamedTuple):
    """A prompt, from the generator of rollouts to an engine."""

    text: str
    number: int
    """Its place among all that the run draws, from 0 or, evaluated, `EVALUATION` on."""

    @property
    def is_trained(self) -> bool:
        return self.number < EVALUATION


class Outcome(NamedTuple):
    """What is known of a response besides its tokens and its reward."""

    prompt_number: int
    prompt_key: int
    error: str | None = None
    """Why it has no reward, where that is masked."""
    greedy_reward: float | None = None
    """Of the prompt's greedy response, which remax needs."""


@dataclass
class Sample(Experience):  # type: ignore[misc]
    """Upstream's experience of one or several responses, with the outcome of each."""

    outcomes: list[Outcome] = field(default_factory=list)

    @classmethod
    def of(cls, experience: Any, outcomes: list[Outcome]) -> Sample:
        return cls(**vars(experience), outcomes=outcomes)


def prompt_key(text: str, label: Label, images: Any = None) -> int:
    """What a prompt is known by to what remembers: its text, label, datasource and images."""
    value = label.value
    datasource = label.datasource if type(value) in (str, int) else ""
    # pass@k, whose samples may have warmed the memory, keeps whole numbers as text
    listed = images if isinstance(images, list) else [images]
    pictures = [_content_of(image) for image in listed if image]
    return key_of(text, str(value) if isinstance(value, int) else value, datasource, *pictures)


def _content_of(image: Any) -> str:
    """What an image is known by, wherever its file lies: its bytes, or a decoded one's pixels."""
    if isinstance(image, Mapping):  # as `datasets` holds one that it has not decoded
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
