"""The recipes' own files: each can be read, checked and tried without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from openrlhf_js.cli import recipe, rm

ROOT = Path(__file__).parents[2]
POLICY = {name: f"scripts/recipes/rlhf_llama3.2_3b_{name}.sh" for name in ("js", "rloo")}
REWARD_MODEL, SERVE = "reward_models/train_llama3_8b_rm.sh", "reward_models/serve.sh"
# `exec PYTHON -m MODULE FLAGS...` prints its arguments, so that a script costs no start of Python
PRINT = 'exec() { printf "%s\\n" "${@:2}"; exit; }; source "$0"'


def command(path: str, *flags: str) -> list[str]:
    """-m, the module and the arguments that a script would run."""
    done = subprocess.run(
        ["bash", "-c", PRINT, str(ROOT / path), *flags], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def dry_run(capsys, path: str, *flags: str, status: int = 0) -> str:
    """What a recipe's dry run prints, on stderr where it fails."""
    option, module, *arguments = command(path, *flags)
    assert (option, module) == ("-m", "openrlhf_js.cli.recipe")
    assert recipe.main(arguments) == status
    shown = capsys.readouterr()
    return shown.err if status else shown.out


def listed(output: str) -> dict[str, str]:
    """Flag -> value, of the flags that are not at their default."""
    return dict(re.findall(r"^\* --(\S+) (.*)$", output, re.MULTILINE))


def test_the_two_policies_differ_in_the_estimator_alone(capsys):
    js, rloo = (listed(dry_run(capsys, path, "--dry_run")) for path in POLICY.values())
    assert js["algo.advantage.estimator"] == "js"
    assert rloo["algo.advantage.estimator"] == "rloo"
    assert {name for name in js if js[name] != rloo[name]} == {
        "algo.advantage.estimator",
        "ckpt.output_dir",
        "ckpt.path",
        "logger.tensorboard_dir",
    }
    assert js.keys() == rloo.keys()
    assert js["actor.model_name_or_path"] == "meta-llama/Llama-3.2-3B-Instruct"
    assert (js["rollout.batch_size"], js["rollout.n_samples_per_prompt"]) == ("64", "4")


def test_a_flag_that_follows_wins_and_is_checked(capsys):
    flags = ("--dry-run", "--rollout.n_samples_per_prompt", "8")  # the former spelling
    assert listed(dry_run(capsys, POLICY["js"], *flags))["rollout.n_samples_per_prompt"] == "8"
    error = dry_run(capsys, POLICY["js"], "--dry_run", "--train.batch_size", "100", status=2)
    assert "not a multiple of --train.batch_size 100" in error


def test_the_reward_models_recipe_is_checked_pair_by_pair(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = dry_run(capsys, REWARD_MODEL, "--tiny", "--dry_run")
    assert re.search(r"^pairs +512 *$", output, re.MULTILINE)
    assert "--adam.lr 9e-06" in output and "--model.model_name_or_path /" in output


def test_the_server_script(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REWARD_MODEL", str(tmp_path / "none"))
    option, module, *arguments = command(SERVE, "--dry_run", "--port", "0")
    assert (option, module) == ("-m", "openrlhf_js.cli.rm")
    assert rm.main(arguments) == 2
    shown = capsys.readouterr()
    assert '"max_len": 8192' in shown.out and "none is not a folder" in shown.err


def test_a_recipe_for_gpus_starts_deepspeeds_launcher(monkeypatch):
    called = []
    monkeypatch.setattr(os, "execv", lambda program, argv: called.append(argv))
    recipe.main(["rm-train", "--adam.lr", "1e-3"])
    launcher = ["-m", "deepspeed.launcher.runner", "--no_local_rank", "--module"]
    assert called[0][1:] == [*launcher, "openrlhf_js.cli.rm", "train", "--adam.lr", "1e-3"]


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [POLICY["js"], REWARD_MODEL])
def test_a_recipe_can_be_tried(path):
    done = subprocess.run(
        ["bash", str(ROOT / path), "--tiny"],
        capture_output=True,
        text=True,
        timeout=590,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    folder = Path(re.search(r"the tiny run is in (\S+)", done.stdout)[1])
    assert (folder / "model" / "config.json").is_file()
    assert list((folder / "tensorboard").rglob("events*"))
