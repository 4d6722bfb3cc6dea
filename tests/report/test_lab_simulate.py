import numpy as np
import pytest
from matplotlib import rc_context

from openrlhf_js.report import style
from openrlhf_js.report.lab_simulate import draw

KINDS = {"rloo": "unbiased", "grpo": "biased", "dr_grpo": "biased", "js": "unbiased"}
KINDS |= {"js_plus": "unbiased", "js_fixed": "oracle", "batch_best": "oracle"}
REDUCTIONS = {"grpo": 50, "dr_grpo": 50, "js": 37, "js_plus": 47, "js_fixed": 49, "batch_best": 52}


def summary(responses=(2, 4)):
    rows = [
        {
            "m": m,
            "estimator": name,
            "gradient": kind,
            "mse": (1 - REDUCTIONS.get(name, 0) / 100 / m) * 0.25 / m,
            "reduction_percent": REDUCTIONS.get(name, 0) / m,
            "reduction_low": REDUCTIONS.get(name, 0) / m - 3,
            "reduction_high": REDUCTIONS.get(name, 0) / m + 1,
            "shrinkage": None,
        }
        for m in responses
        for name, kind in KINDS.items()
    ]
    return {"rows": rows, "title": "Bernoulli, values \x1b", "prompts_count": 64}


def drawn(responses):
    with rc_context(style.HOUSE):
        return draw(summary(responses), {})


def texts(axes):
    return [text.get_text() for text in axes.texts]


def line(axes, name):
    colour = style.series_style(name, 0)["color"]
    (found,) = [each for each in axes.lines if each.get_color() == colour and len(each.get_xdata())]
    return found


def test_errors_are_in_units_of_rloo_and_reductions_have_intervals():
    errors, reductions = drawn((2, 4)).axes
    np.testing.assert_allclose(line(errors, "rloo").get_ydata(), [1, 1])
    np.testing.assert_allclose(line(errors, "js").get_ydata(), [1 - 0.37 / 2, 1 - 0.37 / 4])
    bars = {tuple(bar.lines[0].get_ydata()): bar for bar in reductions.containers}
    assert set(bars) == {(18.5, 9.25), (23.5, 11.75), (24.5, 12.25)}
    (ends,) = bars[18.5, 9.25].lines[2]
    np.testing.assert_allclose(
        [part[:, 1] for part in ends.get_segments()], [[15.5, 19.5], [6.25, 10.25]]
    )


def test_lines_bear_their_names():
    errors, reductions = drawn((2, 4)).axes
    assert set(texts(errors)[1:]) == {"rloo", "grpo, dr_grpo (biased)", "js", "js_plus"}
    assert set(texts(reductions)[1:]) == {"js", "js_plus", "best constant"}
    assert texts(errors)[0] == "Bernoulli, values \N{REPLACEMENT CHARACTER}; 64 prompts"
    assert "RLOO = 1" in errors.get_ylabel()
    assert "95 %" in reductions.get_ylabel()


@pytest.mark.parametrize("responses", [(2,), (2, 3, 16)])
def test_it_can_be_saved(tmp_path, responses):
    figure = drawn(responses)
    path = style.save_png(figure, tmp_path / "simulate.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    for axes in figure.axes:
        assert [label.get_text() for label in axes.get_xticklabels()] == [str(m) for m in responses]
    assert not any("$" in label.get_text() for label in figure.axes[0].get_yticklabels())
