"""The house's look: known names, no two alike, names that do not cover each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.colors import to_rgb

from openrlhf_js.report import style


def test_a_known_estimator_looks_the_same_everywhere():
    assert style.series_style("js", 0) == style.series_style("js", 7)
    assert style.series_styles(["a", "js"])["js"] == style.series_style("js", 0)


def test_no_two_series_of_a_picture_look_alike():
    looks = style.series_styles(["a", "js", "b", "rloo", "c"]).values()
    for one, other in itertools.combinations(looks, 2):
        assert one["color"] != other["color"]
        assert (one["linestyle"], one["marker"]) != (other["linestyle"], other["marker"])


def test_more_series_than_looks_still_get_one():
    names = [str(i) for i in range(30)]
    assert list(style.series_styles(names)) == names


def test_no_look_is_lost_in_black_and_white():
    looks = list(style.LOOKS.values())
    assert len({(str(dashes), marker) for _, dashes, marker in looks}) == len(looks)
    for colour, *_ in looks:  # dark enough on white paper
        assert np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) < 0.72


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.08))
def test_spread_heights_keep_their_order_their_distance_and_the_panel(heights, gap):
    placed = style.spread(heights, gap)
    order = np.argsort(heights, kind="stable")
    steps = np.diff(np.array(placed)[order])
    assert (steps >= gap - 1e-9).all()
    assert min(placed) >= -1e-9
    assert max(placed) <= 1 + 1e-9


def test_heights_that_are_apart_stay_where_they_are():
    assert style.spread([0.9, 0.1, 0.5], 0.1) == [0.9, 0.1, 0.5]


def test_heights_that_are_too_near_part_around_their_mean():
    assert style.spread([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])


def test_a_drawing_is_the_same_bytes_every_time_and_asks_for_nothing():
    def drawn():
        with rc_context(style.HOUSE):
            figure = style.figure()
            style.line(figure.axes[0], [1, 2], [1, 2], style.series_style("js", 0))
            style.dress(figure.axes[0], "costs $1 or $2", "step", "reward", "a note")
            style.label_ends(figure.axes[0], [style.Label(2, 2, "js", "#000000")])
            return style.svg(figure)

    svg = drawn()
    assert svg == drawn()
    assert svg.startswith("<svg")
    assert "costs $1 or $2" in svg
    assert 'href="http' not in svg and "url(http" not in svg


def test_a_logarithmic_axis_has_numbers_to_read():
    for values in ([0.2, 0.9], [1e-4, 100.0]):
        with rc_context(style.HOUSE):
            figure = style.figure()
            (axes,) = figure.axes
            axes.plot([1, 2], values)
            style.log_scale(axes)
            svg = style.svg(figure)
        assert "mathdefault" not in svg
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2


def test_a_picture_is_written_whole(tmp_path):
    path = style.save_png(style.figure(), tmp_path / "a.png")
    drawn = path.read_bytes()
    assert drawn.startswith(b"\x89PNG")

    class Broken:
        def savefig(self, file, format):
            file.write(b"half a picture")
            raise ValueError

    with pytest.raises(ValueError):
        style.save_png(Broken(), path)
    assert path.read_bytes() == drawn
    assert list(tmp_path.iterdir()) == [path]
