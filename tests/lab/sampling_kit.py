"""A policy that is a formula, and what it takes to sample from it into a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from openrlhf_js.lab.rewards import Grader
from openrlhf_js.lab.sampling import plan, sample
from openrlhf_js.lab.store import Store
from openrlhf_js.sampling.engines import Policy
from openrlhf_js.sampling.prompts import Prompt

END = 9
SETTINGS = {"model_sha256": "abc", "temperature": 1.0, "model": "here"}


def policy(folder: Path = Path(), **changes) -> Policy:
    settings = {
        "folder": folder,
        "device": "cpu",
        "dtype": "float32",
        "temperature": 1.0,
        "top_p": 1.0,
        "max_new_tokens": 4,
        "ends": (END,),
        "longest_prompt": 8,
    }
    return Policy(**(settings | changes))


class Formula:
    """An engine whose responses are a formula of prompt and key: 1 to 4 tokens, some unfinished."""

    def __init__(self, stop_after: int | None = None):
        self.calls = 0
        self.stop_after = stop_after

    def sample(self, prompts, keys):
        if self.calls == self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        return [self._one(prompt, key) for prompt, key in zip(prompts, keys, strict=True)]

    def greedy(self, prompts):
        return self.sample(prompts, [0] * len(prompts))

    def _one(self, prompt, key):
        tokens = np.random.default_rng([sum(prompt), key]).integers(0, 9, 1 + key % 4)
        return np.append(tokens[:3], [END] if key % 3 else []).astype(np.int32)


def prompts(count: int) -> list[Prompt]:
    return [Prompt(f"p{i}:", f"l{i}", f"g{i % 2}", [i, i + 1]) for i in range(count)]


def decode(tokens: list[int]) -> str:
    return f"p{tokens[0]}:" + "".join(map(str, tokens[2:]))


def digits(queries, texts, labels):
    """The mean of a response's digits: a reward that differs from response to response."""
    responses = [query[len(text) :] for query, text in zip(queries, texts, strict=True)]
    return {"rewards": [sum(map(int, each)) / len(each) for each in responses]}


DIGITS = Grader(digits, "digits.py", "d1")


def run(
    folder: Path,
    n: int = 5,
    m: int = 6,
    rows: int = 4,
    engine: Formula | None = None,
    grader: Grader = DIGITS,
    seed: int = 0,
) -> Formula:
    """Samples n x m responses into a folder, what is there aside, and returns the engine."""
    engine = engine or Formula()
    with Store(folder, SETTINGS) as store:
        wanted = store.record(prompts(n))
        pieces = plan(store, n, m, rows)
        sample(store, pieces, wanted, engine, policy(), decode, grader, seed, lambda *_: None)
    return engine
