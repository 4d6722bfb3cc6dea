"""Reward model training: repairs where OpenRLHF 0.11.2 does not do what it says.

- Gradients accumulate across epochs, but its count of updates per epoch is rounded down: with 100
  pairs in batches of 64 it counts 1 update, not 100/64. So the learning rate schedule ends too
  early, and most schedules then rise again; and a resumed run leaves out pairs.
- With LoRA it saves the adapter without the weights of the value head, which are drawn at a run's
  start and stored nowhere else. Here the merged model is saved.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import deepspeed  # type: ignore[import-untyped]
import torch
from openrlhf.trainer.rm_trainer import RewardModelTrainer
from openrlhf.utils.deepspeed import DeepspeedStrategy

from openrlhf_js.trainers.openrlhf.learner.lora import adapted_layers, merged_weight


class RewardStrategy(DeepspeedStrategy):  # type: ignore[misc]
    """Upstream's strategy with a schedule that ends with the last update, and merged models."""

    train_batches: int  # micro-batches of an epoch, on each rank
    updates: int  # of the whole run

    def setup_dataloader(
        self,
        dataset: Any,
        batch_size: int,
        pin_memory: bool = False,
        shuffle: bool = True,
        *more: Any,
        **settings: Any,
    ) -> Any:
        """Upstream's loader; only the training pairs' loader shuffles, and it is counted here."""
        loader = super().setup_dataloader(
            dataset, batch_size, pin_memory, shuffle, *more, **settings
        )
        if shuffle:
            self.train_batches = len(loader)
        return loader

    def prepare(self, model_and_config: tuple[Any, dict[str, Any]]) -> Any:
        """Upstream's engine, optimizer and schedule, for the number of updates really made."""
        model, config = model_and_config
        micro_batches = self.train_batches * self.args.train.max_epochs
        self.updates = micro_batches // self.accumulated_gradient
        return super().prepare((model, config | {"scheduler_steps": self.updates}))

    def save_model(self, model: Any, tokenizer: Any, output_dir: str, **settings: Any) -> None:
        """Saves the model with its value head; with an adapter, the merged model."""
        if self.args.ds.lora.rank == 0:
            super().save_model(model, tokenizer, output_dir, **settings)
            return
        adapted = self._unwrap_model(model)
        sharded = self.stage == 3
        state = model._consolidated_16bit_state_dict() if sharded else adapted.state_dict()
        merged = _merged_weights(adapted, sharded)
        if self.is_rank_0():
            plain = {
                name.removeprefix("base_model.model.").replace(".base_layer.", "."): weight
                for name, weight in state.items()
                if ".lora_" not in name
            }
            adapted.get_base_model().save_pretrained(output_dir, state_dict=plain | merged)
            tokenizer.save_pretrained(output_dir)
        torch.distributed.barrier()


@torch.no_grad()
def _merged_weights(model: Any, sharded: bool) -> dict[str, torch.Tensor]:
    """The merged weights of the adapted layers, by their names in the base model."""
    merged = {}
    for name, layer in adapted_layers(model).items():
        with deepspeed.zero.GatheredParameters(list(layer.parameters()), enabled=sharded):
            merged[f"{name}.weight"] = merged_weight(layer).cpu()
    return merged


class RewardTrainer(RewardModelTrainer):  # type: ignore[misc]
    """Upstream's trainer, which resumes at the pair after the last one that it trained on."""

    def fit(self, args: Any, consumed_samples: int, whole_updates: int) -> None:
        """Trains; `whole_updates` is upstream's count of an epoch's updates, rounded down."""
        self.whole_updates = whole_updates
        if args.eval.steps == -1:
            args.eval.steps = whole_updates
        # upstream finds the epoch and the place in it with // and %, which are exact for fractions
        updates = Fraction(self.strategy.train_batches, self.strategy.accumulated_gradient)
        is_done = consumed_samples // args.train.batch_size == self.strategy.updates
        if is_done and self.eval_dataloader:  # nothing else sets the mean and std that are saved
            self.evaluate(self.eval_dataloader, self.strategy.updates)
        super().fit(args, consumed_samples, updates)

    def save_logs_and_checkpoints(
        self, args: Any, global_step: int, *more: Any, **settings: Any
    ) -> None:
        """Upstream's, and an evaluation after the last update, which sets the mean and std."""
        last = global_step == self.strategy.updates
        # upstream evaluates at multiples of this
        self.num_update_steps_per_epoch = global_step if last else self.whole_updates
        super().save_logs_and_checkpoints(args, global_step, *more, **settings)
