"""`openrlhf-js lab PROGRAM ...`: how far baselines and gradients are from what they estimate."""

from __future__ import annotations

import sys

from openrlhf_js.cli.main import choose

PROGRAMS = {
    "value": ("lab_value", "each prompt's value, by many responses, with its standard error"),
    "mse": ("lab_mse", "mean squared error of every baseline to that value"),
    "gradient": ("lab_gradient", "distance of small batches' gradients to a precise one"),
    "sweep": ("lab_sweep", "the same over a grid of shrinkage coefficients"),
    "heterogeneity": ("lab_heterogeneity", "the same for mixes of tasks or difficulties"),
    "simulate": (
        "lab_simulate",
        "the errors of every baseline for made-up values, without a model",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose("openrlhf-js lab", PROGRAMS, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
