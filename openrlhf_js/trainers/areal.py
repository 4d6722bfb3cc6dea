"""The estimators in AReaL: `ShrinkageTrainer` takes the arguments of AReaL's `PPOTrainer`."""

from __future__ import annotations

from typing import Any

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
        self.live, self.step = LiveEstimator("js_grad"), 0

    def compute_advantages(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.groups = [number for number, item in enumerate(data) for _ in item["input_ids"]]
        return super().compute_advantages(data)

    def _compute_advantages(self, data: dict[str, Any]) -> dict[str, Any]:
        data, self.step = super()._compute_advantages(data), self.step + 1
        written, policy = data["loss_mask"], data.get("prox_logp")  # both at the token before
        norms = squared_score_norms(data["logprobs"] if policy is None else policy, written)
        starts = zip(data["input_ids"].tolist(), written.argmax(1) + 1, strict=True)
        advantages, figures = learn_from_ranks(
            self.engine.data_parallel_group,
            self.live,
            self.groups,
            keys=[key_of(str(tokens[:start])) for tokens, start in starts],
            rewards=data["tot_rewards"].sum(1),
            lengths=written.sum(1),
            squared_score_norms=norms,
            step=self.step,
        )
        data["advantages"] = advantages[:, None].to(written) * written
        stats_tracker.scalar(**figures)
        return data


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

    def train(self, workflow: Any = None, **settings: Any) -> None:
        """AReaL's method, where an agent's turns make one row and no group is left out."""
        if workflow is None or self._requires_proxy_workflow(workflow):
            check_settings(self.config.rollout.agent, {"export_style": "concat"})
        if settings.get("dynamic_filter_fn"):
            raise ValueError("dynamic_filter_fn leaves out groups by reward: js_grad needs them.")
        super().train(workflow, **settings)
