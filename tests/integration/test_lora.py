"""LoRA on the real stack: vLLM samples what the actor trains, and a run resumes."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.integration

STEPS = 3  # as the fixture `start` has them


def test_lora_samples_what_it_trains_saves_and_resumes(start, policy, tmp_path):
    flags = (
        *("--algo.advantage.estimator", "js", "--ds.zero_stage", "3", "--js.gradient_variance"),
        *("--ds.lora.rank", "8", "--ds.lora.alpha", "8", "--actor.adam.lr", "1e-2"),
        *("--algo.advantage.is_correction_level", "token", "--ckpt.save_steps", str(STEPS)),
    )
    first = start(*flags).finish()
    assert first.status == 0, first.output[-3000:]
    assert "LoRA of rank 8 with alpha 8 (B A counts alpha / rank = 1) on 3 q_proj" in first.output
    check(first)
    saved = adapter(tmp_path)
    assert all(weight.abs().max() > 0.01 for name, weight in saved.items() if "lora_B" in name)

    second = start(*flags, "--ckpt.load_enable", "--train.num_episodes", "2").finish()
    assert second.status == 0, second.output[-3000:]
    check(second)
    assert len(second.batches()) == 2 * STEPS
    resumed = adapter(tmp_path)
    # of the same order as what the first run did from zero: it went on from there
    for name, weight in saved.items():
        assert 0 < (resumed[name] - weight).abs().max() < 0.1, name


def check(run) -> None:
    run.check_advantages(steps=None)
    scalars = run.scalars()
    assert len(scalars["train/vllm_kl"]) == STEPS
    assert max(map(abs, scalars["train/vllm_kl"])) < 0.05
    assert all(variance > 0 for variance in scalars["train/js/gradient_variance"])


def adapter(folder) -> dict[str, torch.Tensor]:
    return torch.load(folder / "model" / "adapter_model.bin", weights_only=True)
