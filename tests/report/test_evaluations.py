"""Evaluated models: none is drawn at a step that it does not have, and none is left out."""

import json

import numpy as np
import pytest
from charts import forests_of, panels_of
from chromium import check_shown
from passk_kit import group, items

from openrlhf_js.evaluation.passk.compare import compare
from openrlhf_js.evaluation.passk.summary import FORMAT, summarise
from openrlhf_js.report import evaluations, figures, pages, style
from openrlhf_js.report.forest import Forest

SETTINGS = {"temperature": 0.7, "top_p": 1.0, "max_new_tokens": 64, "prompt_form": "chat"}


def evaluated(folder, model, chance, *, seed=0, samples=4, name="maze"):
    """Results of `eval passk` of 12 items with about this chance of a right answer."""
    draws = np.random.default_rng(seed)
    groups = [
        group(i, "".join("r" if draw < chance else "w" for draw in draws.random(samples)))
        for i in range(12)
    ]
    task = {"settings": SETTINGS, **summarise(items(12), groups)}
    folder.mkdir()
    results = {"format": FORMAT, "model": model, "tasks": {name: task}}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def arena_scores(path, scores):
    """Scores of `eval arena score`, with intervals of two points."""
    rows = [
        {
            "model": model,
            "score": score,
            "ci_low": score - 1,
            "ci_high": score + 1,
            "baseline": "o3",
            "category": "hard",
            "judge": "<j>",
            "style_control": "none",
        }
        for model, score in scores.items()
    ]
    path.write_text(json.dumps(rows))
    return path


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_two_models_without_steps_are_two_rows_with_their_paired_differences(tmp_path):
    a = evaluated(tmp_path / "a", "ckpt/rloo/model", 0.3)
    b = evaluated(tmp_path / "b", "ckpt/js/model", 0.6, seed=1)
    models = evaluations.read([a, b])
    assert [(model.name, model.step) for model in models] == [
        ("rloo-model", None),
        ("js-model", None),
    ]
    levels, differences = evaluations.forests(models).plots
    measures = ["pass@1", "pass@2", "pass@4"]
    (dots,) = forests_of(figures.picture([levels]))
    assert list(dots) == [
        (measure, name) for measure in measures for name in ("rloo-model", "js-model")
    ]
    task = results_of(b)["tasks"]["maze"]
    mean = np.mean(task["per_item"]["correct"]) / 4
    assert dots["pass@1", "js-model"][0] == pytest.approx(100 * mean)
    (shown,) = forests_of(figures.picture([differences]))
    for measure in measures:
        (row,) = compare(results_of(a), results_of(b), measure)["rows"]
        expected = [100 * row[end] for end in ("value", "low", "high")]
        assert shown[measure, "js-model"] == pytest.approx(expected)
    assert differences.reference == 0 and levels.reference is None
    assert evaluations.forests(models).not_compared == []
    assert "pass@4, js-model: +" in differences.sentence()


def test_pass_at_j_of_fewer_items_is_no_figure_beside_others(tmp_path):
    folder = evaluated(tmp_path / "a", "js-step5", 0.5)
    results = results_of(folder)
    results["tasks"]["maze"]["per_item"]["answered"] = [4] * 3 + [2] * 9
    (folder / "results.json").write_text(json.dumps(results))
    (row,) = evaluations.table(evaluations.read([folder]))
    assert list(row)[2:] == ["maze, pass@1", "maze, pass@2", "maze, pass@4 of 3 items"]


def test_models_of_one_name_are_told_apart(tmp_path):
    folders = [evaluated(tmp_path / name, "ckpt/js/model", 0.5) for name in ("a", "b")]
    names = [model.name for model in evaluations.read(folders)]
    assert names == [f"js-model ({folder})" for folder in folders]


def test_what_was_not_measured_alike_has_no_difference_and_the_page_says_why(tmp_path):
    a = evaluated(tmp_path / "a", "rloo", 0.3)
    b = evaluated(tmp_path / "b", "js", 0.6, samples=2)
    models = evaluations.read([a, b])
    (levels,), not_compared = evaluations.forests(models)
    assert {row.name for row in levels.rows} == {"rloo", "js"}
    reason = "js and rloo: no fair comparison: maze: samples are 4 and 2"
    assert not_compared == [reason]
    assert reason in pages.write([], [], tmp_path / "x.html", evaluated=[a, b]).read_text()


