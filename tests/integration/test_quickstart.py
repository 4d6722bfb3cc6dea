"""The quickstart, from its command line to its last screen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.integration


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "openrlhf_js.cli.main", "quickstart", "--out", str(folder), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def mentions(folder: Path) -> list[str]:
    """The command lines of all processes that know of the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_a_quickstart_leaves_all_that_it_promises(tmp_path):
    folder = tmp_path / "a b"  # spaces are common in home folders
    flags = ("--task", "sort", "--estimator", "js_plus", "--steps", "4", "--seeds", "1")
    screen, _ = start(folder, *flags).communicate(timeout=300)
    assert "✓ js_plus on Ray, DeepSpeed and vLLM, 4 steps of 64 x 4: pass@1 " in screen, screen
    assert "✓ 12 runs at 16 x 2 in this process" in screen
    assert f"picture      {folder / 'compared.png'}" in screen
    assert "\x1b" not in screen  # no control codes where there is no terminal
    (trained,) = records(folder / "runs-stack.jsonl")
    assert 0.1 <= trained["pass1"] <= 0.9 and 0 < trained["baseline_error"] < 1
    assert trained["gradient_variance"] > 0
    ours = [r for r in records(folder / "runs-inline.jsonl") if r["estimator"] == "js_plus"]
    assert len(ours) == 4 and all(len(each["curve"]) == 20 for each in ours)
    assert (folder / "compared.png").read_bytes().startswith(b"\x89PNG")
    assert len([*folder.glob("stack/*/model/config.json")]) == 1
    assert mentions(folder) == []


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]
