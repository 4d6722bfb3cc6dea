"""Upstream's policy, critic and reward actors, with what is measured and repaired in them."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openrlhf.models import get_llm_for_sequence_regression
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ray import ppo_actor, ppo_critic
from openrlhf.utils import get_tokenizer
from openrlhf.utils.loss_utils import get_loss_batch_info
from transformers import set_seed

from openrlhf_js.common.processors import FORBIDDEN, media_tokens
from openrlhf_js.trainers.openrlhf.flags import LOSSES
from openrlhf_js.trainers.openrlhf.learner.gradient_variance import GradientVariance
from openrlhf_js.trainers.openrlhf.learner.lora import refuse_tied, send_merged_weights
from openrlhf_js.trainers.openrlhf.upstream import UpstreamMismatch, plain_class

NEXT_TO_NONE = 1e-6  # stands for a count of 0, by which upstream divides


def sum_dynamic_batches(trainer: Any, engine: Any, step_at: int) -> None:
    """Makes every micro-batch of a dynamic batch count in its optimizer step.

    Upstream tells DeepSpeed that one micro-batch makes a step, and steps after several. ZeRO 1 and
    2 then take each micro-batch for the last and drop the gradients before it. Once they know which
    micro-batch is the last, every ZeRO stage sums them.
    `training_step` of upstream's trainer of policy or critic is replaced; the number of the
    micro-batch stands at `step_at` among its arguments.
    """
    one_step: Callable[..., dict] = trainer.training_step

    def training_step(*args: Any) -> dict:
        last = trainer.replay_buffer.dynamic_optimizer_step[args[step_at]]
        engine.set_gradient_accumulation_boundary(bool(last))
        return one_step(*args)

    trainer.training_step = training_step


def seed_step(seed: int, engine: Any) -> None:
    """Makes what a training step draws a function of `--train.seed` and of the steps before it.

    Upstream seeds a process when it starts. In one that resumes, the shuffles of the responses and
    dropout would begin anew. DeepSpeed counts its steps, and keeps their number in a checkpoint.
    All ranks have one seed, as upstream gives them: ranks of tensor parallelism must agree.
    """
    (step_seed,) = np.random.SeedSequence([seed, engine.global_steps]).generate_state(1)
    set_seed(int(step_seed))


def divide_loss(trainer: Any, tokens_each: int | None) -> None:
    """Divides the loss by a constant, and makes masked responses weigh nothing.

    With the sum of all tokens' losses divided by (responses x `tokens_each`), the expected gradient
    is the true one times a constant, whatever the baseline (docs/how_it_works.md). Upstream divides
    by the tokens that the batch happens to have; None for `tokens_each` leaves that. Masked
    responses have no action token, and count in neither. A micro-batch of them is logged as 0, and
    an optimizer step of them has the gradient 0.
    """
    one_step: Callable[..., dict] = trainer.training_step

    def training_step(experience: Any, kl_ctl: float, step: int, info: dict | None = None) -> dict:
        info = info or get_loss_batch_info(
            trainer.strategy,
            experience.action_mask,
            replay_buffer=trainer.replay_buffer,
            step=step,
            dynamic_batch=True,
        )
        responses = info["global_batch_size"].clamp(min=NEXT_TO_NONE)
        tokens = info["batch_num_tokens"].clamp(min=NEXT_TO_NONE)
        if tokens_each is not None:
            tokens = responses * tokens_each
        info = {**info, "global_batch_size": responses, "batch_num_tokens": tokens}
        status = one_step(experience, kl_ctl, step, info)
        if not experience.action_mask.any():  # upstream logs means over no token
            means = status["metrics"]
            means |= {name: torch.as_tensor(mean).nan_to_num() for name, mean in means.items()}
            status["num_action_tokens"] = NEXT_TO_NONE
        return status

    trainer.training_step = training_step


def load_with_flags(load: Callable[..., Any], engine: Any, *args: Any, **kwargs: Any) -> Any:
    """Upstream's `load_ckpt`, after which the optimizer has the flags of this run.

    DeepSpeed gives it those of the checkpoint's run. They are the same ones but for what
    `--js.changed` names, and for the number of steps, which the schedule of the learning rate is
    made for.
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


