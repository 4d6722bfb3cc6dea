"""Time `advantage("js", ...)` on one CPU thread, against the paper's definition taken word by word.

Two loops are timed beside it. `listing` leaves one prompt out after the other by concatenating the
other prompts' means, as the paper's listing does. `definition` does for every response what its
equations say: concatenate the other prompts' rewards, then take means and variances of them. Rounds
alternate, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from statistics import median, quantiles
from timeit import timeit

import torch
from torch import Tensor

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import advantage

SIZES = ((1024, 8), (16384, 8), (65536, 16))
LOOPED = SIZES[0]
ROUNDS, LOOP_ROUNDS, REPEATS = 15, 3, 20


def without(values: Tensor, i: int) -> Tensor:
    return torch.cat([values[:i], values[i + 1 :]])


def listing(rewards: Tensor) -> Tensor:
    """The advantage of `js` by a loop over prompts, each leaving out its own mean."""
    n, m = rewards.shape
    mean, variance = rewards.mean(1), rewards.var(1) / m
    result = torch.empty_like(rewards)
    for i in range(n):
        others = without(mean, i)
        v = without(variance, i).mean()
        s = (others - others.mean()).square().mean()
        weight = (n - 1) / n * v / (v + s)
        own = (rewards[i].sum() - rewards[i]) / (m - 1)
        result[i] = rewards[i] - (1 - weight) * own - weight * others.mean()
    return result


def definition(rewards: Tensor) -> Tensor:
    """The same by a loop over responses, each leaving out its prompt's rewards."""
    n, m = rewards.shape
    result = torch.empty_like(rewards)
    for i in range(n):
        for j in range(m):
            others = without(rewards, i)
            means = others.mean(1)
            v = (others.var(1) / m).mean()
            s = (means - means.mean()).square().mean()
            weight = (n - 1) / n * v / (v + s)
            own = without(rewards[i], j).mean()
            result[i, j] = rewards[i, j] - (1 - weight) * own - weight * means.mean()
    return result


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    batches = {size: torch.rand(size, generator=generator) for size in SIZES}
    loops = {"listing": listing, "definition": definition}
    for loop in loops.values():  # a check, and the warm-up
        expected = advantage("js", batches[LOOPED])
        torch.testing.assert_close(loop(batches[LOOPED]), expected, rtol=1e-4, atol=1e-5)

    times: dict[tuple[str, tuple[int, int]], list[float]] = defaultdict(list)
    with progress("timing", ROUNDS, "rounds") as bar:
        for number in range(ROUNDS):
            for size, rewards in batches.items():
                for name in ("js", "js_plus", "rloo"):
                    call = partial(advantage, name, rewards)
                    once = median(timeit(call, number=1) for _ in range(REPEATS))
                    times[name, size].append(1e3 * once)
            for name, loop in loops.items() if number < LOOP_ROUNDS else ():
                times[name, LOOPED].append(1e3 * timeit(partial(loop, batches[LOOPED]), number=1))
            bar.advance()

    print(f"torch {torch.__version__}, float32, one thread; milliseconds over rounds\n")
    print("| what | n x m | median | quartiles |\n|---|---:|---:|---:|")
    for (what, (n, m)), found in sorted(times.items()):
        low, middle, high = quantiles(found, n=4)
        print(f"| {what} | {n} x {m} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    for name in loops:
        longer = median(times[name, LOOPED]) / median(times["js", LOOPED])
        print(f"At 1024 x 8 the {name} takes {longer:.0f} times as long as js.")


if __name__ == "__main__":
    main()
