"""The pictures of `lab value` and `lab mse`, from summaries as the commands write them."""

import json

import numpy as np
import pytest

from openrlhf_js.lab.mse import measure
from openrlhf_js.lab.mse_summary import arrays, summarise
from openrlhf_js.lab.results import plain
from openrlhf_js.lab.store import Samples
from openrlhf_js.lab.value import summarise as summarise_values
from openrlhf_js.report import lab_mse, lab_value


def pool(prompts=6, responses=20):
    generator = np.random.default_rng(0)
    values = generator.random((prompts, 1))
    return (generator.random((prompts, responses)) < values).astype(float)


def value_figure(rewards, groups):
    n, m = rewards.shape
    tokens = [[np.zeros(2, dtype=np.int32)] * m] * n
    samples = Samples(
        ["p"] * n, ["l"] * n, groups, [[1]] * n, tokens, rewards, rewards > 0, None, {}
    )
    summary, raw = summarise_values(samples)
    return lab_value.draw(json.loads(json.dumps(plain(summary))), raw)


def mse_figure(rewards, n, responses=(2, 4)):
    found = {m: measure(rewards, n, m, 30, 0) for m in responses}
    summary = json.loads(json.dumps(plain(summarise(found, rewards, n, 30))))
    return lab_mse.draw(summary, arrays(found)), summary


def test_values_ascend_and_stay_within_the_rewards():
    ascending, distribution = value_figure(pool(), ["a/$1"] * 6).axes
    (bars,) = ascending.containers
    points = bars.lines[0].get_ydata()
    assert list(points) == sorted(pool().mean(1))
    ends = np.concatenate([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    assert ends.min() >= 0
    assert ends.max() <= 1
    assert sum(patch.get_height() for patch in distribution.containers[0]) == 6


def test_groups_are_told_apart_and_too_many_are_not():
    legend = value_figure(pool(), ["a", "b"] * 3).axes[0].get_legend()
    assert [each.get_text() for each in legend.get_texts()] == ["a", "b"]
    many = value_figure(pool(9), [str(i) for i in range(9)])
    assert many.axes[0].get_legend() is None


def test_errors_and_reductions():
    figure, summary = mse_figure(pool(20, 40), 10)  # enough for every interval to have ends
    errors, reductions = figure.axes
    rows = {(row["responses"], row["estimator"]): row for row in summary["rows"]}
    drawn = [list(line.get_ydata()) for line in errors.lines]
    for name in {row["estimator"] for row in summary["rows"]} - {"js_fixed"}:
        assert [rows[m, name]["mse"] for m in (2, 4)] in drawn
    assert [
        rows[m, "js_fixed"]["mse"] for m in (2, 4)
    ] not in drawn  # no baseline that one can take
    labels = [text.get_text() for text in errors.texts]
    assert "grpo, dr_grpo (biased)" in labels
    points = [list(bars.lines[0].get_ydata()) for bars in reductions.containers]
    wanted = [
        [rows[m, name]["reduction_percent"] for m in (2, 4)]
        for name in ("js", "js_plus", "js_fixed")
    ]
    assert points == wanted
    assert errors.get_yscale() == "log"


@pytest.mark.parametrize(
    ("rewards", "n"), [(np.ones((6, 20)), 5), (pool(1), 1)], ids=["equal rewards", "one prompt"]
)
def test_what_cannot_be_told_is_left_out(rewards, n, tmp_path):
    figure, _ = mse_figure(rewards, n)
    figure.savefig(tmp_path / "mse.png")
    value_figure(rewards, ["a"] * len(rewards)).savefig(tmp_path / "value.png")
