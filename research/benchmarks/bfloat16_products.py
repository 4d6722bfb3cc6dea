"""Claim: without bfloat16 instructions, bfloat16 products are faster in float32.

    OMP_NUM_THREADS=1 python research/benchmarks/bfloat16_products.py              # half a minute

Times a linear layer's forward and backward pass, alternating between torch's own and the one of
`on_cpu`. On a processor with such instructions nothing is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from markdown_table import print_table

from baseline_research.on_cpu import stand_ins as cpu

SHAPES = [  # tokens, inputs, outputs
    (32, 128, 384),
    (1024, 128, 384),
    (32, 576, 1536),
    (1024, 576, 1536),
]
ROUNDS = 9


def seconds(
    linear: Callable[..., torch.Tensor], inputs: torch.Tensor, layer: torch.Tensor
) -> float:
    """The seconds of one product and its two gradients."""
    start = time.perf_counter()
    linear(inputs, layer).sum().backward()
    return time.perf_counter() - start


def main() -> None:
    as_it_is = torch.nn.functional.linear
    cpu.install()
    ours = torch.nn.functional.linear
    rows = []
    for tokens, inputs, outputs in SHAPES:
        batch = torch.randn(tokens, inputs).bfloat16().requires_grad_()
        layer = torch.randn(outputs, inputs).bfloat16().requires_grad_()
        ratios = []
        for _ in range(ROUNDS):
            before = seconds(as_it_is, batch, layer)
            ratios.append(before / seconds(ours, batch, layer))
        numbers = (median(ratios), min(ratios), max(ratios))
        rows.append([f"{tokens} x {inputs} x {outputs}", *(f"{ratio:.1f}" for ratio in numbers)])
    print_table(["tokens x inputs x outputs", "torch's time / ours", "low", "high"], rows)


if __name__ == "__main__":
    main()
