"""How training changes questions, by how often SmolLM2 solved them before.

.venv/bin/python research/studies/solved.py MODEL OUT     # three minutes of a core a run; resumes
"""

import argparse
import json
from pathlib import Path

import numpy as np

from baseline_research.markdown_table import print_table
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.engine import train_policy
from baseline_research.study.inline.prompts import held_out_rates, policy_in, warm_start
from baseline_research.study.runs import Run

QUESTIONS = "questions"
ESTIMATORS = ("rloo", "js_grad")
SEEDS = (100, 101, 102)
BANDS = ((0, 0.1), (0.1, 0.9), (0.9, 1))  # of the right response's probability before training


def rates_of(estimator: str, seed: int, start: Path, settings: InlineStudy) -> list[float]:
    """The probability of the right response to every held-out question, after training."""
    run = Run(
        task=QUESTIONS,
        mix="natural",
        prompts=16,
        responses=2,
        estimator=estimator,
        learning_rate=5e-6,
        seed=seed,
    )
    print(f"{estimator}, seed {seed}: {settings.steps} steps, two to three minutes", flush=True)
    policy = policy_in(start, settings)
    train_policy(policy, run, settings)
    return held_out_rates(QUESTIONS, settings, policy)


def print_bands(before: np.ndarray, after: dict[str, np.ndarray]) -> None:
    """The mean probabilities of each band, in percent; `after` has a row a seed."""
    columns = ("before", "questions", "mean before", *(f"`{name}`" for name in after))
    rows = []
    for low, high in BANDS:
        here = (before >= low) & (before <= high)
        means = [before[here].mean(), *(rates[:, here].mean() for rates in after.values())]
        rows.append((f"{low} to {high}", here.sum(), *(f"{100 * mean:.1f}" for mean in means)))
    print_table(columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of SmolLM2")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    settings = InlineStudy(
        out=arguments.out,
        tasks=[QUESTIONS],
        model=arguments.model,
        steps=30,
        held_out=350,
        samples=0,
        dtype="bf16",
    )
    start = warm_start(QUESTIONS, settings, lambda step: print(f"imitation, step {step}"))
    path = arguments.out / "solved.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    if "before" not in found:
        policy = policy_in(start, settings)
        found["before"] = held_out_rates(QUESTIONS, settings, policy)
    for seed in SEEDS:
        for estimator in ESTIMATORS:
            name = f"{estimator} {seed}"
            if name not in found:
                found[name] = rates_of(estimator, seed, start, settings)
                path.write_text(json.dumps(found))
    after = {
        estimator: np.array([found[f"{estimator} {seed}"] for seed in SEEDS])
        for estimator in ESTIMATORS
    }
    print_bands(np.array(found["before"]), after)


if __name__ == "__main__":
    main()
