"""js_memory: how near to the value function, on prompts that come again and whose values are known?

A stream has four times as many prompts as a batch, and visits each once in four steps, eight times
in all. The past is what the `PromptMemory` of each copy remembers. Shown is how far the squared
error of the baseline is below RLOO's after the first epoch, in percent; for m = 1, below js_plus's.

    python benchmarks/js_memory_streams.py              # 300 cells: ten minutes on a quiet core
    python benchmarks/js_memory_streams.py --ablations  # 60 of them, with each constant changed
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch
from markdown_table import print_table
from numpy.typing import NDArray
from scipy.special import expit, logit

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import (
    Batch,
    Past,
    PromptMemory,
    estimate,
    find_estimator,
    make_batch,
)
from openrlhf_js.estimators import memory as memory_file
from openrlhf_js.estimators.baselines import memory as regression
from openrlhf_js.estimators.batch import Evidence

Array = NDArray[np.float64]
Cell = tuple[str, str, int, int]  # stream, kind of rewards, prompts and responses
PROMPTS, RESPONSES = (8, 16, 64, 256), (1, 2, 4, 8, 16)
EPOCH, EPOCHS, BATCHES_OF_8 = 4, 8, 48
KINDS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {  # of values, of rewards
    "binary": (
        lambda g, shape: logit(g.beta(0.5, 0.5, shape).clip(1e-6, 1 - 1e-6)),
        lambda g, values, m: g.random((*values.shape, m)) < values[..., None],
    ),
    "Gaussian": (
        lambda g, shape: g.standard_normal(shape),
        lambda g, values, m: values[..., None] + g.standard_normal((*values.shape, m)),
    ),
    "Student t(3)": (
        lambda g, shape: g.standard_t(3, shape),
        lambda g, values, m: values[..., None] + g.standard_t(3, (*values.shape, m)),
    ),
}
# From the values before a step, as logits where rewards are binary, and fresh ones, to those of it.
STREAMS: dict[str, Callable[[Array, Array, int], Array]] = {
    "stays": lambda now, fresh, step: now,
    "rises, by 2 in all": lambda now, fresh, step: now + 2 / (EPOCH * EPOCHS),
    "drifts, half of it new in 16 steps": lambda now, fresh, step: (
        now * 0.5 ** (1 / 32) + fresh * (1 - 0.5 ** (1 / 16)) ** 0.5
    ),
    "jumps to new values half-way": lambda now, fresh, step: (
        fresh if step == EPOCH * EPOCHS // 2 else now
    ),
    "forgets: new values at every step": lambda now, fresh, step: fresh,
}


def measure(stream: str, kind: str, n: int, m: int) -> tuple[float, float, float]:
    """Mean squared errors of RLOO's baseline (NaN for m = 1), js_plus's and js_memory's."""
    generator = np.random.default_rng([0, n, m])
    draw, reward = KINDS[kind]
    copies = max(8, 8 * BATCHES_OF_8 // n)
    memories = [PromptMemory(memory_file.HALF_LIVES) for _ in range(copies)]
    latent = draw(generator, (copies, EPOCH * n))
    errors = []
    for step in range(EPOCH * EPOCHS):
        latent = STREAMS[stream](latent, draw(generator, latent.shape), step)
        if step % EPOCH == 0:
            order = generator.random(latent.shape).argsort(1)
        chosen = order[:, step % EPOCH * n :][:, :n]
        value = np.take_along_axis(latent, chosen, 1)
        value = expit(value) if kind == "binary" else value
        rewards = torch.from_numpy(reward(generator, value, m).astype(float))
        keys = torch.from_numpy(chosen)
        pasts = []
        for memory, prompts, seen in zip(memories, keys, rewards, strict=True):
            visit = make_batch(seen, keys=prompts, step=step)
            pasts.append(memory.recall(visit))
            memory.learn(visit)
        if step >= EPOCH:
            means = torch.stack([past.means for past in pasts])
            earlier = [torch.stack(sums) for sums in zip(*(p.earlier for p in pasts), strict=True)]
            squares = torch.vmap(squared)(rewards, torch.from_numpy(value), means, *earlier)
            errors.append(squares.mean(0).tolist())
    return tuple(np.mean(errors, 0).tolist())


def squared(
    rewards: torch.Tensor, value: torch.Tensor, means: torch.Tensor, *earlier: torch.Tensor
) -> torch.Tensor:
    """(3,) mean squared errors of a batch."""
    mask = torch.ones_like(rewards, dtype=torch.bool)
    batch = Batch(rewards=rewards, mask=mask, past=Past(means, Evidence(*earlier)))
    errors = []
    for name in ("rloo", "js_plus", "js_memory"):
        if name == "rloo" and rewards.shape[1] == 1:
            errors.append(torch.full_like(value[0], torch.nan))
        else:
            baseline = estimate(find_estimator(name), batch).baseline
            errors.append((baseline - value[:, None]).square().mean())
    return torch.stack(errors)


def below(errors: tuple[float, float, float]) -> float:
    """Percent that js_memory's error is below RLOO's, or js_plus's where RLOO has none."""
    rloo, plus, memory = errors
    return 100 * (1 - memory / (plus if np.isnan(rloo) else rloo))


def measure_all(cells: Sequence[Cell], title: str) -> dict[Cell, tuple[float, float, float]]:
    """The errors of each cell."""
    errors = {}
    with progress(title, len(cells), "cells") as bar:
        for cell in cells:
            errors[cell] = measure(*cell)
            bar.advance()
    return errors


def percent_above_js_plus(errors: Mapping[Cell, tuple[float, float, float]]) -> dict[Cell, float]:
    """How far js_memory's error is above js_plus's, in percent."""
    return {cell: 100 * (memory / plus - 1) for cell, (_, plus, memory) in errors.items()}


def show_streams() -> None:
    """The table over all streams, and the worst cell."""
    errors = measure_all(list(product(STREAMS, KINDS, PROMPTS, RESPONSES)), "streams")
    print(f"n = {', '.join(map(str, PROMPTS))}\n")
    rows = []
    for stream, kind in product(STREAMS, KINDS):
        row = [stream, kind]
        for m in RESPONSES:
            savings = [below(errors[stream, kind, n, m]) for n in PROMPTS]
            row.append("/".join(f"{saving:.0f}" for saving in savings))
        rows.append(row)
    print_table(["values", "rewards", *(f"m = {m}" for m in RESPONSES)], rows)
    above = percent_above_js_plus(errors)
    worst = max(above, key=lambda cell: above[cell])
    within = sum(percent <= 1 for percent in above.values())
    print(
        f"\n{within} of {len(above)} cells at most 1 % above js_plus's; "
        f"the worst {above[worst]:+.2f} % {worst}"
    )


# What the estimator does without a constant, or with another: (module, name, value).
ABLATIONS: list[tuple[ModuleType, str, Any]] = [
    (memory_file, "HALF_LIVES", (32.0,)),
    (memory_file, "HALF_LIVES", (16.0, 128.0, 1024.0)),
    (memory_file, "FADE", 0.5),
    (memory_file, "FADE", 0.99),
    (regression, "CHANCE", 0.0),
    (regression, "CHANCE", 4.0),
    (regression, "CONTRADICTION", 0.0),
    (regression, "CONTRADICTION", math.inf),
]
ABLATED_CELLS = list(product(STREAMS, ("binary", "Student t(3)"), (8, 64), (1, 2, 8)))


def show_ablations() -> None:
    """Points of saving that each change costs: in the mean, and by stream; and the worst cell."""
    standard = measure_all(ABLATED_CELLS, "as it is")
    rows = [_ablation_row("as it is", standard, standard)]
    for module, name, value in ABLATIONS:
        before = getattr(module, name)
        setattr(module, name, value)
        title = f"{name} = {value}"
        rows.append(_ablation_row(title, measure_all(ABLATED_CELLS, title), standard))
        setattr(module, name, before)
    print_table(["constant", "mean", *STREAMS, "worst above js_plus, %"], rows)


def _ablation_row(
    title: str,
    errors: Mapping[Cell, tuple[float, float, float]],
    standard: Mapping[Cell, tuple[float, float, float]],
) -> list[str]:
    gains = {cell: below(errors[cell]) - below(standard[cell]) for cell in errors}
    row = [title, f"{np.mean(list(gains.values())):+.1f}"]
    for stream in STREAMS:
        row.append(f"{np.mean([gains[cell] for cell in gains if cell[0] == stream]):+.1f}")
    row.append(f"{max(percent_above_js_plus(errors).values()):+.1f}")
    return row


def main() -> None:
    torch.set_num_threads(1)
    if "--ablations" in sys.argv[1:]:
        show_ablations()
    else:
        show_streams()


if __name__ == "__main__":
    main()
