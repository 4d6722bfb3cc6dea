"""Repairs to upstream's policy and critic and their trainers, and measurements in them."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from openrlhf.models import get_llm_for_sequence_regression
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ray import ppo_actor, ppo_critic
from openrlhf.utils import get_tokenizer
from openrlhf.utils.loss_utils import get_loss_batch_info
from torch import Tensor
from transformers import set_seed

from openrlhf_js.common.processors import FORBIDDEN, media_tokens
from openrlhf_js.trainers.openrlhf.flags import LOSSES
from openrlhf_js.trainers.openrlhf.learner.gradient_variance import GradientVariance
from openrlhf_js.trainers.openrlhf.learner.lora import merged_layers, refuse_tied
from openrlhf_js.trainers.openrlhf.upstream import (
    LEARNER,
    UpstreamMismatch,
    plain_class,
    replace_names,
)

NEXT_TO_NONE = 1e-6  # replaces a count of 0, since upstream divides by it


def mark_last_micro_batch(trainer: Any, engine: Any, step: int) -> None:
    """Tells DeepSpeed whether a micro-batch is the last of its dynamic batch.

    Upstream tells it that one micro-batch makes a step, but steps after several. ZeRO 1 and 2 then
    take each micro-batch for the last and drop the earlier gradients. Once DeepSpeed knows which
    micro-batch is the last, every ZeRO stage sums them.

    Args:
        trainer: upstream's trainer of the policy or the critic.
        engine: its DeepSpeed engine.
        step: the number of the micro-batch.
    """
    if trainer.args.train.dynamic_batch_enable:
        is_last = bool(trainer.replay_buffer.dynamic_optimizer_step[step])
        engine.set_gradient_accumulation_boundary(is_last)


def seed_step(seed: int, engine: Any) -> None:
    """Seeds a training step's random numbers with `--train.seed` and the number of earlier steps.

    Upstream seeds a process when it starts, so a resumed run would repeat the first shuffles of
    responses and dropout masks. DeepSpeed counts its steps, and checkpoints keep the count. All
    ranks share one seed, as upstream's do: tensor-parallel ranks must agree.
    """
    (step_seed,) = np.random.SeedSequence([seed, engine.global_steps]).generate_state(1)
    set_seed(int(step_seed))


def load_with_flags(load: Callable[..., Any], engine: Any, *args: Any, **kwargs: Any) -> Any:
    """Upstream's `load_ckpt`, after which the optimizer has the flags of this run.

    DeepSpeed restores those of the checkpoint's run. They differ only in the flags that
    `--js.changed` names, and in the number of steps that the learning rate schedule covers.
    """
    names = ("betas", "eps", "weight_decay", "momentum")
    settings = [
        {name: group[name] for name in names if name in group}
        for group in engine.optimizer.param_groups
    ]
    schedule = engine.lr_scheduler
    rates = schedule.base_lrs
    loaded = load(engine, *args, **kwargs)
    schedule.base_lrs = rates
    for number, group in enumerate(engine.optimizer.param_groups):
        group.update(settings[number])
        group["lr"] = rates[number] * schedule.lr_lambdas[number](schedule.last_epoch)
    return loaded


def repair_checkpoints(strategy: Any) -> None:
    """Makes upstream's strategy delete the oldest checkpoint, and load with this run's flags.

    It would delete the one with the worst evaluation, which is often the newest: a run that is
    killed while it saves would lose many steps. It never deletes the best one.
    """
    strategy._read_ckpt_metric = lambda _: None
    strategy.load_ckpt = functools.partial(load_with_flags, strategy.load_ckpt)


class PromptGroups(NaiveReplayBuffer):
    """Upstream's replay buffer with whole prompt groups as items, so that a shuffle moves groups.

    Upstream shuffles single responses, which spreads a group over several micro-batches.
    """

    def __init__(self, micro_batch_size: int, responses: int, packing_samples: bool):
        super().__init__(micro_batch_size // responses, packing_samples=packing_samples)
        self._responses = responses

    def __len__(self) -> int:
        return len(self.items) // self._responses

    def __getitem__(self, index: int) -> list[Any]:
        start = index * self._responses
        group = self.items[start : start + self._responses]
        if len({prompt for item in group for prompt in item.prompts}) != 1:
            raise UpstreamMismatch(
                "--js.group_micro_batches: a rank got the responses of its prompts in another order"
            )
        return group

    def collate_fn(self, batch: list[list[Any]]) -> Any:
        return super().collate_fn([item for group in batch for item in group])


class OurPolicyTrainer(ppo_actor.ActorPPOTrainer):  # type: ignore[misc]
    """Upstream's trainer of the policy.

    Every optimizer step sums its micro-batches, divides by the denominator of `--js.loss`, and
    gives masked responses no weight. `--js.gradient_variance` measures the steps' gradients. vLLM
    gets adapters merged.
    """

    actor: Any

    def __init__(self, strategy: Any, actor: Any, *args: Any, **settings: Any):
        super().__init__(strategy, actor, *args, **settings)
        ours = self.args.js
        rollout = self.args.rollout
        if ours.group_micro_batches:
            self.replay_buffer = PromptGroups(
                self.args.train.micro_batch_size,
                rollout.n_samples_per_prompt,
                self.args.ds.packing_samples,
            )
        self.tokens_each: int | None = None  # tokens per response in the loss's denominator
        if ours.loss == "constant":
            self.tokens_each = rollout.max_new_tokens or self.args.data.max_len
        self.gradient_variance: GradientVariance | None = None
        if ours.gradient_variance:
            self.gradient_variance = GradientVariance(actor.model, ours.gradient_variance)

    def training_step(
        self,
        experience: Any,
        kl_ctl: float,
        step: int,
        loss_batch_info: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Trains on one micro-batch; the last one of an optimizer step also takes the step."""
        mark_last_micro_batch(self, self.actor.model, step)
        counts = self._counts(experience, step, loss_batch_info)
        denominators = counts
        if self.tokens_each is not None:
            tokens = counts["global_batch_size"] * self.tokens_each
            denominators = {**counts, "batch_num_tokens": tokens}
        with self._measuring(int(experience.action_mask.any(1).sum())):
            status: dict[str, Any] = super().training_step(experience, kl_ctl, step, denominators)
        log_token_means(
            status["metrics"], denominators["batch_num_tokens"] / counts["batch_num_tokens"]
        )
        if not experience.action_mask.any():
            log_as_zero(status)
        return status

    def _counts(self, experience: Any, step: int, info: dict[str, Any] | None) -> dict[str, Any]:
        """The tokens and the responses of the batch, by which upstream divides the loss.

        With the sum of all tokens' losses divided by (responses x `tokens_each`) instead, the
        expected gradient is the true one times a constant, whatever the baseline (docs/report.md).
        Masked responses have no action tokens, and count in neither.
        """
        info = info or get_loss_batch_info(
            self.strategy,
            experience.action_mask,
            replay_buffer=self.replay_buffer,
            step=step,
            dynamic_batch=self.args.train.dynamic_batch_enable,
        )
        responses = info["global_batch_size"].clamp(min=NEXT_TO_NONE)
        tokens = info["batch_num_tokens"].clamp(min=NEXT_TO_NONE)
        return {**info, "global_batch_size": responses, "batch_num_tokens": tokens}

    def _measuring(self, responses: int) -> contextlib.AbstractContextManager[None]:
        if self.gradient_variance is None:
            return contextlib.nullcontext()
        return self.gradient_variance.micro_batch(responses)

    def broadcast_to_vllm(self) -> None:
        """Sends vLLM the weights; with LoRA, the merged ones, one decoder layer at a time."""
        if self.args.ds.lora.rank == 0:
            super().broadcast_to_vllm()
            return
        policy = self.actor
        for weights in merged_layers(policy.model.module, self.args.ds.zero_stage):
            # upstream sends the parameters of `self.actor.model.module`
            module = SimpleNamespace(named_parameters=weights.items)
            self.actor = SimpleNamespace(model=SimpleNamespace(module=module))
            try:
                super().broadcast_to_vllm()
            finally:
                self.actor = policy


