"""The estimators in TRL: its GRPO and RLOO trainers with another baseline.

TRL has no hook for advantages. Here `_calculate_rewards` keeps the rewards of all processes, and
`_generate_and_score_completions` replaces TRL's own advantages.

    ShrinkageGRPOTrainer(model, reward, GRPOConfig(..., scale_rewards="none"))
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import trl
from torch import Tensor

from openrlhf_js.estimators import (
    Batch,
    LiveEstimator,
    advantage,
    squared_score_norms,
)
from openrlhf_js.estimators.batch import make_batch
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.trainers import check_prompts, check_settings, prompt_key
from openrlhf_js.trainers.kept import has_other_weights, is_memory_of, kept_memory

if TYPE_CHECKING:
    from trl import GRPOTrainer as Trainer
else:
    Trainer = object

logger = logging.getLogger(__name__)

WORKS_WITH = "1.16.0"
MEMORY_FILE = "openrlhf_js.pt"  # beside TRL's own files in a checkpoint
UNBIASED_LOSSES = ("dr_grpo", "luspo")  # a response's term is divided by a constant
# Lines of TRL's source that this file relies on, by method: in both trainers, and in each.
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
    "_get_per_token_logps_and_entropies": ("logps = torch.cat(all_logps, dim=0)",),
}
RELIED_ON_IN_GRPO = {
    "_generate_and_score_completions": (
        'output["old_per_token_logps"] = old_per_token_logps',
        'output["tool_mask"] = tool_mask',
    ),
    "_compute_loss": (
        'mask = completion_mask if "tool_mask" not in inputs else completion_mask * inputs[',
        'if self.loss_type in ["grpo", "sapo"]:',
        "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
        'elif self.loss_type == "bnpo":',
        "loss = (per_token_loss * mask).sum() / mask.sum().clamp(min=1.0)",
        'elif self.loss_type == "dr_grpo":',
        'elif self.loss_type in ["cispo", "dapo", "vespo"]:',
        'elif self.loss_type == "luspo":',
        "loss = (per_token_loss * mask).sum(-1).mean()",
    ),
}
RELIED_ON_IN_RLOO = {
    "_generate_and_score_completions": (
        "old_per_token_logps, _, _ = self._get_per_token_logps_and_entropies(",
        "old_logps = (old_per_token_logps * completion_mask).sum(1)",
    ),
    "_compute_loss": (
        "logps = (per_token_logps * completion_mask).sum(1)",
        "per_sequence_loss1 = coef_1 * advantages",
    ),
}


class ShrinkageMixin(Trainer):
    """Gives a TRL trainer our advantages; stands before TRL's class in the list of bases.

    A response's reward is the weighted sum over reward functions, as in TRL. A response that none
    of them scored is left out of all means and gets the advantage 0. Evaluation, which updates no
    weights, keeps TRL's advantages: its batches may hold a single response.

    An estimator that weighs responses (`js_grad`) gets its weights from the log-probabilities of
    their tokens under the policy that is trained. TRL has them at that point, except in one case of
    GRPO; `ShrinkageGRPOTrainer` says what they cost then.
    """

    replaced: ClassVar[str]
    """Our name for TRL's estimator, which is replaced."""
    relied_on: ClassVar[Mapping[str, tuple[str, ...]]]
    """What this trainer relies on in addition to RELIED_ON."""
    config_class: ClassVar[type]
    """TRL's settings, of which it makes its own if none are given."""
    needs: ClassVar[dict[str, Any]]
    """Settings under which TRL's advantages are those of `replaced`."""

    def __init__(
        self,
        *args: Any,
        estimator: str = RECOMMENDED,
        shrinkage: float | None = None,
        **kwargs: Any,
    ):
        """Takes the trainer's own arguments, `estimator` (a key of ESTIMATORS, or your own baseline
        as `FILE.py:NAME`) and `shrinkage` (the coefficient of `js_fixed`).

        Raises ValueError for settings that do not fit, before TRL loads a model or starts vLLM.
        """
        for name, lines in [*RELIED_ON.items(), *self.relied_on.items()]:
            source = inspect.getsource(getattr(super(), name))
            for line in lines:
                if line not in source:
                    raise RuntimeError(
                        f"TRL {trl.__version__} has no {line!r} in {name}; "
                        f"pip install trl=={WORKS_WITH}."
                    )
        given = inspect.signature(super().__init__).bind_partial(*args, **kwargs).arguments
        config = given.get("args") or self.config_class("unused")
        self.estimator = LiveEstimator(estimator, shrinkage=shrinkage)
        self._train_sampler: Any = None  # a stream of prompts has none
        self._check_settings(config)
        self._check_sizes(config, given.get("train_dataset"))
        super().__init__(*args, **kwargs)
        for notice in self._notices():
            if self.accelerator.is_main_process:
                logger.warning(notice)

    def _check_settings(self, config: Any) -> None:
        """Raises ValueError for settings under which TRL's advantages are not those of `replaced`,
        and for an estimator that TRL does not feed."""
        record = self.estimator.record
        if record.needs_greedy:
            raise ValueError(f"TRL draws no greedy responses, which {record.name} needs.")
        check_settings(config, self.needs)
        if self.replaced == "rloo" and config.num_generations == 1 and config.beta != 0:
            raise ValueError(
                f"beta is {config.beta:g}, and TRL's RLOO trainer drops its KL penalty with one "
                "response to each prompt: set beta=0, or take ShrinkageGRPOTrainer, whose KL is in "
                "the loss."
            )

    def _check_sizes(self, config: Any, data: Any) -> None:
        """Raises ValueError if the data set does not fill one batch, as TRL would train no step on
        it, or if a batch is too small for the estimator."""
        prompts = config.generation_batch_size // config.num_generations
        sizes = (
            f"generation_batch_size {config.generation_batch_size} / num_generations "
            f"{config.num_generations}"
        )
        if isinstance(data, Sized) and len(data) < prompts:
            raise ValueError(
                f"the data set has {len(data)} prompts, fewer than the {prompts} of one batch "
                f"({sizes}), and TRL drops what does not fill one: it would train no "
                "step. Use more prompts, or a smaller per_device_train_batch_size or "
                "gradient_accumulation_steps."
            )
        zeros = torch.zeros(prompts, config.num_generations)
        self.estimator.record.check(
            make_batch(zeros, lengths=zeros, shrinkage=self.estimator.shrinkage)
        )

    def _notices(self) -> list[str]:
        """Messages about the settings, logged when a run starts."""
        return []

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self._scores = super()._calculate_rewards(*args, **kwargs)
        return self._scores

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        if self.estimator.record.remembers_prompts:
            self._own_keys = self._keys(inputs)  # before TRL adds fields of the rollout to the rows
        output = super()._generate_and_score_completions(inputs)
        rewards, mask = self._rewards()
        start = self.accelerator.process_index * len(inputs)
        of_process = slice(start, start + len(inputs))
        batch = self._batch(rewards, mask, output)
        check_prompts(self.estimator.record, batch)
        estimate = self.estimator.estimate(batch)
        for name, value in self.estimator.describe(batch, estimate).items():
            self._metrics["train"][name].append(value)
        self.estimator.learn(batch)
        advantages = estimate.advantages.to(rewards).flatten()[of_process]
        replaced = self._replaced_advantages(rewards, mask).flatten()[of_process]
        remainder = output["advantages"] - replaced
        if self.replaced == "rloo" and self.beta != 0:
            # the KL penalty, less its mean over the prompt's other responses
            advantages += remainder
        elif not remainder.abs().max() <= 1e-4 * rewards.abs().max():
            raise RuntimeError(
                f"TRL's advantages are not {self.replaced}'s; pip install trl=={WORKS_WITH}."
            )
        output["advantages"] = advantages
        # The log of completions holds one batch, so TRL's own advantages drop out.
        self._logs["advantages"].extend(self.accelerator.gather(advantages).tolist())
        return output

    def _replaced_advantages(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """(n, m) TRL's own, without a KL penalty: 0 for single responses."""
        if self.num_generations == 1:
            return torch.zeros_like(rewards)
        return advantage(self.replaced, rewards, mask=mask)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """TRL's own, and what the estimator remembers, which is the same in all processes."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.estimator.memory is not None and self.args.should_save:
            kept = kept_memory(self.estimator, over_tokens=self._means_over_tokens())
            torch.save(kept, Path(output_dir) / MEMORY_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """TRL's own, what the estimator remembered, and the order of the prompts, which TRL would
        begin with the first epoch's again."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if self.estimator.memory is not None:
            self._load_memory(Path(checkpoint) / MEMORY_FILE)
        generator = getattr(self._train_sampler, "generator", None)
        if generator is not None:
            for _ in range(int(self.state.epoch)):
                torch.randperm(len(self.train_dataset), generator=generator)

    def _get_train_sampler(self, *args: Any) -> Any:
        self._train_sampler = super()._get_train_sampler(*args)
        return self._train_sampler

    def _load_memory(self, file: Path) -> None:
        """Restores the memory; warns if the file is missing, or is of another estimator or loss."""
        is_own = parse_own(self.estimator.record.name) is not None  # its state may be any object
        if file.exists():
            kept = torch.load(file, map_location="cpu", weights_only=not is_own)
            over_tokens = self._means_over_tokens()
            if is_memory_of(kept, self.estimator) and not has_other_weights(
                kept, self.estimator, over_tokens=over_tokens
            ):
                self.estimator.load_state_dict(kept["state"])
                return
        logger.warning(
            f"openrlhf_js: {file.parent} holds no memory of {self.estimator.record.name} under "
            "this loss_type: it begins with an empty one."
        )

    def _rewards(self) -> tuple[Tensor, Tensor]:
        """(n, m) rewards of all processes, and the mask of those that exist."""
        infinite = self._scores.isinf().any(0).nonzero().flatten().tolist()
        if infinite:
            raise ValueError(
                f"the reward function {self.reward_func_names[infinite[0]]} returned an infinite "
                "reward: return a finite number, or None to leave the response out."
            )
        rewards = (self._scores * self.reward_weights.to(self._scores.device)).nansum(1)
        clip_range = getattr(self, "reward_clip_range", None)
        if clip_range:
            lowest, highest = clip_range
            rewards = rewards.clamp(lowest, highest)
        mask = ~self._scores.isnan().all(1)
        return rewards.view(-1, self.num_generations), mask.view(-1, self.num_generations)

    def _batch(self, rewards: Tensor, mask: Tensor, output: dict[str, Any]) -> Batch:
        """The estimator's batch, from all processes."""
        keys = None
        if self.estimator.record.remembers_prompts:
            own_keys = torch.tensor(self._own_keys).to(rewards.device)
            all_keys = self.accelerator.gather(own_keys).cpu()
            keys = all_keys[:: self.num_generations].contiguous()
        # text of tools and environments is not part of a response
        written = output["completion_mask"] * output.get("tool_mask", 1)
        lengths = self.accelerator.gather(written.sum(1)).cpu()
        norms = None
        if self.estimator.record.reads_score_norms:
            own_norms = squared_score_norms(
                self._log_probs(output), written, mean_over_tokens=self._means_over_tokens()
            )
            norms = self.accelerator.gather(own_norms).cpu().view(rewards.shape)
        return self.estimator.batch(
            rewards.cpu(),
            mask=mask.cpu(),
            lengths=lengths.view(rewards.shape),
            squared_score_norms=norms,
            keys=keys,
            step=self.state.global_step,
        )

    def _keys(self, inputs: list[dict[str, Any]]) -> list[int]:
        """The prompt keys of this process's rows; 0 except for the first row of a group."""
        start = self.accelerator.process_index * len(inputs)
        return [
            0 if place % self.num_generations else prompt_key(row)
            for place, row in enumerate(inputs, start)
        ]


class ShrinkageGRPOTrainer(ShrinkageMixin, trl.GRPOTrainer):
    """GRPOTrainer without TRL's division by a standard deviation.

    TRL itself computes the log-probabilities that `js_grad` needs if vLLM samples, which it
    corrects for, or if a batch serves more than one update. Otherwise (TRL's default without vLLM)
    they cost one forward pass over the batch without gradient: at most a third of the cost of the
    update's forward and backward passes.

    The weights follow the loss. `grpo` and `sapo` divide each response's sum over tokens by its
    number of tokens, and so does `bnpo` with one response a device; `bnpo` with more, `dapo`,
    `dr_grpo`, `cispo`, `vespo` and `luspo` divide all responses by the same number.
    `importance_sampling_level="sequence"` does not change this. Tokens that TRL leaves out for
    their entropy or as off-policy still count in the weights.
    """

    replaced = "dr_grpo"
    relied_on = RELIED_ON_IN_GRPO
    config_class = trl.GRPOConfig
    needs: ClassVar = {"scale_rewards": "none", "multi_objective_aggregation": "sum_then_normalize"}

    def _notices(self) -> list[str]:
        notice = (
            "openrlhf_js: scale_rewards='none' leaves the gradient in units of the reward, where "
            "'group' divides it by each group's standard deviation: max_grad_norm "
            f"{self.args.max_grad_norm:g} clips at another size, so look at grad_norm"
        )
        if self.loss_type not in UNBIASED_LOSSES:
            notice += (
                f"; loss_type={self.loss_type!r} divides by lengths, which biases the gradient a "
                "little: loss_type='dr_grpo' does not"
            )
        return [notice]

    def _log_probs(self, output: dict[str, Any]) -> Tensor:
        """(B, T) of this process's responses, by the policy that is trained."""
        if "old_per_token_logps" in output:
            return output["old_per_token_logps"]
        inputs = {
            "model": self.model,
            "input_ids": torch.cat([output["prompt_ids"], output["completion_ids"]], 1),
            "attention_mask": torch.cat([output["prompt_mask"], output["completion_mask"]], 1),
            "logits_to_keep": output["completion_ids"].shape[1],
            "batch_size": self.args.per_device_train_batch_size,
        }
        # image inputs are arguments of the same names in a batch
        names = inspect.signature(self._get_per_token_logps_and_entropies).parameters
        with torch.no_grad():
            log_probs, _, _ = self._get_per_token_logps_and_entropies(
                **inputs, **{name: output[name] for name in names if name in output}
            )
        return log_probs

    def _means_over_tokens(self) -> bool:
        """Whether the loss divides each response by its own number of tokens."""
        single = self.args.per_device_train_batch_size == 1
        return self.loss_type in ("grpo", "sapo") or (self.loss_type == "bnpo" and single)


class ShrinkageRLOOTrainer(ShrinkageMixin, trl.RLOOTrainer):
    """RLOOTrainer, whose KL penalty (`beta`) keeps its own baseline.

    `js_grad` uses the log-probabilities that TRL computes for its ratio.
    """

    replaced = "rloo"
    relied_on = RELIED_ON_IN_RLOO
    config_class = trl.RLOOConfig
    needs: ClassVar = {"normalize_advantages": False}

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._first_log_probs: Tensor | None = None
        return super()._generate_and_score_completions(inputs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's own; for each batch it is called first for the policy, then for the reference."""
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._first_log_probs is None:
            self._first_log_probs = result[0]
        return result

    def _log_probs(self, output: dict[str, Any]) -> Tensor:
        """(B, T) of this process's responses, by the policy that is trained."""
        assert self._first_log_probs is not None  # TRL's ratio needs them
        return self._first_log_probs

    def _means_over_tokens(self) -> bool:
        """Whether the loss divides each response by its own number of tokens."""
        return False  # its ratio is that of whole responses
