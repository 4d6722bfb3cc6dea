"""The estimators in ms-swift: `import openrlhf_js.trainers.swift` in a file of --external_plugins.

`ShrinkageGRPOTrainer.estimator = "js"` takes another one than js_grad.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from openrlhf_js.estimators import LiveEstimator, squared_score_norms
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.trainers import check_settings, check_source, learn_from, prompt_key, tried_with

with tried_with("ms-swift", "4.6.0"):
    from accelerate.utils import gather_object
    from swift.rlhf_trainers import GRPOTrainer
    from swift.trainers.trainer_factory import TrainerFactory
LINES = {
    "_postprocess_batch": ("total_advantages = self._compute_advantages(samples, self._rewards_",),
    "_compute_advantages": ("rewards = (rewards_per_func * self.reward_weights.unsqueeze(0))",),
    "_prepare_batch_inputs": ("grpo_batch.old_per_token_logps = (",),
    "_preprocess_inputs": ("samples = self._add_prompt_id_to_inputs(samples)",),
}
check_source("ms-swift", "4.6.0", GRPOTrainer, LINES)


class ShrinkageGRPOTrainer(GRPOTrainer):
    """ms-swift's GRPO trainer with our advantages while it trains."""

    estimator: ClassVar[str] = RECOMMENDED
    needed: ClassVar = {
        "scale_rewards": "none",
        "dynamic_sample": False,
        "kl_in_reward": False,
        "advantage_estimator": "grpo",
    }

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        check_settings(self, self.needed)
        check_settings(self.template, {"sequence_parallel_size": 1})
        self.live = LiveEstimator(self.estimator)

    def _add_prompt_id_to_inputs(self, samples: list[Any]) -> list[Any]:
        samples = super()._add_prompt_id_to_inputs(samples)
        for each in samples:  # with ms-swift's ids, the first prompt of a step is always 0
            media = [each.images, each.videos, each.audios, each.objects]
            row = [each.messages, each.tools, *media, each.extra]
            each.prompt_id = str(prompt_key(row))
        return samples

    def _means(self) -> bool:
        one_a_batch = self.loss_type == "bnpo" and self.args.per_device_train_batch_size == 1
        return one_a_batch or self.loss_type in ("grpo", "sapo")

    def _compute_advantages(self, samples: list[Any], scores: Any, encoded: list[Any]) -> Any:
        theirs = super()._compute_advantages(samples, scores, encoded)
        if not self.model.training:
            return theirs
        means = self._means()
        numbers: list[tuple[float, int]] = []
        for batch in (each["grpo_batch"] for each in encoded):
            dropped = batch.truncated_mask & self.overlong_filter  # the loss leaves them out
            written = batch.completion_mask * ~dropped[:, None]
            norms = squared_score_norms(batch.old_per_token_logps, written, mean_over_tokens=means)
            numbers += zip(norms.tolist(), written.sum(1).tolist(), strict=True)
        norms, lengths = torch.tensor(gather_object(numbers), dtype=torch.float64).T
        advantages, figures = learn_from(
            self.live,
            gather_object([each.prompt_id for each in samples]),
            rewards=(scores * self.reward_weights).nansum(1),
            lengths=lengths,
            squared_score_norms=norms,
            step=self.state.global_step,
            responses=gather_object([each.request_id for each in samples]),
            mask=~scores.isnan().all(1),
        )
        for name, value in figures.items():
            self._metrics["train"][name].append(value)
        return advantages.to(theirs)


TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.ShrinkageGRPOTrainer"
