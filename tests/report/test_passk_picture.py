import math

import matplotlib.image
import pytest

from openrlhf_js.report import passk, style


def estimate(value, width=0.05):
    return {"value": value, "low": value - width, "high": value + width}


def found(names, k=8, shift=0.0):
    tries = [1 << bit for bit in range(k.bit_length())]
    task = {
        "items": 40,
        "pass_at": {str(j): estimate(0.3 + shift + 0.05 * math.log2(j)) for j in tries},
        "majority_at_k": estimate(0.4 + shift),
    }
    return {"tasks": {name: task for name in names}}


@pytest.fixture
def figures(monkeypatch):
    kept = []
    real = style.save_png
    monkeypatch.setattr(
        style, "save_png", lambda figure, path: (kept.append(figure), real(figure, path))[1]
    )
    return kept


def texts(axes):
    return {each.get_text() for each in axes.texts}


def test_one_model(tmp_path, figures):
    path = passk.draw([found(["maze"])], ["js"], tmp_path / "x.png")
    assert matplotlib.image.imread(path).shape[2] == 4
    (axes,) = figures[0].axes
    curve, star = axes.lines
    assert list(curve.get_xdata()) == [1, 2, 4, 8]
    assert list(curve.get_ydata()) == pytest.approx([0.3, 0.35, 0.4, 0.45])
    assert list(star.get_ydata()) == [0.4]
    assert axes.get_ylim() == (0, 1)
    assert axes.get_title(loc="left") == "maze"
    assert "js" not in texts(axes)  # nothing to tell apart
    assert len(axes.collections) == 1


def test_two_models_bear_their_names(tmp_path, figures):
    names = ["$a", "$b"]
    passk.draw([found(["maze"]), found(["maze"], shift=0.2)], names, tmp_path / "x.png")
    (axes,) = figures[0].axes
    assert set(names) <= texts(axes)
    colours = {each.get_color() for each in axes.lines}
    assert len(colours) == 2


def test_a_panel_for_each_benchmark(tmp_path, figures):
    names = ["a", "b", "c", "d"]
    passk.draw([found(names)], ["js"], tmp_path / "x.png")
    shown = [axes for axes in figures[0].axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == names
    assert len(figures[0].axes) == 6


def test_ends_that_are_not_known(tmp_path):
    one = found(["maze"], k=1)
    one["tasks"]["maze"]["pass_at"]["1"].update(low=None, high=None)
    assert passk.draw([one], ["js"], tmp_path / "x.png").is_file()
