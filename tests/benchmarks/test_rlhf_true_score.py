import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark_file():
    import rlhf_true_score

    return rlhf_true_score


@pytest.fixture
def found(benchmark_file):
    """Two prompts, two responses each; sd before: sqrt(20 / 3)."""
    before = np.array([[0.0, 2.0], [4.0, 6.0]])

    def measured(rise, reward):
        return benchmark_file.Measured(before + np.array(rise)[:, None], before + reward)

    def run(name, seed):
        return benchmark_file.Run(name, seed, 50, 3e-4, 0.0)

    after = {
        run("js", 0): measured([1, 3], 5.0),
        run("rloo", 0): measured([1, 1], 5.0),
        run("js", 1): measured([4, 4], 7.0),
        run("rloo", 1): measured([1, 1], 5.0),
    }
    quality = {
        "accuracy": {"value": 0.8, "low": 0.7, "high": 0.9},
        "accuracy_of_truth": 0.9,
        "calibration_error": 0.0123,
    }
    seconds = dict.fromkeys(after, 90.0)
    return benchmark_file.Found(quality, benchmark_file.Measured(before, before), after, seconds)


def test_a_run_has_an_interval_over_prompts_and_an_estimator_over_seeds(benchmark_file, found):
    figures = benchmark_file.rises(found)
    assert figures["sd"] == pytest.approx((20 / 3) ** 0.5)
    first = next(iter(figures["by_run"].values()))
    # Rises 1 and 3: the standard error is 1, and t with 1 degree of freedom 12.706.
    assert first.rise == pytest.approx((2, 2 - 12.706, 2 + 12.706), abs=1e-3)
    assert first.mean == 5
    js, rloo = (figures["by_estimator"][name] for name in ("js", "rloo"))
    assert js.rise == pytest.approx((3, 3 - 12.706, 3 + 12.706), abs=1e-3)  # of 2 and 4
    assert js.rise_in_sds == pytest.approx([x / (20 / 3) ** 0.5 for x in js.rise])
    assert js.reward_rise.value == 6
    assert rloo.rise == (1, 1, 1)


def test_estimators_are_compared_seed_by_seed(benchmark_file, found):
    gap, over = benchmark_file.js_minus_rloo(found)
    assert gap == pytest.approx((2, 2 - 12.706, 2 + 12.706), abs=1e-3)  # of 1 and 3
    assert over == "2 seeds"
    one = found._replace(after={run: m for run, m in found.after.items() if run.seed == 1})
    gap, over = benchmark_file.js_minus_rloo(one)
    assert (gap, over) == ((3, 3, 3), "prompts")
    alone = {run: m for run, m in found.after.items() if run.estimator == "js"}
    assert benchmark_file.js_minus_rloo(found._replace(after=alone)) is None


def test_the_report_shows_every_run_and_the_means(benchmark_file, found):
    lines = benchmark_file.report(found).splitlines()
    assert "80.0 % (70.0 to 90.0), the true scores' 90.0 %, so 88.9 % of it" in lines[0]
    assert "mean true score 3.00, sd over responses 2.58, best possible 4.50" in lines[1]
    names = [line.split(" | ")[0] for line in lines if line.endswith("1.5 |")]
    assert names == [
        *("| js, seed 0", "| rloo, seed 0", "| js, seed 1", "| rloo, seed 1"),
        *("| js, 2 seeds", "| rloo, 2 seeds"),
    ]


def test_a_result_is_made_once_and_only_as_a_whole(benchmark_file, tmp_path):
    path = tmp_path / "of-a-run" / "result.json"

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        benchmark_file.kept(path, stopped)
    assert not path.exists()
    assert benchmark_file.kept(path, lambda: {"seconds": 1}) == {"seconds": 1}
    assert benchmark_file.kept(path, stopped) == {"seconds": 1}
    assert json.loads(path.read_text()) == {"seconds": 1}


def test_runs_of_other_settings_have_other_folders(benchmark_file):
    settings = [("js", 0, 50, 3e-4, 0.0), ("rloo", 0, 50, 3e-4, 0.0), ("js", 1, 50, 3e-4, 0.0)]
    settings += [("js", 0, 51, 3e-4, 0.0), ("js", 0, 50, 1e-3, 0.0), ("js", 0, 50, 3e-4, 0.01)]
    names = {benchmark_file.Run(*each).name for each in settings}
    assert len(names) == len(settings)
    assert "js-50x0.0003-seed0" in names
