"""The estimators in TRL: its GRPO and RLOO trainers with another baseline.

TRL has no hook for advantages. Here `_calculate_rewards` keeps the rewards of all processes, and
`_generate_and_score_completions` puts other advantages in the place of TRL's own.

    ShrinkageGRPOTrainer(model, reward, GRPOConfig(..., scale_rewards="none"))
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import trl
from torch import Tensor

from openrlhf_js.estimators import Batch, LiveEstimator, advantage, find_estimator, key_of
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.integrations import check_prompts

if TYPE_CHECKING:
    from trl import GRPOTrainer as Trainer
else:
    Trainer = object

WORKS_WITH = "1.16.0"
# What TRL must say for this to work, by method.
RELIED_ON = {
    "_calculate_rewards": ("rewards_per_func = gather(rewards_per_func)",),
    "_generate_and_score_completions": (
        "rewards_per_func = self._calculate_rewards(",
        "(rewards_per_func * self.reward_weights.to(device).unsqueeze(0)).nansum(dim=1)",
        'self.num_generations if mode == "train"',
        "self.accelerator.process_index * len(prompts),",
        'self._logs["advantages"].extend(all_process_advantages.tolist())',
        'self._metrics[mode]["reward"].append(',
        '"advantages": advantages,',
        '"completion_mask": completion_mask,',
    ),
}


class ShrinkageMixin(Trainer):
    """What a TRL trainer with our advantages adds, before TRL's class in the list of bases.

    A response's reward is the weighted sum over reward functions, as in TRL. A response that none
    of them scored is left out of all means and gets the advantage 0. Evaluation, which moves no
    weight, keeps TRL's advantages: a batch of it may hold a single response.
    """

    replaced: ClassVar[str]
    """Our name of TRL's estimator."""
    needs: ClassVar[dict[str, Any]]
    """Settings under which TRL's advantages are its estimator's."""

    def __init__(
        self,
        *args: Any,
        estimator: str = RECOMMENDED,
        shrinkage: float | None = None,
        **kwargs: Any,
    ):
        """The trainer's own arguments, a key of ESTIMATORS or a baseline of your own as
        `FILE.py:NAME`, and the coefficient of `js_fixed`."""
        if find_estimator(estimator).needs_greedy:
            raise ValueError(f"TRL draws no greedy responses, which {estimator} needs.")
        for name, lines in RELIED_ON.items():
            source = inspect.getsource(getattr(super(), name))
            for line in lines:
                if line not in source:
                    raise RuntimeError(
                        f"TRL {trl.__version__} has no {line!r} in {name}; install {WORKS_WITH}."
                    )
        super().__init__(*args, **kwargs)
        for name, value in self.needs.items():
            setting = getattr(self, name)
            if setting != value:
                raise ValueError(
                    f"{name} is {setting!r}; set {name}={value!r}, as {estimator} needs."
                )
        self.estimator = LiveEstimator(estimator, shrinkage=shrinkage)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self._scores = super()._calculate_rewards(*args, **kwargs)
        return self._scores

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return output
        rewards, mask = self._rewards()
        start = self.accelerator.process_index * len(inputs)
        of_process = slice(start, start + len(inputs))
        batch = self._batch(rewards, mask, inputs, output)
        check_prompts(self.estimator.record, batch)
        estimate = self.estimator.estimate(batch)
        for name, value in self.estimator.describe(batch, estimate).items():
            self._metrics["train"][name].append(value)
        self.estimator.learn(batch)
        advantages = estimate.advantages.to(rewards).flatten()[of_process]
        replaced = advantage(self.replaced, rewards, mask=mask).flatten()[of_process]
        remainder = output["advantages"] - replaced
        if self.replaced == "rloo" and self.beta != 0:
            # the KL penalty, less its mean over the prompt's other responses
            advantages += remainder
        elif not remainder.abs().max() <= 1e-4 * rewards.abs().max():
            raise RuntimeError(
                f"TRL's advantages are not {self.replaced}'s; install TRL {WORKS_WITH}."
            )
        output["advantages"] = advantages
        # The log of completions holds one batch, so that TRL's leave it.
        self._logs["advantages"].extend(self.accelerator.gather(advantages).tolist())
        return output

    def _rewards(self) -> tuple[Tensor, Tensor]:
        """(n, m) rewards of all processes, and which of them there are."""
        rewards = (self._scores * self.reward_weights.to(self._scores.device)).nansum(1)
        clip_range = getattr(self, "reward_clip_range", None)
        if clip_range:
            lowest, highest = clip_range
            rewards = rewards.clamp(lowest, highest)
        mask = ~self._scores.isnan().all(1)
        return rewards.view(-1, self.num_generations), mask.view(-1, self.num_generations)

    def _batch(
        self, rewards: Tensor, mask: Tensor, inputs: list[dict[str, Any]], output: dict[str, Any]
    ) -> Batch:
        """What the estimator sees, of all processes."""
        keys = torch.tensor([key_of(repr(row.get("prompt"))) for row in inputs])
        all_keys = self.accelerator.gather(keys.to(rewards.device)).cpu()
        # what tools and environments say is no part of a response
        written = output["completion_mask"] * output.get("tool_mask", 1)
        lengths = self.accelerator.gather(written.sum(1)).cpu()
        return self.estimator.batch(
            rewards.cpu(),
            mask=mask.cpu(),
            lengths=lengths.view(rewards.shape),
            keys=all_keys[:: self.num_generations].contiguous(),
            step=self.state.global_step,
        )


class ShrinkageGRPOTrainer(ShrinkageMixin, trl.GRPOTrainer):
    """GRPOTrainer without TRL's division by a standard deviation."""

    replaced = "dr_grpo"
    needs: ClassVar = {"scale_rewards": "none", "multi_objective_aggregation": "sum_then_normalize"}


class ShrinkageRLOOTrainer(ShrinkageMixin, trl.RLOOTrainer):
    """RLOOTrainer, whose KL penalty (`beta`) keeps its own baseline."""

    replaced = "rloo"
    needs: ClassVar = {"normalize_advantages": False}
