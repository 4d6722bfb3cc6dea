"""What docs/training.md says of rivals.yaml: keeps a folder's records, prints tables, draws cells.

.venv/bin/python scripts/studies/rivals.py [runs/rivals]     (without a folder: of the kept records)
"""

import json
import lzma
import sys
from pathlib import Path

import pandas as pd
from heat_map import heat_map

from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import style
from openrlhf_js.study.analysis import analyse

HERE = Path(__file__).parent
RECORDS = HERE / "rivals.jsonl.xz"
DOCS = HERE.parents[1] / "docs"
REFERENCE = "rloo"
IN_POINTS = ["less_rloo", "low", "high", "detects"]


def keep(folder: Path) -> None:
    """Packs the records of a study's folder."""
    with atomic_write(RECORDS) as file:
        file.write(lzma.compress((folder / "runs-inline.jsonl").read_bytes()))


def main() -> None:
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]))
    with lzma.open(RECORDS, "rt") as file:
        runs = [json.loads(line) for line in file][1:]
    findings = analyse(runs, REFERENCE)
    differences = pd.DataFrame(findings.differences).query("quantity == 'pass1'")
    cells = differences.rename(
        columns={"value": "less_rloo", "detectable": "detects", "p_holm": "p_holm_less_rloo"}
    )
    cells[IN_POINTS] *= 100
    columns = ["task", "mix", "prompts", "responses", "estimator", "seeds"]
    cells = cells[[*columns, *IN_POINTS, "p", "p_holm_less_rloo"]]
    cells.to_csv(DOCS / "data/rivals.csv", index=False, float_format="%.4g")
    style.save_png(heat_map(cells), DOCS / "images/rivals.png")
    print(f"{len(runs)} runs, {len(cells)} differences")
    print("\n| estimator | cells | points over rloo | low | high |\n|---|---:|---:|---:|---:|")
    for average in findings.averages:
        ends = " | ".join(f"{end:.1f}" for end in (average.low, average.high))
        print(f"| `{average.estimator}` | {average.cells} | {average.value:+.1f} | {ends} |")
    print("\n| task | mix | estimator | points over rloo | low | high | detects | seeds |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for row in cells.itertuples():
        numbers = f"{row.less_rloo:+.1f} | {row.low:.1f} | {row.high:.1f} | {row.detects:.1f}"
        print(f"| {row.task} | {row.mix} | `{row.estimator}` | {numbers} | {row.seeds} |")


if __name__ == "__main__":
    main()
