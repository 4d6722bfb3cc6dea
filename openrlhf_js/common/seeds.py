"""The seeds of responses."""

from __future__ import annotations

import numpy as np


def key(seed: int, prompt: int, draw: int) -> int:
    """The seed of one response, different for each, below 2^63."""
    state = np.random.SeedSequence([seed, prompt, draw]).generate_state(1, np.uint64)
    return int(state[0] >> 1)
