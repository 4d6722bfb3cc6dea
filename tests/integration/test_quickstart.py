"""The quickstart, from its command line to its last screen."""

import subprocess
import sys

import pytest
from kit import processes_of, read_lines

pytestmark = pytest.mark.integration


SHORTER = """
import sys
from baseline_research.cli import quickstart

quickstart.PAIRED |= {"steps": 3}
sys.exit(quickstart.main(sys.argv[1:]))
"""


def test_a_quickstart_leaves_all_that_it_promises(tmp_path):
    folder = tmp_path / "a b"  # spaces are common in home folders
    flags = ("--task", "sort", "--estimator", "js_grad", "--steps", "4", "--seeds", "1")
    command = [sys.executable, "-c", SHORTER, "--out", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    screen = subprocess.run([*command, *flags], timeout=550, **pipes).stdout
    assert "✓ js_grad on Ray, DeepSpeed and vLLM, 4 steps of 64 x 4: pass@1 " in screen, screen
    assert "✓ 3 runs at 16 x 2 in this process" in screen
    assert f"picture      {folder / 'compared.png'}" in screen
    assert "\x1b" not in screen  # no control codes where there is no terminal
    _, trained = read_lines(folder / "runs-stack.jsonl")
    assert 0.1 <= trained["pass1"] <= 0.9
    assert trained["baseline_error"] > 0  # of the value, which js_grad does not look at
    assert trained["gradient_variance"] > 0
    paired = read_lines(folder / "runs-inline.jsonl")[1:]
    assert {run["estimator"] for run in paired} == {"rloo", "js", "js_grad"}
    assert all(len(run["curve"]) == 3 for run in paired)
    assert (folder / "compared.png").read_bytes().startswith(b"\x89PNG")
    assert len([*folder.glob("stack/*/model/config.json")]) == 1
    assert processes_of(folder) == []
