"""Prints the tables of trained models in docs/results.md and docs/reproduce.md.

.venv/bin/python research/studies/results.py                 # of the records in this folder
.venv/bin/python research/studies/results.py runs/results    # of a study's folder
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from baseline_research.markdown_table import print_table
from baseline_research.study.analysis import Findings, analyse
from baseline_research.study.values import RunRecord, grouped, read_runs

HERE = Path(__file__).parent
REFERENCES = ("rloo", "bloo")  # the latter with one response per prompt
SHOWN_FIRST = ("js_grad", "js", "bloo")  # the first one present, with its interval
KEPT = (  # other scripts print the other records
    "baselines",
    "js_grad",
    "js_grad_again",
    "js_grad_grid",
    "js_grad_held_out",
    "js_grad_one",
    "js_grad_rlhf",
    "js_grad_stack",
    "rivals",
    "smollm2",
    "smollm2_gpu",
    "smollm2_js_grad",
    "smollm2_long",
    "smollm2_words",
)
IN_WORDS = {"natural": "as drawn", "alike": "alike", "mixed": "mix"}


def comparable(runs: Sequence[RunRecord]) -> dict[int, list[RunRecord]]:
    """The runs at the learning rates that every estimator was given, by number of responses."""
    kept = {}
    for responses, of_size in grouped(runs, lambda run: run["responses"]).items():
        by_estimator = grouped(of_size, lambda run: run["estimator"]).values()
        rates = set.intersection(*({run["learning_rate"] for run in own} for own in by_estimator))
        kept[responses] = [run for run in of_size if run["learning_rate"] in rates]
    return kept


def analysed(runs: Sequence[RunRecord]) -> Findings:
    """The findings of runs with one number of responses, against their reference."""
    return analyse(runs, _first(REFERENCES, {run["estimator"] for run in runs}))


def averages(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """pass@1 less the reference's in points, averaged over tasks and numbers of prompts.

    Each seed counts at the learning rate that is best on the other seeds.
    """
    tables = []
    for responses, of_size in comparable(runs).items():
        findings = analysed(of_size)
        table = pd.DataFrame(findings.averages_by_mix)
        table.insert(0, "responses", responses)
        tables.append(table)
    return pd.concat(tables)


def print_averages(rows: pd.DataFrame) -> None:
    """Prints averages in Markdown; bold if the 95 % interval excludes 0."""
    first = _first(SHOWN_FIRST, set(rows.estimator))
    estimators = [first, *sorted(set(rows.estimator) - {first})]
    shown = []
    for (responses, mix), of_mix in rows.groupby(["responses", "mix"], sort=False):
        by_estimator = {row.estimator: row for row in of_mix.itertuples()}
        cells = [IN_WORDS[mix], str(responses)]
        for estimator in estimators:
            row = by_estimator.get(estimator)
            cells.append(_points(row) if row else "")
        row = by_estimator.get(first)
        cells += [f"{row.low:+.1f}", f"{row.high:+.1f}"] if row else ["", ""]
        shown.append(cells)
    print_table(("prompts", "responses", *estimators, f"{first} low", f"{first} high"), shown)


def _first(names: Sequence[str], present: set[str]) -> str:
    return next(name for name in names if name in present)


def _points(row: Any) -> str:
    text = f"{row.value:+.1f}"
    return f"**{text}**" if row.low > 0 or row.high < 0 else text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="*", help="folders of studies (default: kept runs)")
    paths = [folder / "runs-inline.jsonl" for folder in parser.parse_args().out]
    for path in paths or [HERE / f"{name}.jsonl.xz" for name in KEPT]:
        runs = read_runs(path)
        print(f"\n{path.name}: {len(runs)} runs\n")
        print_averages(averages(runs))


if __name__ == "__main__":
    main()
