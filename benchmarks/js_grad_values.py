"""How near to the value function are the baselines of `js` and `js_grad`, with weights of 1?

Shown is how far the mean squared distance of a baseline to the prompts' values is below RLOO's, in
percent: first in a first batch, over distributions of prompts; then in streams of prompts that come
again, which `js_grad` remembers.

    python benchmarks/js_grad_values.py            # both
    python benchmarks/js_grad_values.py --streams  # the second alone
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from markdown_table import print_table
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor
from value_distributions import ADVERSARIES, DISTRIBUTIONS, SILENT, Prompts

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import ESTIMATORS, Batch, LiveEstimator, estimate

Array = NDArray[np.float64]
SHOWN = ("js", "js_grad")

# --- a first batch --------------------------------------------------------------------------------

PROMPTS, RESPONSES = (4, 8, 16, 32, 64, 512), (2, 4, 8, 16)
PROMPTS_DRAWN = 10_000  # in all, for each cell
FAMILIES: dict[str, Sequence[Prompts]] = {
    "Distributions": DISTRIBUTIONS,
    "A rare kind of prompt": ADVERSARIES,
    "Values of exactly 0, and a rare kind": SILENT,
}


def show_first_batches() -> None:
    """For each family of distributions the mean and the worst of them."""
    for title, distributions in FAMILIES.items():
        savings = {}
        with progress(title, len(distributions), "distributions") as bar:
            for prompts in distributions:
                for n, m in product(PROMPTS, RESPONSES):
                    savings[prompts.title, n, m] = first_batch(prompts, n, m)
                bar.advance()
        rows = []
        for m, name in product(RESPONSES, SHOWN):
            row = [f"m = {m}, `{name}`"]
            for n in PROMPTS:
                percents = [savings[prompts.title, n, m][name] for prompts in distributions]
                row.append(f"{np.mean(percents):.0f} ({min(percents):.0f})")
            rows.append(row)
        print(f"\n**{title}**, {len(distributions)} of them: mean (worst)\n")
        print_table(["", *(f"n = {n}" for n in PROMPTS)], rows)


def first_batch(prompts: Prompts, n: int, m: int) -> dict[str, float]:
    """Percent that each estimator's error is below RLOO's."""
    generator = np.random.default_rng([0, n, m])
    values = prompts.values(generator, (PROMPTS_DRAWN // n, n))
    rewards = prompts.rewards(generator, values, m)
    errors = torch.vmap(squared_errors)(torch.from_numpy(rewards), torch.from_numpy(values))
    rloo, *others = errors.sum(0).tolist()
    return {name: below(error, rloo) for name, error in zip(SHOWN, others, strict=True)}


def squared_errors(rewards: Tensor, values: Tensor) -> Tensor:
    """(1 + shown,) of a batch: RLOO's mean squared distance to the values, and the others'."""
    batch = Batch(rewards=rewards, mask=torch.ones_like(rewards, dtype=torch.bool))
    baselines = [estimate(ESTIMATORS[name], batch).baseline for name in ("rloo", *SHOWN)]
    return torch.stack([(b - values[:, None]).square().mean() for b in baselines])


def below(error: float, reference: float) -> float:
    """Percent that an error is below another one."""
    return 100 * (1 - error / reference)


# --- prompts that come again ----------------------------------------------------------------------

SIZES = tuple(product((8, 16, 64), (1, 2, 4, 8)))
EPOCH, EPOCHS = 4, 8  # a stream has four times a batch's prompts, and shows each once in four steps
PROMPTS_A_STEP = 128  # over all copies of a stream
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


def show_streams() -> None:
    """Each stream and kind of rewards, for each size."""
    rows = []
    with progress("streams", len(STREAMS) * len(KINDS) * len(SIZES), "cells") as bar:
        for stream, kind in product(STREAMS, KINDS):
            row = [f"{stream}, {kind}"]
            for n, m in SIZES:
                errors = stream_errors(stream, kind, n, m)
                reference = errors["rloo" if m > 1 else "bloo"]
                percents = [below(errors[name], reference) for name in SHOWN]
                row.append(" / ".join(f"{percent:.0f}" for percent in percents))
                bar.advance()
            rows.append(row)
    print("\n**Prompts that come again**: `js` / `js_grad`; with m = 1 below bloo's\n")
    print_table(["values, rewards", *(f"{n} x {m}" for n, m in SIZES)], rows)


def stream_errors(stream: str, kind: str, n: int, m: int) -> Mapping[str, float]:
    """Mean squared errors after the first epoch."""
    generator = np.random.default_rng([0, n, m])
    draw, reward = KINDS[kind]
    copies = max(2, PROMPTS_A_STEP // n)
    names = ("rloo" if m > 1 else "bloo", *SHOWN)
    live = {name: [LiveEstimator(name) for _ in range(copies)] for name in names}
    errors: dict[str, list[float]] = {name: [] for name in names}
    latent = draw(generator, (copies, EPOCH * n))
    for step in range(EPOCH * EPOCHS):
        latent = STREAMS[stream](latent, draw(generator, latent.shape), step)
        if step % EPOCH == 0:
            order = generator.random(latent.shape).argsort(1)
        chosen = order[:, step % EPOCH * n :][:, :n].copy()
        values = np.take_along_axis(latent, chosen, 1)
        values = expit(values) if kind == "binary" else values
        rewards = reward(generator, values, m).astype(float)
        for name, copy in product(names, range(copies)):
            estimator = live[name][copy]
            batch = estimator.batch(rewards[copy], keys=chosen[copy], step=step)
            baseline = estimator.estimate(batch).baseline.numpy()
            estimator.learn(batch)
            if step >= EPOCH:
                errors[name].append(float(np.square(baseline - values[copy][:, None]).mean()))
    return {name: float(np.mean(squares)) for name, squares in errors.items()}


def main() -> None:
    torch.set_num_threads(1)
    if "--streams" not in sys.argv[1:]:
        show_first_batches()
    show_streams()


if __name__ == "__main__":
    main()
