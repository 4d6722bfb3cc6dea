"""One file of sampled responses: some draws of a few neighbouring prompts."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.whole_file import whole_file

GREEDY, SAMPLED = KINDS = ("greedy", "sampled")
_NAME = re.compile(r"(greedy|sampled)-(\d+)-(\d+)\.npz")


class Part(NamedTuple):
    """Responses to k neighbouring prompts, d to each.

    Attributes:
        tokens: int32, those of all responses one after the other.
        lengths: (k, d) how many belong to each.
        finished: (k, d) bool, whether the model ended it.
        rewards: (k, d) float64; NaN where they have not been graded.
        grader: () text, says which reward function gave them; "" if they have not been graded.
    """

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    finished: NDArray[np.bool_]
    rewards: NDArray[np.float64]
    grader: NDArray[np.str_]

    @staticmethod
    def ungraded(responses: Sequence[Sequence[NDArray[np.int32]]], ends: Sequence[int]) -> Part:
        """The part of k lists of d responses, given the tokens that end one."""
        flat = [each for group in responses for each in group]
        shape = len(responses), len(responses[0])
        finished = [bool(len(each)) and int(each[-1]) in ends for each in flat]
        return Part(
            np.concatenate(flat).astype(np.int32),
            np.array([len(each) for each in flat]).reshape(shape),
            np.array(finished).reshape(shape),
            np.full(shape, np.nan),
            np.array(""),
        )

    def responses(self) -> list[list[NDArray[np.int32]]]:
        """k lists of d responses, which are views of `tokens`."""
        k, d = self.lengths.shape
        pieces = np.split(self.tokens, np.cumsum(self.lengths)[:-1])
        return [pieces[row * d : (row + 1) * d] for row in range(k)]


class Place(NamedTuple):
    """Where a part belongs: its kind, its first prompt, the first draw of it, and its file."""

    kind: str
    prompt: int
    draw: int
    path: Path


def places(folder: Path, kind: str) -> list[Place]:
    """Where the parts of a kind are, a prompt's earlier draws before its later ones."""
    found = [
        Place(kind, int(match[2]), int(match[3]), path)
        for path in folder.iterdir()
        if (match := _NAME.fullmatch(path.name)) and match[1] == kind
    ]
    return sorted(found, key=lambda place: (place.draw, place.prompt))


def covered(folder: Path, kind: str, prompts: int) -> NDArray[np.int64]:
    """(prompts,) how many responses of a kind each prompt has.

    Raises:
        ValueError: a part is damaged.
    """
    there = np.zeros(prompts, dtype=np.int64)
    for place in places(folder, kind):
        k, d = _arrays(place.path, ["lengths"])[0].shape
        rows = there[place.prompt : place.prompt + k]  # a view
        rows[rows == place.draw] += d
    return there


def grader_of(path: Path) -> str:
    """Says which reward function graded a part, "" if none did.

    Raises:
        ValueError: it is damaged.
    """
    return str(_arrays(path, ["grader"])[0])


def read_part(path: Path) -> Part:
    """The part in a file.

    Raises:
        ValueError: it is damaged.
    """
    return Part(*_arrays(path, Part._fields))


def write_part(folder: Path, kind: str, prompt: int, draw: int, part: Part) -> None:
    """Writes a part, whole or not at all.

    Args:
        folder: of the parts.
        kind: of `KINDS`.
        prompt: the first one of the part.
        draw: the first one of each prompt.
        part: the responses.
    """
    with whole_file(folder / f"{kind}-{prompt:06d}-{draw:06d}.npz") as file:
        np.savez(file, allow_pickle=False, **part._asdict())


class Kind(NamedTuple):
    """All parts of a kind, by prompt: m_i responses, (m_i,) rewards, (m_i,) whether finished."""

    tokens: list[list[NDArray[np.int32]]]
    rewards: list[NDArray[np.float64]]
    finished: list[NDArray[np.bool_]]
    graders: set[str]


def read_parts(folder: Path, kind: str, prompts: int) -> Kind:
    """What the parts of a kind hold for the first prompts.

    Raises:
        ValueError: a part is damaged.
    """
    found = Kind(
        [[] for _ in range(prompts)],
        [np.zeros(0) for _ in range(prompts)],
        [np.zeros(0, dtype=bool) for _ in range(prompts)],
        set(),
    )
    for place in places(folder, kind):
        part = read_part(place.path)
        found.graders.add(str(part.grader))
        for prompt, responses in enumerate(part.responses(), place.prompt):
            if prompt >= prompts or len(found.tokens[prompt]) != place.draw:
                continue  # as `covered`: what follows a gap does not count
            found.tokens[prompt].extend(responses)
            row = prompt - place.prompt
            found.rewards[prompt] = np.append(found.rewards[prompt], part.rewards[row])
            found.finished[prompt] = np.append(found.finished[prompt], part.finished[row])
    return found


def _arrays(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names]
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError):
        raise ValueError(
            f"{path} is damaged: delete it, and its responses are sampled anew"
        ) from None
