"""TRL with vLLM in its own process, on CPU: started by test_trl_vllm.py in a process of its own."""

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig
from trl_kit import M, norms_by_hand, sevens

from baseline_research.tiny import model
from baseline_research.tiny.tasks import TASKS
from openrlhf_js.trainers.trl import ShrinkageGRPOTrainer


class Checking(ShrinkageGRPOTrainer):
    """Compares the weights of each batch with those of the model's own logits."""

    checked = 0

    def _batch(self, rewards: Any, mask: Any, output: Any) -> Any:
        batch = super()._batch(rewards, mask, output)
        by_hand = norms_by_hand(self, output).view(-1, M)
        torch.testing.assert_close(batch.squared_score_norms, by_hand, rtol=1e-3, atol=1e-5)
        self.checked += 1
        return batch


def run(folder: Path) -> None:
    """Two steps, in which vLLM samples from the policy of each."""
    tokenizer = model.make_tokenizer(TASKS["sort"].tokens)
    model.make_model(tokenizer, 0).save_pretrained(folder / "policy")
    tokenizer.save_pretrained(folder / "policy")
    config = GRPOConfig(
        str(folder),
        scale_rewards="none",
        num_generations=M,
        per_device_train_batch_size=4 * M,
        max_completion_length=6,
        max_steps=2,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=64,
        vllm_gpu_memory_utilization=0.1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
    )
    data = Dataset.from_dict({"prompt": [f"sort({number})=" for number in range(10, 18)]})
    trainer = Checking(str(folder / "policy"), sevens, config, data)
    trainer.train()
    assert trainer.checked == trainer.state.global_step == 2


if __name__ == "__main__":
    run(Path(sys.argv[1]))
