"""LoRA on the real stack; what it saves and how it resumes is in tests/plugin/lora_cases.py."""

import re

import pytest
import torch

pytestmark = pytest.mark.integration

STEPS = 3  # as the fixture `start` has them


def test_lora_samples_what_it_trains_and_saves(start, tmp_path):
    run = start(
        *("--algo.advantage.estimator", "js", "--ds.zero_stage", "3", "--js.gradient_variance"),
        *("--ds.lora.rank", "8", "--ds.lora.alpha", "8", "--actor.adam.lr", "1e-2"),
        *("--algo.advantage.is_correction_level", "token"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    assert re.search(r"trainable params: [\d,]+ \|\| all params", run.output)
    run.check_advantages()
    scalars = run.scalars()
    assert len(scalars["train/vllm_kl"]) == STEPS
    assert max(map(abs, scalars["train/vllm_kl"])) < 0.05
    assert all(variance > 0 for variance in scalars["train/js/gradient_variance"])
    saved = torch.load(tmp_path / "model" / "adapter_model.bin", weights_only=True)
    assert all(weight.abs().max() > 0.01 for name, weight in saved.items() if "lora_B" in name)
