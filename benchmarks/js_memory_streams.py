"""js_memory: how near to the value function, on prompts that come again and whose values are known?

A stream has four times as many prompts as a batch, and visits each once in four steps, eight times
in all. The past is what the `Memory` of each copy remembers. Shown is how far the squared error of
the baseline is below RLOO's after the first epoch, in percent; for m = 1, below js_plus's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from markdown_table import print_table
from numpy.typing import NDArray
from scipy.special import expit, logit

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import Memory
from openrlhf_js.estimators.coefficients import corrected_coefficient
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.estimators.regression import Earlier, fit

Array = NDArray[np.float64]
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
    memories = [Memory() for _ in range(copies)]
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
        keys, pasts = torch.from_numpy(chosen), []
        earlier = [memory.earlier for memory in memories]
        for memory, own, seen in zip(memories, keys, rewards, strict=True):
            pasts.append(memory.covariate(own, step))
            memory.update(own, seen, None, step, pasts[-1])
        if step >= EPOCH:
            older = Earlier(*map(torch.stack, zip(*earlier, strict=True)))
            given = rewards, torch.stack(pasts), older, torch.from_numpy(value)
            errors.append(torch.vmap(squared)(*given).mean(0).tolist())
    return tuple(np.mean(errors, 0).tolist())


def squared(
    rewards: torch.Tensor, past: torch.Tensor, earlier: Earlier, value: torch.Tensor
) -> torch.Tensor:
    """(3,) mean squared errors of a batch."""
    stats = checked_statistics(rewards, torch.ones_like(rewards, dtype=torch.bool))
    with_past, own = fit(stats, past, earlier), stats.loo_prompt_mean
    alone = rewards.shape[1] == 1
    found = [own]
    for weight, target in (
        (corrected_coefficient(stats), stats.loo_batch_mean),
        (with_past.shrinkage, with_past.prediction),
    ):
        weight = torch.ones_like(weight) if alone else weight
        found.append((1 - weight)[:, None] * own + (weight * target)[:, None])
    off = torch.stack([(each - value[:, None]).square().mean() for each in found])
    return torch.cat([off[:1] * (torch.nan if alone else 1), off[1:]])


def below(errors: tuple[float, float, float]) -> float:
    """Percent that js_memory's error is below RLOO's, or js_plus's where RLOO has none."""
    rloo, plus, memory = errors
    return 100 * (1 - memory / (plus if np.isnan(rloo) else rloo))


def main() -> None:
    torch.set_num_threads(1)
    every = list(product(STREAMS, KINDS, PROMPTS, RESPONSES))
    with progress("streams", len(every), "cells") as bar:
        cells = {}
        for cell in every:
            cells[cell] = measure(*cell)
            bar.advance()
    print(f"n = {', '.join(map(str, PROMPTS))}\n")
    rows = []
    for of in product(STREAMS, KINDS):
        each = [[below(cells[(*of, n, m)]) for n in PROMPTS] for m in RESPONSES]
        rows.append((*of, *("/".join(f"{x:.0f}" for x in own) for own in each)))
    print_table(["values", "rewards", *(f"m = {m}" for m in RESPONSES)], rows)
    above = {cell: 100 * (memory / plus - 1) for cell, (_, plus, memory) in cells.items()}
    worst = max(above, key=lambda cell: above[cell])
    within = sum(each <= 1 for each in above.values())
    said = f"\n{within} of {len(above)} cells; worst {above[worst]:+.2f} % {worst}"
    print(f"{said}: at most 1 % above js_plus's.")


if __name__ == "__main__":
    main()
