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


SHELL = ["alone", "cluster/slurm", "lock", "models/smollm2", "quickstart", "recipes/maze_8b"]
SHELL += ["release", "setup", "test", "trainers"]


@pytest.mark.parametrize("name", SHELL)
def test_help_is_there_before_anything_is_set_up(project, name):
    first = check_help(["bash", project / f"scripts/{name}.sh"])
    assert f"\n# {first}\n" in (ROOT / f"scripts/{name}.sh").read_text(encoding="utf-8")
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_other_programs_explain_themselves(flag):
    check_help(["bash", ROOT / "research/studies/rlhf.sh"], flag)
    for name in ("scripts/recipes/gsm8k_table.py", "eval/arena_hard_example.py"):
        assert check_help([sys.executable, ROOT / name], flag).startswith("usage: ")


def check_help(command, flag="--help"):
    """The first line of a program's help, called from the folder of nobody."""
    call = subprocess.run([*command, flag], cwd="/", capture_output=True, text=True, check=True)
    assert len(call.stdout.splitlines()) >= 3
    return call.stdout.partition("\n")[0]


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


@pytest.mark.parametrize("kept", [True, False])
def test_a_venv_of_another_lock_stays_until_the_new_packages_are_fetched(project, kept):
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "setup.stamp").write_text(f"cpu {project if kept else '/elsewhere'}\nan old lock\n")
    stand_in(venv / "bin/python", "case $* in *install*) exit 1 ;; esac")
    mine = venv / "mine"
    mine.touch()
    environment = os.environ | {"OPENRLHF_JS_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    environment["PIP_FIND_LINKS"] = ""
    call = subprocess.run(
        ["bash", project / "scripts/setup.sh"], env=environment, capture_output=True, text=True
    )
    assert call.returncode == 2
    assert ("up to the new lock" if kept else "removing a .venv") in call.stdout
    assert mine.exists() == kept


@pytest.mark.parametrize(
    ("variable", "value", "of_uv"),
    [
        ("PIP_FIND_LINKS", "/a /b", "UV_FIND_LINKS=/a,/b"),
        ("PIP_EXTRA_INDEX_URL", "https://a https://b", "UV_INDEX=https://a https://b"),
        ("PIP_PROXY", "http://proxy:1", "HTTPS_PROXY=http://proxy:1"),
        ("PIP_NO_INDEX", "1", "--no-index"),
        ("PIP_NO_INDEX", "0", ""),
    ],
)
def test_uv_takes_the_settings_of_pip(tmp_path, variable, value, of_uv):
    stand_in(tmp_path / ".venv/bin/python", "")
    script = f'source "{ROOT}/scripts/uv.sh"; uv_settings; env; echo "${{no_index[@]}}"'
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, variable: value}
    printed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert of_uv in printed.stdout.splitlines()


def stand_in(path: Path, before: str) -> None:
    """This Python, and what is done before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/usr/bin/env bash\n{before}\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
