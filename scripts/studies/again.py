"""What docs/memory.md says of today's js_memory, where prompts come again: prints its tables.

.venv/bin/python scripts/studies/again.py [runs/again ...]   (without a folder: the kept records)
"""

import sys
from pathlib import Path

import pandas as pd
from grid import averages_by_size, keep, read, show, size_of, wide, with_size

from openrlhf_js.study.analysis import StudyRow, analyse
from openrlhf_js.study.regret import regrets
from openrlhf_js.study.values import RunRecord, grouped

RECORDS = Path(__file__).with_name("again.jsonl.xz")
OURS = "js_memory"
MIXES = ["natural", "mixed", "all"]
NAMES = [OURS, "js_plus", "spo", "rloo"]


def show_finals(means: list[StudyRow]) -> None:
    """Prints pass@1 after training in percent, cell by cell."""
    finals = with_size(pd.DataFrame(means).query("quantity == 'pass1'"))
    finals = finals.assign(text=(100 * finals.value).map("{:.1f}".format))
    show("pass@1, %", wide(finals, ["size", "task", "mix"], NAMES))


def show_less(runs: list[RunRecord], name: str, reference: str) -> None:
    """Prints one estimator less another, averaged over tasks, by mix."""
    rows = averages_by_size(runs, reference).query("estimator == @name and mix in @MIXES")
    shown = rows[["size", "mix", "points", "low", "high"]].round(1)
    show(f"{name} less {reference}", shown)


def main() -> None:
    if len(sys.argv) > 1:
        keep([Path(folder) for folder in sys.argv[1:]], RECORDS)
    runs = read(RECORDS)
    print(f"{len(runs)} runs")
    for of_size in grouped(runs, size_of).values():
        there = {run["estimator"] for run in of_size}
        for reference in NAMES[1:]:
            if reference in there:
                show_less(of_size, OURS, reference)
        if "rloo" in there:
            show_less(of_size, "js_plus", "rloo")
        findings = analyse(of_size, "js_plus")
        show_finals(findings.means)
        print("\nRegret: mean, worst\n")
        for row in regrets(of_size):
            print(f"{row.estimator:9} {row.mean:5.1f} {row.worst:5.1f} {row.worst_cell.title}")


if __name__ == "__main__":
    main()
