"""The actors that train policy and critic: upstream's, with what is measured and mended there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray

from openrlhf_js.plugin.errors import UpstreamMismatch
from openrlhf_js.plugin.gradient_variance import GradientVariance
from openrlhf_js.plugin.prompt_groups import PromptGroups
from openrlhf_js.plugin.upstream import plain_class


def sum_dynamic_batches(trainer: Any, engine: Any, step_at: int) -> None:
    """Lets every micro-batch of a dynamic batch count in its optimizer step.

    Upstream tells DeepSpeed that one micro-batch makes a step, and steps after several. ZeRO 1 and
    2 then take each micro-batch for the last and forget those before it, so that only the last one
    trains. Said which one is the last, every ZeRO stage sums them.

    Args:
        trainer: upstream's, of policy or critic; its `training_step` is replaced.
        engine: DeepSpeed's, of the model that it trains.
        step_at: which argument of `training_step` numbers the micro-batch.
    """
    one_step: Callable[..., dict] = trainer.training_step

    def training_step(*args: Any) -> dict:
        last = trainer.replay_buffer.dynamic_optimizer_step[args[step_at]]
        engine.set_gradient_accumulation_boundary(bool(last))
        return one_step(*args)

    trainer.training_step = training_step


def our_policy(actor_class: Any) -> Any:
    """Upstream's policy actor with ours in it; made in here so that Ray sends it by value.

    Args:
        actor_class: upstream's `@ray.remote` class.

    Returns:
        An actor class that takes the same arguments.
    """

    class OurPolicy(plain_class(actor_class)):  # type: ignore[misc]
        trainer: Any
        gradient_variance: GradientVariance | None = None

        def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
            super().init_model_from_pretrained(strategy, *args, **kwargs)
            ours, train = strategy.args.js, strategy.args.train
            if train.dynamic_batch_enable:
                sum_dynamic_batches(self.trainer, self.trainer.actor.model, step_at=2)
            if ours.group_micro_batches:
                self.trainer.replay_buffer = PromptGroups(
                    train.micro_batch_size,
                    strategy.args.rollout.n_samples_per_prompt,
                    strategy.args.ds.packing_samples,
                )
            if ours.gradient_variance:
                self.gradient_variance = GradientVariance(self.trainer, ours.gradient_variance)

        def fit(self, kl_ctl: float = 0) -> dict[str, Any]:
            status = super().fit(kl_ctl)
            return {
                **status,
                **(self.gradient_variance.metrics() if self.gradient_variance else {}),
            }

        def is_ours(self) -> bool:
            return True

    return ray.remote(num_gpus=1)(OurPolicy)


def our_critic(actor_class: Any) -> Any:
    """Upstream's critic actor with dynamic batches summed; made in here as `our_policy`.

    Args:
        actor_class: upstream's `@ray.remote` class.

    Returns:
        An actor class that takes the same arguments.
    """

    class OurCritic(plain_class(actor_class)):  # type: ignore[misc]
        trainer: Any

        def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
            super().init_model_from_pretrained(strategy, *args, **kwargs)
            if strategy.args.train.dynamic_batch_enable:
                sum_dynamic_batches(self.trainer, self.trainer.critic, step_at=1)

    return ray.remote(num_gpus=1)(OurCritic)


def confirm(group: Any) -> None:
    """Makes sure that the actors that train the policy are ours.

    Args:
        group: upstream's `RayActorGroup`.

    Raises:
        UpstreamMismatch: they are not, so that flags of ours would do nothing.
    """
    if not all(hasattr(actor, "is_ours") for actor in group._actor_handlers):
        raise UpstreamMismatch("the actors that train the policy are not those of openrlhf_js")