class PromptGroups(NaiveReplayBuffer):
    """Upstream's replay buffer with whole prompt groups as items, so that a shuffle moves groups.

    Upstream shuffles single responses, which spreads a prompt over several micro-batches.
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
                "--js.group_micro_batches: the responses to a prompt are on two ranks: make "
                "--rollout.batch_size and --data.max_samples multiples of the actor's ranks"
            )
        return group

    def collate_fn(self, batch: list[list[Any]]) -> Any:
        return super().collate_fn([item for group in batch for item in group])


@functools.wraps(get_llm_for_sequence_regression)
def load_with_scale(model_name_or_path: str, model_type: str, **settings: Any) -> Any:
    """Upstream's reward model or critic, normalised with the mean and std of its config.json.

    Upstream keeps both in buffers that are no part of the checkpoint, and fills them when the model
    is built. Transformers 5 builds it on the meta device, so that the buffers end up uninitialised:
    rewards shrink to nothing, or change their sign.
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
    """Leaves images and videos no probability as the next token, since vLLM samples none of them.

    In a response they would fail: "Image features and image tokens do not match".
    """
    tokens = torch.tensor(media_tokens(model.config))

    def hook(_: Any, __: Any, output: Any) -> None:
        logits = output["logits"]
        output["logits"] = logits.index_fill(-1, tokens.to(logits.device), FORBIDDEN)

    model.register_forward_hook(hook)


class OurPolicy(plain_class(ppo_actor.PolicyModelActor)):  # type: ignore[misc]
    """Upstream's policy actor with our additions."""

    trainer: Any
    gradient_variance: GradientVariance | None = None

    def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        ours = strategy.args.js
        train = strategy.args.train
        if ours.loss:
            strategy.args.actor.loss_agg_mode = LOSSES[ours.loss]
        strategy.load_ckpt = functools.partial(load_with_flags, strategy.load_ckpt)
        super().init_model_from_pretrained(strategy, *args, **kwargs)
        if self.actor.is_vlm:
            # is saved with the model, and must be its processor: upstream has the tokenizer
            self.tokenizer = get_tokenizer(strategy.args.actor.model_name_or_path, None)
            forbid_media(self.actor.model.module)
        if ours.group_micro_batches:
            self.trainer.replay_buffer = PromptGroups(
                train.micro_batch_size,
                strategy.args.rollout.n_samples_per_prompt,
                strategy.args.ds.packing_samples,
            )
        self._wrap_training_step(strategy.args)
        if strategy.args.ds.lora.rank > 0:
            refuse_tied(self.actor.model.module)
            if strategy.is_rank_0():
                self.actor.model.module.print_trainable_parameters()
            send_merged_weights(self.trainer)

    def _wrap_training_step(self, args: Any) -> None:
        """Replaces upstream's step on one micro-batch, each time by one around what was there."""
        # innermost, since it gives upstream's own step the denominators of its loss
        longest = args.rollout.max_new_tokens or args.data.max_len
        divide_loss(self.trainer, longest if args.js.loss == "constant" else None)
        # around it, since DeepSpeed must know before the step whether it is the optimizer's
        if args.train.dynamic_batch_enable:
            sum_dynamic_batches(self.trainer, self.trainer.actor.model, step_at=2)
        # outermost, since it looks at what the whole step has done to gradients and optimizer
        if args.js.gradient_variance:
            self.gradient_variance = GradientVariance(self.trainer, args.js.gradient_variance)

    def fit(self, kl_ctl: float = 0) -> dict[str, Any]:
        seed_step(self.strategy.args.train.seed, self.actor.model)
        status = super().fit(kl_ctl)
        measured = self.gradient_variance.metrics() if self.gradient_variance else {}
        return {**status, **measured}

    def save_checkpoint(self, tag: str, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(tag, *args, **kwargs)
        if self.strategy.is_rank_0():
            checkpoints = self.strategy.args.ckpt
            remove_old_copies(Path(checkpoints.path), tag, checkpoints.max_num)

    def is_ours(self) -> bool:
        return True


class OurCritic(plain_class(ppo_critic.CriticModelActor)):  # type: ignore[misc]
    """Upstream's critic actor with dynamic batches summed, and loaded with its scale."""

    trainer: Any

    def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        ppo_critic.get_llm_for_sequence_regression = load_with_scale
        strategy.load_ckpt = functools.partial(load_with_flags, strategy.load_ckpt)
        super().init_model_from_pretrained(strategy, *args, **kwargs)
        if strategy.args.train.dynamic_batch_enable:
            sum_dynamic_batches(self.trainer, self.trainer.critic, step_at=1)

    def fit(self) -> dict[str, Any]:
        seed_step(self.strategy.args.train.seed, self.critic)
        return super().fit()


def remove_old_copies(folder: Path, tag: str, most: int) -> None:
    """Removes all but the newest models of `--ckpt.save_hf`, `tag` among them; upstream keeps all.

    `most` of them are kept, and of those of the best evaluation one.
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
