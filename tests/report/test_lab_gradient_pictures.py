"""Pictures of `lab gradient`, `sweep` and `heterogeneity`: what is drawn is what was measured."""

import io

import numpy as np
import pytest
from matplotlib import rc_context

from openrlhf_js.report import lab_gradient, lab_heterogeneity, lab_sweep, style


def drawn(module, summary, arrays):
    with rc_context(style.HOUSE):
        figure = module.draw(summary, arrays)
        figure.savefig(io.BytesIO(), format="png")  # nothing is missing, and all has a place
    return figure


def texts(axes):
    return [text.get_text() for text in axes.texts]


def bars(axes):
    """Values and ends of every series with error bars, by its values."""
    found = {}
    for bar in axes.containers:
        (ends,) = bar.lines[2]
        found[tuple(bar.lines[0].get_ydata())] = [part[:, 1] for part in ends.get_segments()]
    return found


def gradient(reductions, low=2.0, high=1.0):
    rows = [
        {
            "m": m,
            "estimator": name,
            "gradient": "biased" if name == "dr_grpo" else "unbiased",
            "distance": (100 - saved) / 100 / m,
            "distance_low": (100 - saved) / 100 / m - 0.01,
            "distance_high": (100 - saved) / 100 / m + 0.02,
            "reduction_percent": saved,
            "reduction_low": None if low is None else saved - low,
            "reduction_high": None if low is None else saved + high,
        }
        for m in (2, 4)
        for name, saved in reductions.items()
    ]
    return {"rows": rows, "batches": {"batches": 20, "prompts": 64}}


def test_distances_and_reductions_with_their_intervals():
    summary = gradient({"rloo": 0.0, "js": 10.0, "dr_grpo": 20.0})
    distance, saved = drawn(lab_gradient, summary, {}).axes
    assert distance.get_yscale() == "log"
    found = bars(distance)
    assert set(found) == {(0.5, 0.25), (0.45, 0.225), (0.4, 0.2)}
    np.testing.assert_allclose(found[0.5, 0.25], [[0.49, 0.52], [0.24, 0.27]])
    found = bars(saved)
    assert set(found) == {(10, 10), (20, 20)}
    np.testing.assert_allclose(found[10, 10], [[8, 11], [8, 11]])
    assert {"js", "dr_grpo (biased)"} < set(texts(saved)) and "rloo" in texts(distance)
    assert [label.get_text() for label in saved.get_xticklabels()] == ["2", "4"]


def test_what_is_far_worse_is_named_and_leaves_room_for_the_others():
    summary = gradient({"rloo": 0.0, "js": 10.0, "remax": -300.0})
    distance, saved = drawn(lab_gradient, summary, {}).axes
    assert set(bars(saved)) == {(10, 10)} and len(bars(distance)) == 3
    assert any(text.endswith("remax: far higher") for text in texts(saved))


def test_an_interval_without_ends_has_no_bar():
    found = bars(drawn(lab_gradient, gradient({"rloo": 0.0, "js": 10.0}, None), {}).axes[1])
    np.testing.assert_allclose(found[10, 10], [[10, 10], [10, 10]])


def sweep_result(none=False):
    grid = np.linspace(0, 1, 5)
    rows = [
        {
            "m": m,
            "point": point,
            "shrinkage": shrinkage,
            "shrinkage_low": shrinkage - 0.1,
            "shrinkage_high": shrinkage + 0.1,
            "reduction_percent": saved,
            "reduction_low": None if none else saved - 2,
            "reduction_high": None if none else saved + 2,
        }
        for m in (2, 8)
        for point, shrinkage, saved in (
            ("minimum", 0.5, 12.0),
            ("least mse", 0.6, 11.0),
            ("js", 0.4, 10.0),
            ("js_plus", 0.55, 12.5),
        )
    ]
    curve = 12 - 48 * (grid - 0.5) ** 2
    both = np.stack([curve, curve])
    ends = (both * np.nan,) * 2 if none else (both - 1, both + 1)
    arrays = {
        "m": np.array([2, 8]),
        "shrinkage": grid,
        "reduction_percent": both,
        "reduction_low": ends[0],
        "reduction_high": ends[1],
    }
    return {"rows": rows}, arrays


@pytest.mark.parametrize("none", [False, True])
def test_the_curve_its_minimum_and_where_the_estimators_stand(none):
    summary, arrays = sweep_result(none)
    figure = drawn(lab_sweep, summary, arrays)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["m = 2", "m = 8"]
    axes = figure.axes[0]
    assert any(
        np.array_equal(line.get_ydata(), arrays["reduction_percent"][0]) for line in axes.lines
    )
    assert any(np.array_equal(line.get_xdata(), [0.5, 0.5]) for line in axes.lines)
    places = {bar.get_label(): bar.lines[0].get_xydata()[0].tolist() for bar in axes.containers}
    assert places == {
        "least error of the baseline": [0.6, 11],
        "js": [0.4, 10],
        "js_plus": [0.55, 12.5],
    }
    bottom, top = axes.get_ylim()
    assert bottom < 0 and top > 14 - 2 * none
    assert figure.axes[1].get_ylim() == (bottom, top)


def test_a_bloo_that_is_far_worse_does_not_flatten_the_curves():
    summary, arrays = sweep_result()
    arrays["reduction_percent"][1, -1] = -500
    figure = drawn(lab_sweep, summary, arrays)
    assert figure.axes[0].get_ylim()[0] > -100


def test_heterogeneity_shows_every_set():
    rows = [
        {
            "prompts": name,
            "value": 0.4,
            "v": 0.07,
            "s": 0.01,
            "estimator": estimator,
            "shrinkage": shrinkage,
            "shrinkage_low": shrinkage - 0.02,
            "shrinkage_high": shrinkage + 0.02,
            "best_shrinkage": 0.6,
            "best_low": 0.4,
            "best_high": 0.9,
            "reduction_percent": 10.0 * shrinkage,
            "reduction_low": 10.0 * shrinkage - 1,
            "reduction_high": 10.0 * shrinkage + 1,
        }
        for name, shrinkage in (("easy", 0.5), ("h\x1brd", 0.4), ("mix", 0.3))
        for estimator in ("js", "js_plus")
    ]
    arrays = {
        "sets": np.array(["easy", "h\x1brd", "mix"]),
        "shrinkage": np.linspace(0, 1, 4),
        "reduction_percent": np.arange(12.0).reshape(3, 4),
    }
    coefficients, saved = drawn(lab_heterogeneity, {"rows": rows, "m": 4}, arrays).axes
    found = bars(coefficients)
    assert set(found) == {(0.5, 0.4, 0.3), (0.6, 0.6, 0.6)}
    np.testing.assert_allclose(found[0.6, 0.6, 0.6], [[0.4, 0.9]] * 3)
    ticks = [label.get_text() for label in coefficients.get_xticklabels()]
    assert ticks[0] == "easy\nvalue 0.40\nv 0.070\ns 0.010" and "\x1b" not in "".join(ticks)
    assert any(np.array_equal(line.get_ydata(), [8, 9, 10, 11]) for line in saved.lines)
    assert set(bars(saved)) == {(5.0,), (4.0,), (3.0,)}
    assert {"easy", "mix"} < set(texts(saved))
