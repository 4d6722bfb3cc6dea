"""The estimators in AReaL: `ShrinkageTrainer` takes the arguments of AReaL's `PPOTrainer`."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import Tensor

from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms
from openrlhf_js.trainers import check_settings, check_source, learn_from_ranks, tried_with

with tried_with("areal", "1.0.4"):
    from areal import PPOTrainer
    from areal.engine import FSDPPPOActor
    from areal.trainer.ppo.actor import PPOActor
    from areal.utils import stats_tracker
LINES = ('data["tot_rewards"] = rewards', 'data["loss_mask"] = loss_mask', "shifts=-1, dims=-1")
CALL = ("batched_call(self._compute_advantages,",)
check_source("areal", "1.0.4", PPOActor, {"_compute_advantages": LINES, "compute_advantages": CALL})
check_source("areal", "1.0.4", FSDPPPOActor, {"__init__": ("self.actor = PPOActor(config, self)",)})
check_source("areal", "1.0.4", PPOTrainer, {"_create_train_engine": (".as_controller(actor_",)})


class ShrinkageActor(PPOActor):
    """AReaL's actor. Each item of its data holds the responses to one prompt, one a row."""

    def __init__(self, config: Any, engine: Any):
        super().__init__(config, engine)
        check_settings(config, {"reward_norm": None, "adv_norm": None})
        self.live = LiveEstimator("js_grad")
        self.step = 0

    def compute_advantages(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.groups = [number for number, item in enumerate(data) for _ in item["input_ids"]]
        return super().compute_advantages(data)

    def _compute_advantages(self, data: dict[str, Any]) -> dict[str, Any]:
        data, self.step = super()._compute_advantages(data), self.step + 1
        written, policy = data["loss_mask"], data.get("prox_logp")  # both at the token before
        norms = squared_score_norms(data["logprobs"] if policy is None else policy, written)
        advantages, figures = learn_from_ranks(
            self.engine.data_parallel_group,
            self.live,
            self.groups,
            keys=self._keys(data["input_ids"], written),
            rewards=data["tot_rewards"].sum(1),
            lengths=written.sum(1),
            squared_score_norms=norms,
            step=self.step,
        )
        data["advantages"] = advantages[:, None].to(written) * written
        stats_tracker.scalar(**figures)
        return data

    def _keys(self, tokens: Tensor, written: Tensor) -> list[int]:
        """The key of each row's prompt: the tokens before the first that its group trains on."""
        keys: dict[int, int] = {}
        for number, row, mask in zip(self.groups, tokens.tolist(), written, strict=True):
            if number not in keys and mask.any():
                keys[number] = key_of(str(row[: int(mask.int().argmax()) + 1]))
        return [keys.get(number, 0) for number in self.groups]


class FSDPActor(FSDPPPOActor):
    """AReaL's engine with our actor; workers import it by its name."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.actor = ShrinkageActor(config, self)


class ShrinkageTrainer(PPOTrainer):
    """AReaL's trainer with our actor."""

    def _create_train_engine(self, actor_config: Any, alloc: Any) -> Any:
        check_settings(alloc, {"backend": "fsdp"})
        check_settings(self.config, {"critic": None})
        engine = super()._create_train_engine(actor_config, alloc)
        if actor_config is self.config.actor:
            engine.train_engine = FSDPActor  # what a controller starts in its workers
            engine.actor = ShrinkageActor(actor_config, engine)  # what is used without controller
        return engine

    @functools.wraps(PPOTrainer.train)
    def train(self, *args: Any, **settings: Any) -> None:
        """AReaL's method, where an agent's turns make one row and no group is left out."""
        given = inspect.signature(PPOTrainer.train).bind(self, *args, **settings).arguments
        workflow = given.get("workflow")
        if workflow is None or self._requires_proxy_workflow(workflow):
            check_settings(self.config.rollout.agent, {"export_style": "concat"})
        if given.get("dynamic_filter_fn"):
            raise ValueError("dynamic_filter_fn leaves out groups by reward: js_grad needs them.")
        super().train(*args, **settings)
