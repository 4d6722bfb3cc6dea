"""How a response is sampled, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Response = NDArray[np.int32]  # token ids, with the end token if the model ended it
Images = Sequence[Sequence[str]]  # the paths of each prompt's images


class Parameters(NamedTuple):
    """How one response is sampled; temperature 0 is greedy."""

    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int


def key(seed: int, prompt: int, draw: int) -> int:
    """The seed of one response, different for each, below 2^63."""
    state = np.random.SeedSequence([seed, prompt, draw]).generate_state(1, np.uint64)
    return int(state[0] >> 1)
