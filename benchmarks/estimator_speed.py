"""Time `advantage("js", ...)` on one CPU thread, against the paper's definition taken word by word.

Two loops are timed beside it. `listing` leaves one prompt out after the other by concatenating the
other prompts' means, as the paper's listing does. `definition` does for every response what its
equations say: concatenate the other prompts' rewards, then take means and variances of them. Rounds
alternate, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from openrlhf_js.estimators import advantage

SIZES = ((1024, 8), (16384, 8), (65536, 16))
ROUNDS = 15
LOOPED = (1024, 8)


def listing(rewards: Tensor) -> Tensor:
    """Return the advantage of `js` by a loop over prompts, each leaving out its own mean."""
    n, m = rewards.shape
    mean, variance = rewards.mean(1), rewards.var(1) / m
    result = torch.empty_like(rewards)
    for i in range(n):
        others = torch.cat([mean[:i], mean[i + 1 :]])
        v = torch.cat([variance[:i], variance[i + 1 :]]).mean()
        s = (others - others.mean()).square().mean()
        weight = (n - 1) / n * v / (v + s)
        own = (rewards[i].sum() - rewards[i]) / (m - 1)
        result[i] = rewards[i] - (1 - weight) * own - weight * others.mean()
    return result


def definition(rewards: Tensor) -> Tensor:
    """Return the same by a loop over responses, each leaving out its prompt's rewards."""
    n, m = rewards.shape
    result = torch.empty_like(rewards)
    for i in range(n):
        for j in range(m):
            others = torch.cat([rewards[:i], rewards[i + 1 :]])
            means = others.mean(1)
            v = (others.var(1) / m).mean()
            s = (means - means.mean()).square().mean()
            weight = (n - 1) / n * v / (v + s)
            own = torch.cat([rewards[i, :j], rewards[i, j + 1 :]]).mean()
            result[i, j] = rewards[i, j] - (1 - weight) * own - weight * means.mean()
    return result


def median_ms(function: Callable[[Tensor], Tensor], rewards: Tensor, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(rewards)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    batches = {size: torch.rand(size, generator=generator) for size in SIZES}
    # The definition needs its full time once to be checked; the check is also the warm-up.
    fast = advantage("js", batches[LOOPED])
    for loop in (listing, definition):
        torch.testing.assert_close(loop(batches[LOOPED]), fast, rtol=1e-4, atol=1e-5)

    times: dict[tuple[str, tuple[int, int]], list[float]] = {}
    for number in range(ROUNDS):
        print(f"round {number + 1}/{ROUNDS}", file=sys.stderr, flush=True)
        for size, rewards in batches.items():
            for name in ("js", "js_plus", "rloo"):
                taken = median_ms(partial(advantage, name), rewards, 20)
                times.setdefault((name, size), []).append(taken)
        if number < 3:
            for loop in (listing, definition):
                taken = median_ms(loop, batches[LOOPED], 1)
                times.setdefault((loop.__name__, LOOPED), []).append(taken)

    print(f"torch {torch.__version__}, float32, one thread; milliseconds over rounds\n")
    print("| what | n x m | median | quartiles |")
    print("|---|---:|---:|---:|")
    for (what, (n, m)), found in sorted(times.items()):
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"| {what} | {n} x {m} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    js = statistics.median(times["js", LOOPED])
    for name in ("listing", "definition"):
        print(
            f"At 1024 x 8 the {name} takes {statistics.median(times[name, LOOPED]) / js:.0f} ",
            end="",
        )
        print("times as long as js.")


if __name__ == "__main__":
    main()
