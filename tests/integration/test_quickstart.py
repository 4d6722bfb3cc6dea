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
    flags = ("--task", "sort", "--estimator", "js_plus", "--steps", "4")
    screen, _ = start(folder, *flags).communicate(timeout=300)
    assert "On held-out prompts of sort pass@1" in screen, screen
    assert f"picture      {folder / 'curves.png'}" in screen
    assert "\x1b" not in screen  # no control codes where there is no terminal
    summary = json.loads((folder / "summary.json").read_text())
    assert 0.1 <= summary["before"]["value"] <= 0.6
    result = summary["results"]["js_plus"]
    assert result["after"]["low"] <= result["after"]["value"] <= result["after"]["high"]
    assert 0 < result["shrinkage_mean"] <= 1
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "model" / "config.json").is_file()
    assert mentions(folder) == []
