"""What is released: the files of three packages, their version, and programs that name theirs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import openrlhf_js
import openrlhf_js.cli.main as cli
from openrlhf_js.cli.main import PROGRAMS, main

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"openrlhf_js": ".", "answer_graders": "reward_models", "paired_eval": "eval"}

# What a user of the wheels has away from the repository: benchmarks, graders, and each program.
AWAY = """
from answer_graders.programs.data import main as data
from paired_eval.cli.passk import main as passk
from paired_eval.passk import benchmarks
assert benchmarks.named_benchmark("math500").task == "math"
try:
    status = passk(["--help"])
except SystemExit as ended:
    status = ended.code
assert not status
assert data("build countdown --split test --count 2 --out .".split()) == 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release is made from, where the changelog's first heading is this version."""
    (tmp_path / "scripts").mkdir()
    for package, folder in PACKAGES.items():
        shutil.copytree(ROOT / folder / package, tmp_path / folder / package)
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / folder / file, tmp_path / folder / file)
    for file in ("LICENSE", "CITATION.cff", "scripts/release.sh", "scripts/uv.sh"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{openrlhf_js.__version__}]\n")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def release(tree: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", tree / "scripts/release.sh", "--out", tree / "out", *more]
    return subprocess.run(command, capture_output=True, text=True)


def test_wheels_are_whole_and_the_product_runs_with_torch_and_numpy_alone(tree: Path):
    run = release(tree)
    assert run.returncode == 0, run.stderr
    assert "lines of doctests pass; a missing package is named" in run.stdout
    built = sorted(path.name for path in (tree / "out").iterdir())
    version = openrlhf_js.__version__
    assert [name for name in built if name.endswith(".gz")] == [
        f"{package}-{version}.tar.gz" for package in sorted(PACKAGES)
    ]
    unpacked, elsewhere = tree / "unpacked", tree / "elsewhere"
    elsewhere.mkdir()
    for wheel in (tree / "out").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(unpacked)
    assert (unpacked / "paired_eval/pages/templates").is_dir()
    away = subprocess.run(
        [sys.executable, "-c", AWAY],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
    )
    assert away.returncode == 0, away.stderr
    graders = unpacked / "answer_graders/reward_files"
    assert f"--reward.remote_url {graders}/countdown.py" in away.stdout
    assert len(list(graders.glob("*.py"))) == len(list((ROOT / "reward_models").glob("*.py")))


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    "CI" not in os.environ, reason="fetches gigabytes: in CI, or release.sh --torch"
)
def test_a_wheel_runs_with_the_oldest_torch_and_the_newest(tree: Path):
    run = release(tree, "--torch", "2.6.0", "--torch", "2.15.0")
    if "Failed to fetch" in run.stderr or "Failed to download" in run.stderr:
        pytest.skip(f"no registry: {run.stderr.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stderr
    assert "torch 2.6.0" in run.stdout and "torch 2.15.0" in run.stdout


def test_a_picture_and_another_version_are_refused(tree: Path):
    (tree / "eval/paired_eval/pages/templates/chart.png").touch()
    run = release(tree)
    assert run.returncode == 1 and not list((tree / "out").iterdir())
    assert "paired_eval/pages/templates/chart.png does not belong in" in run.stderr
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [9.9.9]\n")
    assert "CHANGELOG.md's first heading says Unreleased" in release(tree).stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_whose_package_is_missing_names_it_also_as_help(program, monkeypatch, capsys):
    missing = PROGRAMS[program].module
    monkeypatch.setattr(cli, "find_spec", lambda name: name != missing or None)
    assert main([program]) == 2
    assert PROGRAMS[program].install in capsys.readouterr().err
    assert main([program, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: openrlhf-js {program}") and PROGRAMS[program].install in shown


def test_the_command_needs_no_other_package_for_its_help_and_version(monkeypatch, capsys):
    """And its help says what each program needs."""
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert main(["--help"]) == main(["--version"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"openrlhf-js {openrlhf_js.__version__}" in shown
    assert "Arena" not in shown and "(needs paired-eval)" in shown
    assert main(["stduy"]) == 2


def test_a_mistyped_program_is_guessed(capsys):
    assert main(["stduy"]) == 2
    assert "did you mean 'study'?" in capsys.readouterr().err
