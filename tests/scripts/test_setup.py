"""scripts/setup.sh on machines that lack something: one line that says what to do."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kit import until

ROOT = Path(__file__).resolve().parents[2]

PYTHON = Path(__file__).with_name("fake_python.sh").read_text()


class Machine:
    """A copy of the set-up scripts in a path with a space, and fake programs before the real."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a project"
        self.programs = folder / "bin"
        self.calls = folder / "calls"
        self.programs.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "pyproject.toml", self.root)
        for lock in (self.root / "scripts/locks").glob("?pu.txt"):
            lock.write_text("ray==2.55.0\nopenrlhf==0.11.2\nuv==0.13.8\n")
        self.fake("python3", PYTHON)
        for missing in ("python3.10", "python3.11", "python3.12", "nvidia-smi"):
            self.fake(missing, "#!/bin/sh\nexit 127\n")

    def fake(self, name: str, script: str) -> None:
        (self.programs / name).write_text(script)
        (self.programs / name).chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENRLHF_JS")}
        return subprocess.Popen(
            ["bash", str(self.root / "scripts/setup.sh"), *arguments],
            cwd="/",
            env={
                **kept,
                "PATH": f"{self.programs}:/usr/bin:/bin",
                "FAKE_CALLS": str(self.calls),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=50)
        return process.returncode, out, err

    def refusal(self, *arguments: str, **environment: str) -> str:
        """The one line on stderr of a set-up that must stop with status 2."""
        status, _, err = self.setup(*arguments, **environment)
        assert status == 2, err
        assert err.startswith("setup: ") and err.count("\n") == 1, err
        return err

    def calls_of_installers(self) -> int:
        return self.calls.read_text().count("call") if self.calls.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


MAC = '#!/bin/sh\n[ "$1" = -s ] && echo Darwin || echo arm64\n'
FULL_DISK = '#!/bin/sh\nprintf "header\\n/dev/disk 1 1 512000 1%% /\\n"\n'


@pytest.mark.parametrize(
    ("argument", "environment", "fake", "words"),
    [
        ("cpu", {"FAKE_VERSION": "3.9"}, (), ("python3 is 3.9", "OPENRLHF_JS_PYTHON=")),
        ("cpu", {"OPENRLHF_JS_PYTHON": "/nowhere/python3"}, (), ("/nowhere/python3",)),
        ("cpu", {"FAKE_NO_VENV": "1"}, (), ("apt install python3.11-venv",)),
        ("cpu", {}, ("uname", MAC), ("Darwin arm64", "Linux x86_64")),
        ("cpu", {}, ("df", FULL_DISK), ("500 MB free", "needs 12000 MB")),
        ("tpu", {}, (), ("'tpu'", "cpu, gpu and --with-flash-attn")),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(machine, argument, environment, fake, words):
    if fake:
        machine.fake(*fake)
    line = machine.refusal(argument, **environment)
    assert all(word in line for word in words), line
    assert not (machine.root / ".venv").exists()


@pytest.mark.parametrize("name", ["setup", "quickstart", "test", "lock", "release"])
def test_help_is_there_before_anything_is_set_up(machine, name):
    command = ["bash", machine.root / f"scripts/{name}.sh", "--help"]
    text = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert f"\n  bash scripts/{name}.sh" in text
    assert "#" not in text
    assert not (machine.root / ".venv").exists()


def test_too_new_a_python_gives_way_to_a_fitting_one_further_on(machine):
    machine.fake("python3", "#!/bin/sh\necho 3.13\n")
    machine.fake("python3.11", PYTHON)
    status, out, err = machine.setup("cpu")
    assert status == 0, err
    assert "Python 3.11" in out


def test_a_foreign_venv_is_left_alone(machine):
    (machine.root / ".venv").mkdir()
    (machine.root / ".venv/mine").touch()
    assert "not built by this script" in machine.refusal("cpu")
    assert (machine.root / ".venv/mine").exists()


@pytest.mark.parametrize(
    ("uv", "words"),
    [
        ("fail", ("fetching ray==2.55.0 failed", "setup.log", "run again, it resumes")),
        ("full", ("the disk filled up", "free 12000 MB")),
    ],
)
def test_a_failed_download_names_the_package_and_a_second_call_resumes(machine, uv, words):
    line = machine.refusal("cpu", FAKE_UV=uv)
    assert all(word in line for word in words), line
    packages = machine.root / ".venv/lib/python3.11/site-packages"
    (packages / "whole-1.dist-info").mkdir(parents=True)
    (packages / "whole-1.dist-info/INSTALLER").touch()
    (packages / "half-1.dist-info").mkdir()
    status, out, err = machine.setup("cpu")
    assert status == 0, err
    assert "half-built" in out
    assert [path.name for path in packages.iterdir()] == ["whole-1.dist-info"]


def test_a_second_call_is_fast_and_calls_no_pip(machine):
    assert machine.setup("cpu", LC_ALL="xx_YY.strange")[0] == 0
    assert "call file:///one file:///two" in machine.calls.read_text()  # pip's indexes
    calls, began = machine.calls_of_installers(), time.monotonic()
    status, out, err = machine.setup()
    assert (status, out, err) == (0, "setup: ready: .venv for cpu\n", "")
    assert time.monotonic() - began < 5
    assert machine.calls_of_installers() == calls > 0


def test_a_changed_lock_or_python_builds_anew_and_a_changed_pyproject_only_the_project(machine):
    assert machine.setup("cpu")[0] == 0
    before = machine.calls_of_installers()
    with (machine.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert machine.setup("cpu")[0] == 0
    assert machine.calls_of_installers() == before + 1
    with (machine.root / "scripts/locks/cpu.txt").open("a") as file:
        file.write("one-more==1.0\n")
    assert "out of date" in machine.setup("cpu")[1]
    assert machine.calls_of_installers() > before + 2
    machine.fake("other", PYTHON.replace("FAKE_VERSION:-3.11", "FAKE_VERSION:-3.12"))
    status, out, _ = machine.setup(OPENRLHF_JS_PYTHON=str(machine.programs / "other"))
    assert status == 0 and "with Python 3.12" in out


def test_the_gpu_is_found_and_flash_attn_is_optional(machine):
    machine.fake("nvidia-smi", "#!/bin/sh\necho 'GPU 0: some'\n")
    machine.fake(
        "python3", PYTHON.replace('case "$*" in', 'case "$*" in\n    *flash_attn*) exit 1 ;;', 1)
    )
    status, out, err = machine.setup()
    assert status == 0, err
    assert "building .venv for gpu" in out and "falls back to sdpa" in out


def test_control_c_ends_cleanly_and_a_second_call_waits_for_nobody(machine):
    process = machine.start("cpu", FAKE_UV="hang")
    until(Path(f"{machine.calls}.hanging").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "stopped; run again" in err
    assert machine.setup("cpu")[0] == 0


def test_two_at_once_take_turns(machine):
    first = machine.start("cpu", FAKE_UV="slow")
    until(machine.calls.exists)
    second = machine.start("cpu")
    assert "waiting for it" in second.stdout.readline()
    Path(f"{machine.calls}.go").touch()
    for each in (first, second):
        each.communicate(timeout=50)
        assert each.returncode == 0
