"""Prints which learning rates each estimator bears, with and without a warm-up (docs/results.md).

python research/studies/rates.py                       # of the kept records
python research/studies/rates.py runs/rates ...        # of studies' folders
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = ("rates", "rates_warm_up")
read = runpy.run_path(str(HERE / "results.py"))["read"]
print_settings = runpy.run_path(str(HERE / "budgets.py"))["print_settings"]


def main() -> None:
    kept = [HERE / f"{name}.jsonl.xz" for name in KEPT]
    for path in [Path(folder) / "runs-inline.jsonl" for folder in sys.argv[1:]] or kept:
        print(f"\n{path.parent.name if sys.argv[1:] else path.name.partition('.')[0]}")
        print_settings(read(path))


if __name__ == "__main__":
    main()
