"""Forests as pictures and on pages, and the names of what they show."""

import re
import xml.etree.ElementTree as ET

from charts import forests_of

from paired_eval.pages import style
from paired_eval.pages.figures import page, picture
from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.pages.text import short_names

HOSTILE = "</script><b>'\"\x07,\n$1"


def forest(*names, title="T", note="n"):
    """A forest with a row for each name."""
    rows = [ForestRow("", name, 5.0, -99.0, 9.0) for name in names]
    return Forest(title, note, "points", rows, names)


def test_a_picture_is_the_same_bytes_every_time_and_loads_nothing(tmp_path):
    drawn = picture([forest("$a$", HOSTILE, title="costs $1 or $2", note="a note")])
    one, other = (style.save_png(drawn, tmp_path / name) for name in ("1.png", "2.png"))
    assert one == tmp_path / "1.png"
    assert one.read_bytes() == other.read_bytes()
    svg = style.svg(drawn)
    ET.fromstring(svg)
    assert "costs $1 or $2" in svg and "\x07" not in svg
    assert 'href="http' not in svg and "url(http" not in svg


def test_a_forest_shows_every_interval():
    dots = [ForestRow("", "a", 5.0, -99.0, 9.0), ForestRow("mixed", "b", 6.0, None, None)]
    forest = Forest("T", "n", "points", dots, ["a", "b"])
    assert forest.sentence() == "T, points. a: 5 (-99 to 9); mixed, b: 6."
    assert forests_of(picture([forest])) == [
        {("", "a"): (5, -99, 9), ("mixed", "b"): (6, None, None)}
    ]


def test_a_long_name_keeps_what_tells_it_apart():
    one, other = "baselines_of_mine.py:trimmed_mean_1", "baselines_of_mine.py:trimmed_mean_2"
    assert short_names(["rloo", f"{one}@1a2b3c4d", f"{other}@1a2b3c4d"]) == {
        "rloo": "rloo",
        f"{one}@1a2b3c4d": "baselines_o…med_mean_1",
        f"{other}@1a2b3c4d": "baselines_o…med_mean_2",
    }
    for names in (
        [f"{one}@1a2b3c4d", f"{one}@00000000"],  # two versions of one file
        ["runs/js/checkpoints/global_step100_hf", "runs/rloo/checkpoints/global_step100_hf"],
        [f"runs/of/this/autumn/{kind}/checkpoints/global_step100_hf" for kind in ("js", "rloo")],
    ):
        short = list(short_names(names).values())
        assert short[0] != short[1]


def test_the_rows_show_short_names():
    drawn = style.svg(forest("baselines_of_mine.py:trimmed_mean_1@1a2b3c4d", "js").chart())
    assert "baselines_o…med_mean_1<" in drawn and "1a2b3c4d<" not in drawn


def test_no_name_can_break_a_page():
    markup = page([forest("js", HOSTILE, title="<Error>")])
    assert markup.count("<img") == 1
    assert "<b>&lt;Error&gt;</b>" in markup
    assert not re.search("</?script|<b>'|\x07", markup)
