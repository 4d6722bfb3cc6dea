"""The recipes' own files: each can be read, checked and tried without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POLICY = {name: f"scripts/recipes/rlhf_llama3.2_3b_{name}.sh" for name in ("js", "rloo")}
REWARD_MODEL = "reward_models/train_llama3_8b_rm.sh"


def recipe(path: str, *flags: str, timeout_seconds: float = 55) -> str:
    done = subprocess.run(
        ["bash", str(ROOT / path), *flags],
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def listed(output: str) -> dict[str, str]:
    """Flag -> value, of the flags that are not at their default."""
    return dict(re.findall(r"^\* --(\S+) (.*)$", output, re.MULTILINE))


def test_the_two_policies_differ_in_the_estimator_alone():
    js, rloo = (listed(recipe(path, "--dry-run")) for path in POLICY.values())
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


def test_a_flag_that_follows_wins_and_is_checked():
    output = recipe(POLICY["js"], "--dry-run", "--rollout.n_samples_per_prompt", "8")
    assert listed(output)["rollout.n_samples_per_prompt"] == "8"
    done = subprocess.run(
        ["bash", str(ROOT / POLICY["js"]), "--dry-run", "--train.batch_size", "100"],
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 2
    assert "not a multiple of --train.batch_size 100" in done.stderr


@pytest.mark.parametrize("path", [*POLICY.values(), REWARD_MODEL, "reward_models/serve.sh"])
def test_the_header_says_what_a_reader_wants_to_know(path):
    header = (ROOT / path).read_text().split("set -euo")[0]
    for word in ("Hardware:", "Time:", "Paper:", "Choices:", "--dry-run", "--tiny"):
        assert word in header


def test_the_reward_models_recipe_is_checked_pair_by_pair():
    output = recipe(REWARD_MODEL, "--tiny", "--dry-run")
    assert "--adam.lr 9e-06" in output and "--model.model_name_or_path /" in output


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [POLICY["js"], REWARD_MODEL])
def test_a_recipe_can_be_tried(path):
    began = time.monotonic()
    output = recipe(path, "--tiny", timeout_seconds=590)
    folder = Path(re.search(r"the tiny run is in (\S+)", output)[1])
    assert (folder / "model" / "config.json").is_file()
    assert list((folder / "tensorboard").rglob("events*"))
    print(f"{path}: {time.monotonic() - began:.0f} s")
