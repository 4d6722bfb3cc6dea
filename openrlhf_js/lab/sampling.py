"""Samples what a folder lacks: responses in parts, each graded and written before the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from openrlhf_js.lab.parts import (
    GREEDY,
    KINDS,
    SAMPLED,
    Part,
    grader_of,
    places,
    read_part,
    write_part,
)
from openrlhf_js.lab.rewards import Grader, SourcedLabel
from openrlhf_js.lab.store import Store
from openrlhf_js.sampling.engines import Engine, Policy, key
from openrlhf_js.sampling.prompts import Prompt

Progress = Callable[[int, int], None]  # responses done, of how many


class Piece(NamedTuple):
    """What is sampled at once: draws `draw` to `draw + draws` of neighbouring prompts."""

    kind: str
    prompt: int
    prompts: int
    draw: int
    draws: int


def plan(store: Store, prompts: int, responses: int, rows: int) -> list[Piece]:
    """The pieces that are missing, each of about `rows` responses.

    They depend on nothing but on what is there, so that sampling which was stopped after any piece
    goes on with the very pieces that it would have come to.

    Args:
        store: says what is there.
        prompts: wanted.
        responses: wanted to each, one greedy one aside.
        rows: sampled at once, 1 or more.
    """
    pieces: list[Piece] = []
    for kind, wanted in ((GREEDY, 1), (SAMPLED, responses)):
        lacks = store.missing(kind, prompts, wanted)
        for first, last in _runs(lacks):
            draws = int(lacks[first])
            start = wanted - draws
            width = max(1, rows // draws)  # prompts
            for prompt in range(first, last, width):
                many = min(width, last - prompt)
                for draw in range(start, wanted, rows):
                    pieces.append(Piece(kind, prompt, many, draw, min(rows, wanted - draw)))
    return pieces


def _runs(lacks: np.ndarray) -> Iterator[tuple[int, int]]:
    """Neighbours that lack the same number, 0 aside: from the first to one after the last."""
    edges = np.flatnonzero(np.diff(lacks)) + 1
    bounds = [0, *edges.tolist(), len(lacks)]
    for first, last in pairwise(bounds):
        if lacks[first]:
            yield first, last


def sample(
    store: Store,
    pieces: Sequence[Piece],
    prompts: Sequence[Prompt],
    engine: Engine,
    policy: Policy,
    decode: Callable[[list[int]], str],
    grader: Grader,
    seed: int,
    progress: Progress,
) -> None:
    """Samples, grades and writes the pieces, one after the other.

    Args:
        store: gets them.
        pieces: of `plan`.
        prompts: all of them, in the store's order.
        engine: samples from the policy.
        policy: says what ends a response.
        decode: text of tokens, special ones too, as a run decodes what it grades.
        grader: gives the rewards.
        seed: of the responses.
        progress: is told after each piece.

    Raises:
        RewardFailed: a reward is missing. The responses are kept, and graded by the next call.
    """
    total, done = sum(piece.prompts * piece.draws for piece in pieces), 0
    for piece in pieces:
        chosen = prompts[piece.prompt : piece.prompt + piece.prompts]
        asked = [each.tokens for each in chosen for _ in range(piece.draws)]
        if piece.kind == GREEDY:
            found = engine.greedy(asked)
        else:
            numbers = range(piece.prompt, piece.prompt + piece.prompts)
            draws = range(piece.draw, piece.draw + piece.draws)
            found = engine.sample(asked, [key(seed, i, j) for i in numbers for j in draws])
        grouped = [found[i : i + piece.draws] for i in range(0, len(found), piece.draws)]
        part = Part.ungraded(grouped, policy.ends)
        try:
            part = graded(part, chosen, decode, grader)
        finally:  # a reward function that fails, or an interrupt, costs no sampling
            write_part(store.folder, piece.kind, piece.prompt, piece.draw, part)
        done += len(asked)
        progress(done, total)


def grade_anew(
    store: Store,
    prompts: Sequence[Prompt],
    decode: Callable[[list[int]], str],
    grader: Grader,
    progress: Progress,
) -> int:
    """Grades the parts that this grader has not graded, and returns how many responses that were.

    Args: as of `sample`.

    Raises:
        RewardFailed: a reward is missing.
    """
    found = [place for kind in KINDS for place in places(store.folder, kind)]
    responses = 0
    for number, place in enumerate(found, 1):
        if grader_of(place.path) != grader.sha256:  # tokens are large: read where needed
            part = read_part(place.path)
            chosen = prompts[place.prompt : place.prompt + len(part.lengths)]
            anew = graded(part, chosen, decode, grader)
            write_part(store.folder, place.kind, place.prompt, place.draw, anew)
            responses += part.lengths.size
        progress(number, len(found))
    return responses


def graded(
    part: Part, prompts: Sequence[Prompt], decode: Callable[[list[int]], str], grader: Grader
) -> Part:
    """The part with its rewards.

    Raises:
        RewardFailed: a reward is missing.
    """
    queries, texts, labels = [], [], []
    for prompt, responses in zip(prompts, part.responses(), strict=True):
        for response in responses:
            queries.append(decode(prompt.tokens + response.tolist()))
            texts.append(prompt.text)
            labels.append(SourcedLabel.of(prompt.label, prompt.group))
    rewards = grader.grade(queries, texts, labels).reshape(part.lengths.shape)
    return part._replace(rewards=rewards, grader=np.array(grader.sha256))
