"""Time `advantage("js", ...)` on one CPU thread, against the paper's definition taken word by word.

Two loops are timed beside it. `listing` leaves one prompt out after the other by concatenating the
other prompts' means, as the paper's listing does. `definition` does for every response what its
equations say: concatenate the other prompts' rewards, then take means and variances of them. Rounds
alternate, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

from functools import partial
from statistics import median, quantiles
from timeit import timeit

import torch
from torch import Tensor

from openrlhf_js.estimators import advantage

SIZE = (1024, 8)  # prompts, responses
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
    rewards = torch.rand(SIZE, generator=torch.Generator().manual_seed(0))
    functions = {"js": partial(advantage, "js"), "listing": listing, "definition": definition}
    expected = advantage("js", rewards)
    for function in functions.values():  # a check, and the warm-up
        torch.testing.assert_close(function(rewards), expected, rtol=1e-4, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(ROUNDS):
        for name, function in functions.items():
            if name == "js" or number < LOOP_ROUNDS:
                call, repeats = partial(function, rewards), REPEATS if name == "js" else 1
                taken = median(timeit(call, number=1) for _ in range(repeats))
                times[name].append(1e3 * taken)
    print(f"torch {torch.__version__}, one thread, {SIZE[0]} x {SIZE[1]} float32 rewards\n")
    print("| what | median, ms | quartiles | times as long as js |\n|---|---:|---:|---:|")
    for name, found in times.items():
        low, middle, high = quantiles(found, n=4)
        ratio = middle / median(times["js"])
        print(f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} | {ratio:,.0f} |")


if __name__ == "__main__":
    main()