def log_token_means(metrics: dict[str, Any], factor: Tensor) -> None:
    """Logs entropy and KL loss per token, whatever the loss is divided by.

    Upstream logs them as it adds them to the loss, and steers an adaptive KL by the latter. Per
    response the KL has a row for each.
    """
    for name in ("entropy_loss", "kl"):
        if name in metrics and metrics[name].dim() == 0:
            metrics[name] = metrics[name] * factor


def shuffle_responses(trainer: Any) -> None:
    """Shuffles a rank's responses for dynamic batches, which upstream sorts by length.

    It sorts to balance the ranks, and cuts the order into the batches of the optimizer's steps: the
    shortest and the longest responses would train together, apart from the rest. All ranks have
    seeded this step alike, so those with equally many responses stay balanced.
    """
    if trainer.args.train.dynamic_batch_enable:
        random.shuffle(trainer.replay_buffer.items)


def log_as_zero(status: dict[str, Any]) -> None:
    """Logs 0 if a micro-batch has only masked responses: upstream's means are over no tokens."""
    means = status["metrics"]
    means |= {name: torch.as_tensor(mean).nan_to_num() for name, mean in means.items()}
    status["num_action_tokens"] = NEXT_TO_NONE


class OurCriticTrainer(ppo_critic.CriticPPOTrainer):  # type: ignore[misc]
    """Upstream's trainer of the critic, with the gradients of dynamic batches summed."""

    def training_step(
        self, experience: Any, step: int, loss_batch_info: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Trains on one micro-batch; the last one of an optimizer step also takes the step."""
        mark_last_micro_batch(self, self.critic, step)
        status: dict[str, Any] = super().training_step(experience, step, loss_batch_info)
        return status


@functools.wraps(get_llm_for_sequence_regression)
def load_with_scale(model_name_or_path: str, model_type: str, **settings: Any) -> Any:
    """Upstream's reward model or critic, normalised with the mean and std of its config.json.

    Upstream keeps both in buffers outside the checkpoint, and fills them when the model is built.
    Transformers 5 builds it on the meta device, so the buffers end up uninitialised: rewards shrink
    to nothing, or change sign.
    """
    model = get_llm_for_sequence_regression(model_name_or_path, model_type, **settings)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # inside LoRA
    mean = getattr(inner.config, "mean", None)
    std = getattr(inner.config, "std", None)
    if mean is None or std is None:
        if inner.normalize_reward and model_type == "reward":
            raise ValueError(
                f"--reward.normalize_enable: config.json of {model_name_or_path} has no mean and "
                "std (`openrlhf-js rm train` writes them)"
            )
        mean = 0.0
        std = 1.0
    inner.mean = torch.full_like(inner.mean, mean)
    inner.std = torch.full_like(inner.std, std)
    return model


def forbid_media(model: torch.nn.Module) -> None:
    """Gives image and video tokens probability 0 as the next token, as in vLLM's sampling.

    In a response they would fail: "Image features and image tokens do not match".
    """
    tokens = torch.tensor(media_tokens(model.config))

    def hook(_: Any, __: Any, output: Any) -> None:
        logits = output["logits"]
        output["logits"] = logits.index_fill(-1, tokens.to(logits.device), FORBIDDEN)

    model.register_forward_hook(hook)


class OurPolicy(plain_class(ppo_actor.PolicyModelActor)):  # type: ignore[misc]
    """Upstream's policy actor, with `OurPolicyTrainer`."""

    trainer: OurPolicyTrainer

    def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        replace_names(LEARNER)
        ours = strategy.args.js
        if ours.loss:
            strategy.args.actor.loss_agg_mode = LOSSES[ours.loss]
        repair_checkpoints(strategy)
        super().init_model_from_pretrained(strategy, *args, **kwargs)
        refuse_other_trainer(self.trainer, OurPolicyTrainer)
        if self.actor.is_vlm:
            # saved with the model, so it must be the processor; upstream has the tokenizer here
            self.tokenizer = get_tokenizer(strategy.args.actor.model_name_or_path, None)
            forbid_media(self.actor.model.module)
        if strategy.args.ds.lora.rank > 0:
            refuse_tied(self.actor.model.module)
            if strategy.is_rank_0():
                self.actor.model.module.print_trainable_parameters()

    def fit(self, kl_ctl: float = 0) -> dict[str, Any]:
        seed_step(self.strategy.args.train.seed, self.actor.model)
        shuffle_responses(self.trainer)
        status = super().fit(kl_ctl)
        recorder = self.trainer.gradient_variance
        return {**status, **(recorder.metrics() if recorder else {})}

    def save_checkpoint(self, tag: str, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(tag, *args, **kwargs)
        if self.strategy.is_rank_0():
            checkpoints = self.strategy.args.ckpt
            remove_old_copies(Path(checkpoints.path), tag, checkpoints.max_num)

    def is_ours(self) -> bool:
        return True


class OurCritic(plain_class(ppo_critic.CriticModelActor)):  # type: ignore[misc]
    """Upstream's critic actor, loaded with its mean and std, with `OurCriticTrainer`."""

    def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        replace_names(LEARNER)
        repair_checkpoints(strategy)
        super().init_model_from_pretrained(strategy, *args, **kwargs)
        refuse_other_trainer(self.trainer, OurCriticTrainer)

    def fit(self) -> dict[str, Any]:
        seed_step(self.strategy.args.train.seed, self.critic)
        shuffle_responses(self.trainer)
        return super().fit()


def refuse_other_trainer(trainer: object, ours: type) -> None:
    """Raises UpstreamMismatch unless upstream made a trainer of our class."""
    if not isinstance(trainer, ours):
        raise UpstreamMismatch(f"the live trainer is {type(trainer).__name__}, not {ours.__name__}")


def remove_old_copies(folder: Path, tag: str, most: int) -> None:
    """Removes old models of `--ckpt.save_hf`, all of which upstream would keep.

    Keeps the `most` newest, and of the best-evaluation models only one; `tag` is always kept.
    """
    is_best = tag.startswith("best")
    copies = folder.glob("best_global_step*_hf" if is_best else "global_step*_hf")
    others = [copy for copy in copies if copy.name != f"{tag}_hf"]
    others.sort(key=lambda copy: copy.stat().st_mtime)
    kept = 0 if is_best else most - 1
    for copy in others[: max(0, len(others) - kept)]:
        shutil.rmtree(copy)


def confirm(group: Any) -> None:
    """Raises UpstreamMismatch unless the actors of upstream's `RayActorGroup` are `OurPolicy`."""
    if not all(hasattr(actor, "is_ours") for actor in group._actor_handlers):
        raise UpstreamMismatch("the actors that train the policy are not those of openrlhf_js")
