"""`js_grad` without one of its parts: own baselines, which show what each part is worth.

parts=$(printf "research/studies/parts.py:%s " NoWeights NoMemory NoPrompts NoGroup)
openrlhf-js study --estimators js_grad rloo $parts ... --out runs/parts
python research/studies/parts.py runs/parts      # the table; without a folder: of the kept records

docs/results.md has the whole command.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from baseline_research.markdown_table import print_table
from baseline_research.study.analysis import Findings, analyse
from baseline_research.study.tables import by_estimator
from baseline_research.study.values import read_runs
from openrlhf_js.estimators.baselines.grad import Memory, grad_baseline
from openrlhf_js.estimators.group_stats import sum_of_others

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

HERE = Path(__file__).parent
WHOLE = "js_grad"
FORMS = ("rloo", "NoWeights", "NoMemory", "NoPrompts", "NoGroup")


class NoPrompts:
    """`js_grad` that does not recognise prompts: earlier steps are known by their sums alone."""

    def __init__(self) -> None:
        self.memory = Memory()

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions."""
        return grad_baseline(self._recalled(batch))

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        self.memory.learn(self._recalled(batch))

    def _recalled(self, batch: Batch) -> Batch:
        """What the estimator sees of a batch, with what it remembers."""
        seen = self._seen(batch)
        return replace(seen, past=self.memory.recall(seen))

    def _seen(self, batch: Batch) -> Batch:
        return replace(batch, keys=None)


class NoWeights(NoPrompts):
    """`js_grad` with equal weights."""

    def _seen(self, batch: Batch) -> Batch:
        return replace(batch, squared_score_norms=None)


class NoMemory:
    """`js_grad` that forgets: each step is its first."""

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions."""
        return grad_baseline(replace(batch, past=None))

    def learn(self, batch: Batch) -> None:
        """Nothing."""


class NoGroup(NoPrompts):
    """The weighted mean reward of the batch's other prompts and of earlier steps, for a prompt."""

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) means."""
        weight = sum_of_others(batch.weights.sum(1), 0)
        total = sum_of_others((batch.weights * batch.rewards).sum(1), 0)
        past = self._recalled(batch).past
        if past is not None:
            past_weight = past.moments.products[0, 0]
            weight = weight + past_weight
            total = total + past_weight * (past.origin + past.mean_reward)
        return (total / weight)[:, None].expand_as(batch.rewards)


def finished(findings: Findings) -> list[str]:
    """The cells with runs of every form."""
    forms = {WHOLE, *FORMS}
    return [cell for cell in findings.cells if forms <= set(by_estimator(findings.means, cell))]


def main() -> None:
    """Prints pass@1 of `js_grad`, and the others' points over it, with half of their interval."""
    kept = HERE / "parts.jsonl.xz"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder of a study (default: kept runs)")
    folder = parser.parse_args().out
    runs = read_runs(folder / "runs-inline.jsonl" if folder else kept)
    for run in runs:
        run["estimator"] = (
            run["estimator"].partition(".py:")[2].partition("@")[0] or run["estimator"]
        )
    findings = analyse(runs, WHOLE)
    rows = []
    for cell in finished(findings):
        whole = by_estimator(findings.means, cell)[WHOLE]["pass1"].value
        over = by_estimator(findings.differences, cell)
        shown = [f"{100 * whole:.1f}"]
        for form in FORMS:
            row = over[form]["pass1"]
            half = f" ± {50 * (row.high - row.low):.1f}" if isfinite(row.low) else ""
            shown.append(f"{100 * row.value:+.1f}{half}")
        rows.append((cell, *shown))
    print_table(("task", WHOLE, *FORMS), rows)


if __name__ == "__main__":
    main()
