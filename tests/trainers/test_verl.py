"""Runs `verl_checks.py` with verl, whose pins do not fit ours, in a folder of its own."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PINS = HERE / "verl.txt"


@pytest.fixture
def verl() -> Path:
    """verl and what it needs in a folder of .venv, installed once for each set of pins."""
    mark = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = Path(sys.prefix) / f"verl-{mark}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(prefix="verl-unfinished-", dir=sys.prefix))
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--retries=1", "-r", PINS]
        run = subprocess.run([*pip, "--target", made], capture_output=True, text=True)
        if run.returncode:
            shutil.rmtree(made)
            assert "CI" not in os.environ, run.stderr
            pytest.skip(f"verl cannot be installed: {run.stderr.strip().splitlines()[-1]}")
        for name in ("tests", "scripts"):  # would hide ours
            shutil.rmtree(made / name)
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder


def test_verl_calls_our_estimators(verl: Path) -> None:
    """Nothing but verl's own variable tells it of our file."""
    module = {"VERL_USE_EXTERNAL_MODULES": "openrlhf_js.trainers.verl"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]
    # but for the timeouts, which pyproject.toml sets: plugins take seconds to import
    command += ["--disable-plugin-autoload", "-p", "pytest_timeout"]
    run = subprocess.run(
        [*command, HERE / "verl_checks.py"],
        env=os.environ | module | {"PYTHONPATH": str(verl)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
