"""Forest plots of compared models: levels, and differences paired by item."""

from pathlib import Path

import numpy as np
import pytest
from charts import forests_of
from passk_kit import group, items

from openrlhf_js.evaluation.passk.compare import compare
from openrlhf_js.evaluation.passk.summary import FORMAT, summarise
from openrlhf_js.report import figures, passk, style
from openrlhf_js.report.forest import Forest, ForestRow

SETTINGS = {"temperature": 0.7, "top_p": 1.0, "max_new_tokens": 64, "prompt_form": "chat"}


def evaluated(label, model, chance):
    """Four responses to each of 12 items."""
    draws = np.random.default_rng(ord(label))
    groups = []
    for item in range(12):
        marks = np.where(draws.random(4) < chance, "r", "w")
        groups.append(group(item, "".join(marks)))
    task = {"settings": SETTINGS, **summarise(items(12), groups)}
    results = {"format": FORMAT, "model": model, "tasks": {"maze": task}}
    return passk.PasskRun(label, Path(label), results)


def test_models_have_their_levels_and_their_paired_differences_from_the_first():
    runs = [
        evaluated("A", "Qwen/Qwen3-4B", 0.2),
        evaluated("B", "runs/js/step20_hf", 0.4),
        evaluated("C", "http://here/v1#js-step40", 0.6),
    ]
    levels, differences = passk.forests(runs)
    names = ["A: Qwen/Qwen3-4B", "B: js/step20_hf", "C: js-step40"]
    measures = ["pass@1", "pass@2", "pass@4"]
    (dots,) = forests_of(figures.picture([levels]))
    assert sorted(dots) == sorted((measure, name) for measure in measures for name in names)
    mean = np.mean(runs[2].results["tasks"]["maze"]["per_item"]["correct"]) / 4
    assert dots["pass@1", names[2]][0] == pytest.approx(100 * mean)
    (shown,) = forests_of(figures.picture([differences]))
    for measure in measures:
        for run in runs[1:]:
            (row,) = compare(runs[0].results, run.results, measure)["rows"]
            expected = [100 * row[end] for end in ("value", "low", "high")]
            assert shown[measure, run.name] == pytest.approx(expected)
    assert differences.reference == 0 and levels.reference is None
    assert "pass@4, C: js-step40: +" in differences.sentence()


def test_pass_at_j_of_fewer_items_says_so():
    runs = [evaluated("A", "a", 0.4), evaluated("B", "b", 0.4)]
    per_item = runs[1].results["tasks"]["maze"]["per_item"]
    per_item |= {"answered": [4] * 3 + [1] * 9, "correct": [1] * 12}
    _, differences = passk.forests(runs)
    headings = [row.heading for row in differences.rows]
    assert headings == ["pass@1", "pass@2 of 3 items", "pass@4 of 3 items"]


def test_a_forest_stays_apart_in_black_and_white_and_shows_every_interval():
    rows = [ForestRow("", "a", 5.0, -99.0, 9.0), ForestRow("", "b", 6.0, None, None)]
    looks = style.series_looks(["a", "b"])
    drawn = Forest("T", "n", "points", rows, looks).chart(interactive=False).to_dict()
    intervals, points = (layer["encoding"] for layer in drawn["layer"])
    assert len(set(points["shape"]["scale"]["range"])) == 2
    assert intervals["x"]["scale"]["domain"][0] < -99