@pytest.fixture
def checkpoints(tmp_path):
    """Two evaluated checkpoints, and the scores of four models."""
    return [
        evaluated(tmp_path / "b", "runs/js/global_step40_hf", 0.6),
        evaluated(tmp_path / "c", "http://here/v1#js-step5", 0.4),
        arena_scores(tmp_path / "s.json", {"o3": 50, "js-global_step40_hf": 8, "rloo_step40": 7}),
    ]


def test_checkpoints_are_drawn_over_training(checkpoints):
    models = evaluations.read(checkpoints)
    drawings = evaluations.curves(models)
    panels = {panel.title: panel for panel in panels_of(figures.picture(drawings))}
    assert list(panels) == ["maze, pass@1", "maze, pass@2", "maze, pass@4", "hard, judged by <j>"]
    assert panels["maze, pass@1"].lines["js"]["at"].tolist() == [5, 40]
    arena = panels["hard, judged by <j>"].lines
    points = {name: line[["x", "value"]].to_numpy().tolist() for name, line in arena.items()}
    assert points == {"js": [[40, 8]], "rloo": [[40, 7]]}
    assert (arena["js"].interval == "bar").all() and arena["js"].high.tolist() == [9]
    rows = evaluations.table(models)
    assert [(row["run"], row["step"]) for row in rows] == [
        ("js", "5"),
        ("js", "40"),
        ("rloo", "40"),
    ]
    assert rows[1]["hard, judged by <j>"] == "8 (7 to 9)"


def test_a_model_without_a_step_is_at_no_step(checkpoints, tmp_path):
    base = evaluated(tmp_path / "base", "Qwen/Qwen3-4B", 0.2)
    models = evaluations.read([base, *checkpoints])
    curves = evaluations.curves(models)
    assert curves and all("Qwen-Qwen3-4B" not in curve.lines for curve in curves)
    levels, differences, arena = evaluations.forests(models).plots
    assert {row.name for row in levels.rows} == {
        "Qwen-Qwen3-4B",
        "js-global_step40_hf",
        "js-step5",
    }
    assert {row.name for row in differences.rows} == {"js-global_step40_hf", "js-step5"}
    assert [row.name for row in arena.rows] == ["js-global_step40_hf", "rloo_step40"]


def test_a_step_of_no_runs_name_is_one_of_the_run(tmp_path):
    (model,) = evaluations.read([evaluated(tmp_path / "d", "http://here/v1#step5", 0.5)])
    assert (model.run, model.step) == ("run", 5)


@pytest.mark.parametrize("content", ["no JSON", "1", "[1]", '[{"model": "a"}]'])
def test_another_file_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match=r"x\.json holds neither results of eval passk nor scores"):
        evaluations.read([tmp_path / "x.json"])


def test_a_browser_shows_models_at_both_widths(tmp_path):
    long_name = "somebody/" + "a-model-of-a-long-name-" * 3
    a = evaluated(tmp_path / "a", long_name, 0.3)
    b = evaluated(tmp_path / "b", "ckpt/js/model", 0.6, seed=1)
    page = pages.write([], [], tmp_path / "x.html", evaluated=[a, b]).read_text()
    laptop, phone = check_shown(page, tmp_path, charts=2)
    assert "maze: difference from somebody" in laptop
    assert "maze: difference from somebody" in phone


def test_a_forest_stays_apart_in_black_and_white_and_shows_every_interval():
    rows = [
        evaluations.ForestRow("", "a", 5.0, -99.0, 9.0),
        evaluations.ForestRow("", "b", 6.0, None, None),
    ]
    looks = style.series_looks(["a", "b"])
    drawn = Forest("T", "n", "points", rows, looks).chart(interactive=False).to_dict()
    intervals, points = (layer["encoding"] for layer in drawn["layer"])
    assert len(set(points["shape"]["scale"]["range"])) == 2
    assert intervals["x"]["scale"]["domain"][0] < -99
