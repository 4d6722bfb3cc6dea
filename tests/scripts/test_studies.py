"""The programs beside the studies: what they print and draw."""

import json
import lzma
import sys
from pathlib import Path

import pandas as pd

STUDIES = Path(__file__).parents[2] / "scripts/studies"


def test_every_cell_is_a_square_of_the_heat_map(program):
    cells = pd.read_csv(STUDIES.parents[1] / "docs/data/paper_cells.csv").dropna(
        subset=["less_rloo"]
    )
    chart = program("heat_map").heat_map(cells).to_dict(validate=False)
    panels = [chart["datasets"][panel["data"]["name"]] for panel in chart["vconcat"]]
    assert [len(values) for values in panels] == [len(cells) // 3] * 3
    (square,) = [
        value
        for value in panels[0]
        if (value["column"], value["estimator"]) == ("sort 16 x 2", "bloo")
    ]
    assert square["text"] == "+10*"
    orders = [list(dict.fromkeys(value["column"] for value in values)) for values in panels]
    assert orders[0] == orders[1] == orders[2]  # one row of labels serves all panels
    assert orders[0][:4] == ["sort 16 x 2", "countdown 16 x 2", "maze 16 x 2", "sort 16 x 4"]


def lines_of(finals, task="questions", responses=2):
    """Lines of runs with 16 prompts: estimator -> pass@1 by seed."""
    lines = []
    for estimator, values in finals.items():
        for seed, pass1 in enumerate(values):
            run = {"task": task, "mix": "natural", "prompts": 16, "responses": responses}
            run |= {"vary": "", "estimator": estimator, "learning_rate": 1e-5, "seed": seed}
            run |= {"pass1": pass1, "reward": pass1 - 0.1, "curve": [0.3, pass1], "steps": 30}
            run |= {"dead": 0.8, "baseline_error": 1.0, "gradient_variance": 1.0}
            run |= {"gradient_snr": 1.0, "spread": 0.3, "length": 3.0, "entropy": 0.4}
            lines.append(json.dumps(run) + "\n")
    return lines


def records(path, finals):
    """Writes runs on questions as packed records."""
    path.write_bytes(lzma.compress("".join(["{}\n", *lines_of(finals)]).encode()))


def test_the_pretrained_models_page_says_what_could_have_been_seen(
    program, tmp_path, monkeypatch, capsys
):
    pretrained = program("pretrained")
    monkeypatch.setattr(sys, "argv", ["pretrained.py"])
    finals = {"rloo": [0.40, 0.44, 0.42], "js_plus": [0.42, 0.44, 0.46]}  # +2, 0 and +4 points
    kept = {(dtype, "cpu"): tmp_path / f"{dtype}.jsonl.xz" for dtype in ("bfloat16", "float32")}
    monkeypatch.setattr(pretrained, "RECORDS", kept)
    records(kept["bfloat16", "cpu"], finals)
    pretrained.main()
    printed = capsys.readouterr().out
    assert "6 runs" in printed
    assert "| pass@1, points | `js_plus` | +2.00 | -2.97 | +6.97 | 0.23 | " in printed
    # A deviation of 2 points: 6 pairs give 80 % power for 3 points, by tables of the paired t test.
    assert "standard deviation of a pair 2.0 points; 6 pairs find 3 points" in printed


def test_rivals_are_kept_printed_and_drawn(program, tmp_path, monkeypatch, capsys):
    """Two folders, of two and four responses, each with two tasks."""
    rivals = program("rivals")
    monkeypatch.setattr(rivals, "RECORDS", tmp_path / "records.jsonl.xz")
    monkeypatch.setattr(rivals, "DOCS", tmp_path)
    for name in ("data", "images", "two", "four"):
        (tmp_path / name).mkdir()
    finals = {"rloo": [0.40, 0.44], "js_plus": [0.43, 0.45], "bloo": [0.40, 0.44]}
    for name, responses in (("two", 2), ("four", 4)):
        sort = lines_of(finals, "sort", responses)
        maze = lines_of({**finals, "js_plus": [0.45, 0.47]}, "maze", responses)
        (tmp_path / name / "runs-inline.jsonl").write_text("".join(["{}\n", *sort, *maze]))
    folders = [str(tmp_path / name) for name in ("two", "four")]
    monkeypatch.setattr(sys, "argv", ["rivals.py", *folders])
    rivals.main()
    printed = capsys.readouterr().out
    assert "24 runs, 8 differences" in printed
    assert "| 16 x 2 | natural | +3.0 | +0.0 |" in printed  # the mean of 2 and 4 points
    assert "| 16 x 4 | natural | +3.0 | +0.0 |" in printed
    assert "js_plus    0.0   0.0 sort, natural, 16 x 2" in printed  # regret
    for picture in ("rivals.png", "rivals-dark.png", "rivals_cells.png"):
        assert (tmp_path / "images" / picture).stat().st_size > 1000
    cells = pd.read_csv(tmp_path / "data/rivals.csv")
    assert cells.query("estimator == 'js_plus'").less_rloo.tolist() == [2.0, 4.0, 2.0, 4.0]
    monkeypatch.setattr(sys, "argv", ["rivals.py"])
    rivals.main()  # of what was kept
    assert capsys.readouterr().out == printed


def test_runs_with_prompts_that_come_again_are_kept_and_printed(
    program, tmp_path, monkeypatch, capsys
):
    """Two folders, with two responses and with one, which leaves no rloo."""
    again = program("again")
    monkeypatch.setattr(again, "RECORDS", tmp_path / "records.jsonl.xz")
    finals = {"rloo": [0.40, 0.44], "js_plus": [0.43, 0.45], "js_memory": [0.45, 0.49]}
    one_response = {name: values for name, values in finals.items() if name != "rloo"}
    for name, responses, of_size in (("two", 2, finals), ("one", 1, one_response)):
        (tmp_path / name).mkdir()
        lines = lines_of(of_size, "sort", responses) + lines_of(of_size, "maze", responses)
        (tmp_path / name / "runs-inline.jsonl").write_text("".join(["{}\n", *lines]))
    monkeypatch.setattr(sys, "argv", ["again.py", str(tmp_path / "two"), str(tmp_path / "one")])
    again.main()
    printed = capsys.readouterr().out
    assert "20 runs" in printed
    less_rloo = printed.split("js_memory less rloo")[1]
    assert "| 16 x 2 | natural | 5.0 |" in less_rloo  # as it is in both tasks
    assert "| 16 x 1 | natural | 3.0 |" in printed  # above js_plus
    assert "|  | maze | natural | 47.0 | 44.0 | 42.0 |" in printed
    monkeypatch.setattr(sys, "argv", ["again.py"])
    again.main()  # of what was kept
    assert capsys.readouterr().out == printed


def test_chosen_prompts_are_compared_by_kind_of_question(program, tmp_path, monkeypatch, capsys):
    chosen = program("pretrained_chosen")
    monkeypatch.setattr(chosen, "RECORDS", tmp_path / "records.jsonl")
    lines = []
    for seed in range(5):
        for estimator, pass1 in ((chosen.UNIFORM, 0.4 + seed / 100), (chosen.CHOSEN, 0.38)):
            kinds = {"last letter": pass1 / 2} if seed > 2 else {}
            run = {"estimator": estimator, "seed": seed, "pass1": pass1, "reward": 0.5}
            run["effective_prompts"] = None
            lines.append(json.dumps({**run, "kinds": kinds}))
    chosen.RECORDS.write_text("\n".join(lines))
    chosen.main()
    printed = capsys.readouterr().out.splitlines()
    assert "| pass1 | -2.0 -3.0 -4.0 -5.0 -6.0 | 42.0 | 38.0 | -4.0 | -6.0 | -2.0 |" in printed
    assert "| last letter | -2.5 -3.0 | 21.8 | 19.0 | -2.8 | -5.9 | +0.4 |" in printed
