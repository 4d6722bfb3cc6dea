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


def test_intervals_are_over_seeds(benchmark_file):
    """Two prompts with two responses each; standard deviation before: sqrt(20 / 3)."""
    before = np.array([[0.0, 2.0], [4.0, 6.0]])

    def after(rise, reward):
        scores = before + np.array(rise)[:, None]
        return {"true_scores": scores.tolist(), "rewards": (before + reward).tolist()}

    start = {"true_scores": before.tolist(), "rewards": before.tolist()}
    runs = {"js": [after([1, 3], 5), after([4, 4], 7)], "rloo": [after([1, 1], 5)] * 2}
    js, rloo = benchmark_file.rises(start, runs)
    # rises 2 and 4: the standard error is 1, and t with 1 degree of freedom 12.706
    assert js["rise"] == "3.00 (-9.71 to 15.71)" and js["true_score"] == 6
    sd = (20 / 3) ** 0.5
    assert js["rise_in_sds"] == f"{3 / sd:.2f} ({-9.706 / sd:.2f} to {15.706 / sd:.2f})"
    assert js["rise_of_reward"].startswith("6.00 ") and rloo["rise"] == "1.00 (1.00 to 1.00)"
