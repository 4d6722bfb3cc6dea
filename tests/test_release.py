"""What is released: the files, the version, and extras that bring what each room imports."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import openrlhf_js
import openrlhf_js.cli.main as cli
from openrlhf_js.cli.main import EXTRAS as EXTRA_OF_PROGRAM
from openrlhf_js.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "openrlhf_js"
EXTRAS = {
    "tasks": "graders",
    "evaluation": "eval",
    "report": "eval",
    "sampling": "eval",
    "stats": "eval",
    "lab": "lab",
    "study": "lab",
    "tiny": "lab",
    "reward_model": "reward-model",
    "plugin": "train",
}
BUILDS = {"tasks": "tasks"}  # the extra for what a room imports only when it makes files
# vllm is an engine of two, and reasoning_gym has an extra of its own, which names it
NOT_ASKED_FOR = sys.stdlib_module_names | {"openrlhf_js", "vllm", "reasoning_gym"}


# What a user of the wheel has away from the repository: benchmarks, graders, and each program.
AWAY = """
from openrlhf_js.cli.main import main
from openrlhf_js.evaluation.passk import benchmarks
assert benchmarks.named_benchmark("math500").task == "math"
for program in "eval passk", "lab mse", "study", "data check":
    try:
        status = main([*program.split(), "--help"])
    except SystemExit as ended:
        status = ended.code
    assert not status, program
assert main("data build countdown --split test --count 2 --out .".split()) == 0
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release is made from, where the changelog's first heading is this version."""
    shutil.copytree(PACKAGE, tmp_path / "openrlhf_js")
    (tmp_path / "scripts").mkdir()
    for file in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "scripts/release.sh"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{openrlhf_js.__version__}]\n")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def release(tree: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", tree / "scripts/release.sh", "--out", tree / "out", *more]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_wheel_runs_with_torch_and_numpy_alone_and_has_its_types_and_templates(tree: Path):
    run = release(tree)
    assert run.returncode == 0, run.stderr
    assert "lines of doctests pass; a missing extra is named" in run.stdout
    wheel, sdist = sorted((tree / "out").iterdir())
    assert sdist.name == f"openrlhf_js-{openrlhf_js.__version__}.tar.gz"
    assert "openrlhf_js/report/templates/study.html" in zipfile.ZipFile(wheel).namelist()
    unpacked, elsewhere = tree / "unpacked", tree / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(unpacked)
    away = subprocess.run(
        [sys.executable, "-c", AWAY],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
    )
    assert away.returncode == 0, away.stderr
    graders = unpacked / "openrlhf_js/tasks/graders"
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
    (tree / "openrlhf_js/report/templates/chart.png").touch()
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [9.9.9]\n")
    run = release(tree)
    assert run.returncode == 1 and not list((tree / "out").iterdir())
    assert "openrlhf_js/report/templates/chart.png does not belong in" in run.stderr
    assert "CHANGELOG.md's first heading says Unreleased" in run.stderr


@pytest.mark.parametrize("room", EXTRAS)
def test_a_room_without_its_extra_names_it(room: str, monkeypatch: pytest.MonkeyPatch):
    module = importlib.import_module(f"openrlhf_js.{room}")
    monkeypatch.setattr(openrlhf_js, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=rf"'openrlhf-js\[{EXTRAS[room]}\]'$"):
        importlib.reload(module)


@pytest.mark.parametrize("program", EXTRA_OF_PROGRAM)
def test_a_program_without_its_extra_names_it_also_as_help(program, monkeypatch, capsys):
    monkeypatch.setattr(openrlhf_js, "find_spec", lambda name: None)
    install = f"pip install 'openrlhf-js[{EXTRA_OF_PROGRAM[program][0]}]'"
    assert main([program]) == 2
    assert install in capsys.readouterr().err
    assert main([program, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: openrlhf-js {program}") and install in shown


def test_the_command_needs_no_extra_for_its_help_version_and_mistyped_names(monkeypatch, capsys):
    """And its help says which extra each program lacks."""
    monkeypatch.setattr(openrlhf_js, "find_spec", lambda name: None)
    monkeypatch.setattr(cli, "find_spec", lambda name: name != "altair" or None)
    assert main(["--help"]) == main([]) == main(["--version"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"openrlhf-js {openrlhf_js.__version__}" in shown
    assert "compared (needs openrlhf-js[lab])" in shown and "[train]" not in shown
    assert main(["stduy"]) == 2
    assert "did you mean 'study'?" in capsys.readouterr().err


def brought(extra: str) -> set[str]:
    """Names of the packages that `pip install openrlhf-js[extra]` installs, and how asked for."""
    found: set[str] = set()
    waiting = [f"openrlhf-js[{extra}]"]
    while waiting:
        requirement = Requirement(waiting.pop())
        if str(requirement) in found:
            continue
        found |= {canonicalize_name(requirement.name), str(requirement)}
        try:
            needed = [Requirement(each) for each in requires(requirement.name) or ()]
        except PackageNotFoundError:  # only a GPU has it
            continue
        for each in needed:
            extras = requirement.extras or {""}
            if not each.marker or any(each.marker.evaluate({"extra": name}) for name in extras):
                waiting.append(f"{each.name}[{','.join(each.extras)}]")
    return found


def test_an_extra_brings_what_its_rooms_import():
    distributions = packages_distributions()
    for room, extra in EXTRAS.items():
        packages = brought(BUILDS.get(room, extra))
        for file in (PACKAGE / room).rglob("*.py"):
            for module in imported(file) - NOT_ASKED_FOR:
                names = {canonicalize_name(name) for name in distributions[module]}
                assert names & packages, f"[{extra}] lacks {module}, which {file} imports"


def imported(file: Path) -> set[str]:
    """Names of the top-level packages that a file imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.partition(".")[0] for name in names}
