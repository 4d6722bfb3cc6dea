"""What docs/training.md says of rivals.yaml: keeps folders' records, prints tables, draws pictures.

.venv/bin/python scripts/studies/rivals.py [runs/rivals ...]   (without a folder: the kept records)
"""

import sys
from pathlib import Path

from grid import (
    averages_by_size,
    cell_table,
    forest_of,
    keep,
    read,
    show,
    show_errors,
    show_significant,
    wide,
)

from openrlhf_js.report import figures, style
from openrlhf_js.study.analysis import analyse

HERE = Path(__file__).parent
RECORDS = HERE / "rivals.jsonl.xz"
DOCS = HERE.parents[1] / "docs"
REFERENCE = "rloo"
COMPARED = ["js_grad", "js", "bloo", "grpo", "ebpo", "opo"]  # with the reference
PICTURED = "16 x"  # the sizes in the picture of averages


def main() -> None:
    if len(sys.argv) > 1:
        keep([Path(folder) for folder in sys.argv[1:]], RECORDS)
    runs = read(RECORDS)
    findings = analyse(runs, REFERENCE)
    cells = cell_table(findings.differences)
    cells.to_csv(DOCS / "data/rivals.csv", index=False, float_format="%.4g")
    print(f"{len(runs)} runs, {len(cells)} differences")
    over_rloo = averages_by_size(runs, REFERENCE)
    written = over_rloo.drop(columns=["text", "m"])
    written.insert(0, "size", written.pop("size"))
    written.to_csv(DOCS / "data/rivals_averages.csv", index=False, float_format="%.3g")
    show("pass@1 less rloo's, averaged over cells", wide(over_rloo, ["size", "mix"], COMPARED))
    note = "95 % intervals over cells and seeds"
    pictured = over_rloo[over_rloo["size"].str.startswith(PICTURED)]
    forests = [forest_of(pictured, m, COMPARED, note) for m in pictured.m.unique()]
    style.save_both(figures.wide_picture(forests), DOCS / "images/rivals.png")
    show_significant(cells)
    show_errors(findings.means, COMPARED)


if __name__ == "__main__":
    main()
