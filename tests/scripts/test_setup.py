"""The shell programs before anything is set up: help, refusals, and a folder that is left alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the scripts in a path with a space."""
    folder = tmp_path / "a project"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("name", ["setup", "quickstart", "test", "lock", "release"])
def test_help_is_there_before_anything_is_set_up(project, name):
    command = ["bash", project / f"scripts/{name}.sh", "--help"]
    text = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert f"\n  bash scripts/{name}.sh" in text
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(
    ("words", "variables", "named"),
    [
        (["tpu"], {}, "'tpu'"),
        (["cpu"], {"OPENRLHF_JS_PYTHON": "/nowhere/python3"}, "/nowhere/python3"),
        (["cpu"], {}, "not built by this script"),
    ],
)
def test_what_cannot_be_set_up_is_one_line_with_status_2(project, words, variables, named):
    mine = project / ".venv" / "mine"
    mine.parent.mkdir()
    mine.touch()
    command = ["bash", project / "scripts/setup.sh", *words]
    environment = os.environ | {"OPENRLHF_JS_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    environment |= variables
    call = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert call.returncode == 2
    assert call.stderr.startswith("setup: ") and call.stderr.count("\n") == 1
    assert named in call.stderr
    assert [*mine.parent.iterdir()] == [mine]
