"""The estimators in SkyRL: `python -m skyrl.train.entrypoints.main_base` with two more flags.

trainer.override_entrypoint=openrlhf_js.trainers.skyrl trainer.algorithm.advantage_estimator=js_grad
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

import torch

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, squared_score_norms
from openrlhf_js.trainers import check_settings, check_source, learn_from, tried_with

with tried_with("skyrl", "0.4.0"):
    import ray
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry
    from skyrl.train.entrypoints import main_base
    from skyrl.train.trainer import RayPPOTrainer
METHOD = "compute_advantages_and_returns"
LINES = ("last_step_advantages[traj_ids]", 'metadata["uids"]', "self.all_metrics.update(")
check_source("skyrl", "0.4.0", RayPPOTrainer, {METHOD: LINES, "train": (f"self.{METHOD}(",)})
NEEDED = {
    "zero_variance_filter": False,
    "dynamic_sampling.type": None,
    "advantage_batch_normalize": False,
}
_advantages: ContextVar[torch.Tensor] = ContextVar("advantages")  # (trajectories,), for `_spread`


class ShrinkageTrainer(RayPPOTrainer):
    """SkyRL's trainer; with another one: `class Yours(ShrinkageTrainer, OtherTrainer)`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.live = LiveEstimator(self.cfg.trainer.algorithm.advantage_estimator)
        check_settings(self.cfg.trainer.algorithm, NEEDED)

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """SkyRL's method, which gives a trajectory's advantage to all its steps and tokens."""
        last = torch.tensor(data.metadata.get("is_last_step") or [True] * len(data["rewards"]))
        written, log_probs = data["loss_mask"], data["action_log_probs"]
        if log_probs is None:  # the loss does without the policy's own
            log_probs = data["rollout_logprobs"]
        means = self.cfg.trainer.algorithm.loss_reduction == "sequence_mean"
        advantages, figures = learn_from(
            self.live,
            data.metadata["uids"],
            rewards=data["rewards"].sum(1),
            lengths=written.sum(1),  # 0 for padding
            squared_score_norms=squared_score_norms(log_probs, written, mean_over_tokens=means),
            step=self.global_step,
            responses=(last.cumsum(0) - last.long()).tolist(),
        )
        self.all_metrics.update(figures)
        _advantages.set(advantages[last])
        return super().compute_advantages_and_returns(data)


def _spread(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    advantages = _advantages.get()[:, None].to(token_level_rewards) * response_mask
    return advantages, advantages


for name in set(ESTIMATORS) - set(AdvantageEstimatorRegistry.list_available()):
    if not (ESTIMATORS[name].needs_greedy or ESTIMATORS[name].needs_shrinkage):
        AdvantageEstimatorRegistry.register(name, _spread)


class Experiment(main_base.BasePPOExp):
    """SkyRL's, with our trainer."""

    get_trainer = staticmethod(ShrinkageTrainer)


def main() -> None:
    """SkyRL's own `main` calls it."""
    flags = [flag for flag in sys.argv[1:] if not flag.startswith("trainer.override_entrypoint=")]
    cfg = main_base.SkyRLTrainConfig.from_cli_overrides(flags)
    main_base.validate_cfg(cfg)
    main_base.initialize_ray(cfg)
    ray.get(ray.remote(num_cpus=1)(lambda: Experiment(cfg).run()).remote())
