import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

CASES = Path(__file__).with_name("gpu_cases.py")
WAY = "tiny 1, a training step with --js.gradient_variance"


@pytest.fixture(scope="module")
def side():
    sys.path.insert(0, str(CASES.parents[2] / "benchmarks"))  # as for a script
    import gpu

    yield gpu
    sys.path.pop(0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run with torch and transformers alone: what it printed, its rows by name, parameters."""
    out = tmp_path_factory.mktemp("gpu") / "rows.json"
    command = [sys.executable, str(CASES), str(out)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text())
    return SimpleNamespace(
        lines=run.stdout.splitlines(),
        about=found["about"],
        rows={row["what"]: row for row in found["rows"]},
        parameters=json.loads(out.with_name("parameters.json").read_text()),
    )


def ratios(row) -> list[float]:
    return [a / b for a, b in zip(row["measured"], row["beside"], strict=True)]


def test_every_row_is_printed_and_saved(measured):
    lines, about = measured.lines, measured.about
    assert len(lines) == len(measured.rows) + 2 and about in lines[0]
    assert torch.__version__ in about and all(line.count("|") == 6 for line in lines)
    times = [row for row in measured.rows.values() if row["unit"] in ("ms", "requests/s")]
    assert len(times) == 2 + 2 + 3 and all(min(row["measured"]) > 0 for row in times)


def test_the_estimator_agrees_with_the_cpu(measured):
    for dtype, most in (("float64", 0), ("float32", 1)):
        what = f"`js`, 32 x 4, {dtype}: largest difference from the CPU in float64"
        assert max(ratios(measured.rows[f"{what}, beside the epsilon"])) <= most


def test_gradient_variance_measures_every_second_step_of_the_model(measured):
    """The last step is one of them: were it not, `sums` would be those of another step."""
    rows = measured.rows
    assert ratios(rows[f"{WAY}: sum of squares, beside float64"]) == pytest.approx([1], rel=1e-5)
    assert ratios(rows[f"{WAY}, beside one without: memory added"]) == pytest.approx(
        [1, 1], abs=0.05
    )


def test_what_is_left_out_says_why(measured):
    rows = measured.rows
    assert "fastapi, httptools" in rows["tiny 1, reward server over HTTP"]["left_out"]
    # the second shape's step fails after its first row; that and all later parts are there
    assert "OutOfMemoryError('CUDA out of memory" in rows["tiny 2, training"]["left_out"]
    assert ratios(rows["tiny 2, `js` and its logging, beside the training step"])
    assert ratios(rows["tiny 2, reward scheduler, beside its model alone"])


def test_a_part_ends_when_the_time_is_over(side):
    row = side.Row("first", "ms", [1.0], [2.0])
    bench = side.DeviceBench("cpu", repeats=1)

    def ends():
        yield row
        yield side.Row("memory", "GiB", [math.nan], [1.0])
        bench.end = -math.inf
        bench.rounds(lambda: None)

    first, memory, part, after = bench.rows([("part", ends), ("after", lambda: iter([row]))])
    assert first == row and memory == side.Row("memory", left_out="not known here")
    assert "the minutes are over" in part.left_out and part.what == "part"
    assert after.cells()[0] == "after: left out, the minutes are over"


def test_rounds_take_turns_after_a_warm_up(side):
    calls, bench = [], side.DeviceBench("cpu", repeats=2)
    found = bench.rounds(lambda: calls.append("a"), lambda: calls.append("b"))
    assert "".join(calls) == "ababab" and [len(times) for times, _ in found] == [2, 2]
    row = side.Row("x", "ms", [1.0, 3.0, 8.0], [1.0, 2.0, 4.0])
    assert row.cells() == ["x", "3 ms", "2 ms", "1.5 (1 to 2)", "3"]


def test_the_shapes_have_as_many_parameters_as_qwen(measured):
    assert measured.parameters == {"0.5B": 494_032_768, "1.5B": 1_543_714_304}
