import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark_file():
    import rlhf_true_score

    return rlhf_true_score


@pytest.fixture
def measured(benchmark_file):
    """Before and after, of two prompts with two responses each; sd before: sqrt(20 / 3)."""
    before = np.array([[0.0, 2.0], [4.0, 6.0]])

    def after(rise, reward):
        return benchmark_file.Measured(before + np.array(rise)[:, None], before + reward)

    def run(name, seed):
        return benchmark_file.Run(name, seed, 50, 3e-4, 0.0)

    return benchmark_file.Measured(before, before), {
        run("js", 0): after([1, 3], 5.0),
        run("rloo", 0): after([1, 1], 5.0),
        run("js", 1): after([4, 4], 7.0),
        run("rloo", 1): after([1, 1], 5.0),
    }


def test_a_run_has_an_interval_over_prompts_and_an_estimator_over_seeds(benchmark_file, measured):
    rows = {row["run"]: row for row in benchmark_file.rises(*measured)}
    names = ["js-50x0.0003-seed0", "js, 2 seeds", "rloo, 2 seeds"]
    first, js, rloo = (rows[name] for name in names)
    assert len(rows) == 6
    # rises 1 and 3: the standard error is 1, and t with 1 degree of freedom 12.706
    assert first["rise"] == "2.00 (-10.71 to 14.71)"
    assert first["true_score"] == 5
    assert js["rise"] == "3.00 (-9.71 to 15.71)"  # of 2 and 4
    sd = (20 / 3) ** 0.5
    assert js["rise_in_sds"] == f"{3 / sd:.2f} ({-9.706 / sd:.2f} to {15.706 / sd:.2f})"
    assert js["rise_of_reward"].startswith("6.00 ")
    assert rloo["rise"] == "1.00 (1.00 to 1.00)"


def test_estimators_are_compared_seed_by_seed(benchmark_file, measured):
    after = measured[1]
    gap = benchmark_file.against(after, "js", "rloo")
    assert gap == "js - rloo, true score: 2.00 (-10.71 to 14.71), over 2 seeds"  # of 1 and 3
    one = {run: each for run, each in after.items() if run.seed == 1}
    gap = benchmark_file.against(one, "js", "rloo")
    assert gap == "js - rloo, true score: 3.00 (3.00 to 3.00), over prompts"


def test_a_result_is_made_once_and_atomically(benchmark_file, tmp_path):
    path = tmp_path / "of-a-run" / "result.json"

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        benchmark_file.kept(path, stopped)
    assert not path.exists()
    assert benchmark_file.kept(path, lambda: {"seconds": 1}) == {"seconds": 1}
    assert benchmark_file.kept(path, stopped) == json.loads(path.read_text()) == {"seconds": 1}


def test_runs_of_other_settings_have_other_folders(benchmark_file):
    settings = [("js", 0, 50, 3e-4, 0.0), ("rloo", 0, 50, 3e-4, 0.0), ("js", 1, 50, 3e-4, 0.0)]
    settings += [("js", 0, 51, 3e-4, 0.0), ("js", 0, 50, 1e-3, 0.0), ("js", 0, 50, 3e-4, 0.01)]
    assert len({benchmark_file.Run(*each).name for each in settings}) == len(settings)
