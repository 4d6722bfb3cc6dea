import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark_file():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # as for a script
    import rlhf_true_score

    yield rlhf_true_score
    sys.path.pop(0)


def test_intervals_are_over_prompts_or_seeds(benchmark_file):
    """Two prompts with two responses each; standard deviation before: sqrt(20 / 3)."""
    before = np.array([[0.0, 2.0], [4.0, 6.0]])
    rose = {("js", 0): ([1, 3], 5.0), ("rloo", 0): ([1, 1], 5.0)}
    rose |= {("js", 1): ([4, 4], 7.0), ("rloo", 1): ([1, 1], 5.0)}
    measured = {
        run: benchmark_file.Measured(before + np.array(rise)[:, None], before + reward)
        for run, (rise, reward) in rose.items()
    }
    rows = benchmark_file.rises(benchmark_file.Measured(before, before), measured)
    found = {row["run"]: row for row in rows}
    first, js, rloo = (found[name] for name in ("js, seed 0", "js, 2 seeds", "rloo, 2 seeds"))
    # rises 1 and 3: the standard error is 1, and t with 1 degree of freedom 12.706
    assert (first["rise"], first["true_score"]) == ("2.00 (-10.71 to 14.71)", 5)
    assert js["rise"] == "3.00 (-9.71 to 15.71)"  # of 2 and 4
    sd = (20 / 3) ** 0.5
    assert js["rise_in_sds"] == f"{3 / sd:.2f} ({-9.706 / sd:.2f} to {15.706 / sd:.2f})"
    assert js["rise_of_reward"].startswith("6.00 ") and rloo["rise"] == "1.00 (1.00 to 1.00)"
    gap = benchmark_file.against(measured, "js", "rloo")
    assert gap == "js - rloo, true score: 2.00 (-10.71 to 14.71), over 2 seeds"  # of 1 and 3
    one = {run: each for run, each in measured.items() if run[1] == 1}
    gap = benchmark_file.against(one, "js", "rloo")
    assert gap == "js - rloo, true score: 3.00 (3.00 to 3.00), over prompts"
