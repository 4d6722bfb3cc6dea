import json

import pytest
from matplotlib.image import imread

from openrlhf_js.report import quickstart, runs
from openrlhf_js.report.plot import plot
from openrlhf_js.stats import Estimate, clustered_mean


def write_scores(path, *rows):
    path.write_text(json.dumps([{"prompt": f"p{i}", "scores": row} for i, row in enumerate(rows)]))


@pytest.fixture(scope="module")
def run(tmp_path_factory, events):
    tmp_path = tmp_path_factory.mktemp("run")
    write_scores(tmp_path / "evaluation_before.json", [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0])
    for name in ("js", "rloo"):
        (tmp_path / name).mkdir()
        logged = {
            runs.REWARD: [0.3 + 0.02 * step for step in range(1, 21)],
            runs.GRADIENT_NORM: [0.5] * 20,
            runs.SHRINKAGE: [0.4] * 20,
            runs.BASELINE_MSE: [0.03] * 20,
            runs.BASELINE_MSE_RLOO: [0.04, 0.08] * 10,
            runs.HELD_OUT.format("held_out"): {10: 0.25, 20: 0.5},
        }
        events(tmp_path / "tensorboard" / name, logged)
        write_scores(
            tmp_path / name / "evaluation_after.json", [1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 0, 1]
        )
    return tmp_path


def summarised(run, *names):
    return quickstart.summarise(run, "maze", {name: run / name for name in names})


def test_the_gain_is_paired_by_prompt():
    before, after = {"a": 0.0, "b": 1.0}, {"b": 1.0, "a": 0.5}
    assert quickstart.gain(before, after) == pytest.approx(clustered_mean([0.5, 0.0]))


def test_summary_holds_what_the_files_say(run):
    found = summarised(run, "js")
    assert found["task"] == "maze"
    assert found["before"]["value"] == pytest.approx(0.25)
    result = found["results"]["js"]
    assert result["after"]["value"] == pytest.approx(0.75)
    assert result["gain"]["value"] == pytest.approx(0.5)
    assert result["steps"] == 20
    assert result["training_reward_last"] == pytest.approx(0.7)
    assert result["baseline_mse_over_rloo"] == pytest.approx(0.5)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("estimate", "word"),
    [((0.3, 0.2, 0.4), "rose"), ((-0.3, -0.4, -0.2), "fell"), ((0.1, -0.1, 0.3), "went")],
)
def test_words_claim_no_more_than_the_interval(run, estimate, word):
    found = summarised(run, "js")
    found["results"]["js"]["gain"] = Estimate(*estimate)._asdict()
    sentence = quickstart.in_words(found)[0]
    assert f"On held-out prompts of maze pass@1 {word} from 25.0 ± " in sentence
    assert f"{100 * estimate[0]:+.1f} ± " in sentence
    assert "50 % less squared error" in quickstart.in_words(found)[1]


def test_a_comparison_is_a_table_and_a_caution(run):
    found = summarised(run, "rloo", "js")
    rows = quickstart.table(found)
    assert [row["estimator"] for row in rows] == ["rloo", "js"]
    assert rows[0]["λ"] is None  # rloo does not shrink
    assert rows[1]["λ"] == pytest.approx(0.4)
    assert any("one seed" in sentence for sentence in quickstart.in_words(found))


@pytest.mark.parametrize("names", [("js",), ("rloo", "js")])
def test_curves_are_drawn(run, names, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        quickstart, "plot", lambda rows, *args, **kw: drawn.append(rows) or plot(rows, *args, **kw)
    )
    (run / "summary.json").write_text(json.dumps(summarised(run, *names)))
    quickstart.draw(run, names, run / "curves.png", "maze, tiny model")
    assert imread(run / "curves.png").std() > 0.05
    held_out = [row for row in drawn[0] if row["quantity"] == "Held-out pass@1"]
    assert {row["run"] for row in held_out} == set(names)
    assert {row["step"]: row["value"] for row in held_out} == {0: 0.25, 10: 0.25, 20: 0.75}
