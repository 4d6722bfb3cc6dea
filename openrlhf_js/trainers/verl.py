"""The estimators in verl. Importing this file registers those that verl does not have:

    export VERL_USE_EXTERNAL_MODULES=openrlhf_js.trainers.verl
    python -m verl.trainer.main_ppo algorithm.adv_estimator=js_grad ...

Register your own baseline in a module of yours: `register("path/to/mine.py:my_baseline")` makes it
`algorithm.adv_estimator=my_baseline`.

`js` is the paper's formula, whose coefficient has the factor (n-1)/n for n prompts in the batch;
the authors' own code, a fork of verl, leaves it out: its coefficient is n/(n-1) times this one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo import ray_trainer
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, squared_score_norms
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.trainers import learn_from, prompt_key

PROMPT = "raw_prompt"  # verl's column of the prompts, as chat messages
LOG_PROBS = "old_log_probs"  # verl's column of the policy's log-probabilities, before the update
# Policy losses that divide a response by its number of tokens whatever `loss_agg_mode` says.
LOSSES_OF_MEANS = ("sapo", "geo_mean")


class OutcomeAdvantage:
    """An estimator with verl's interface: token rewards in, (advantages, returns) out.

    As with verl's own outcome estimators, a response's reward is the sum over its tokens, responses
    of one prompt share a uid, and every token of a response gets its advantage. Groups may differ
    in size and come in any order. A response without a token to train on is left out of all means:
    verl pads batches with such responses, under a uid of their own.

    Weights come from `old_log_probs`. Prompts are identified by `raw_prompt`, as verl's uid is new
    in every step. verl passes neither to estimators that it does not know by name; both are read
    from the batch that its `compute_advantage` works on. This module wraps that function, so it
    must be imported before verl's trainers; otherwise an estimator that reads the batch raises
    RuntimeError. The v1 trainers leave `raw_prompt` in their queue, from which it is fetched.
    Without `old_log_probs` all weights are 1, with a warning. Without `raw_prompt` an estimator
    remembers no single prompt, and one that needs them raises ValueError. verl's checkpoints do not
    hold the memory.

    `metrics` are the last batch's figures (`js/...`). verl takes only advantages and returns from
    an estimator, so the caller must log them.
    """

    def __init__(self, name: str):
        self.metrics: dict[str, float] = {}
        self._live = LiveEstimator(name)
        self._step = 0

    def __call__(
        self,
        token_level_rewards: Tensor,
        response_mask: Tensor,
        index: np.ndarray,
        config: Any = None,
        **given: Any,
    ) -> tuple[Tensor, Tensor]:
        """Takes rewards and mask, (responses, tokens) each, the uid of each response, and verl's
        `algorithm` settings, which must not drop groups by their rewards (DAPO)."""
        self.check(config)
        columns = self._columns(given)
        norms = None
        if self._live.record.reads_score_norms and LOG_PROBS in columns:
            norms = squared_score_norms(
                columns[LOG_PROBS], response_mask, mean_over_tokens=_means_over_tokens(config)
            )
        self._step += 1
        of_responses, self.metrics = learn_from(
            self._live,
            [(self._step, uid) for uid in index.tolist()],
            rewards=token_level_rewards.sum(-1),
            lengths=response_mask.sum(-1),
            squared_score_norms=norms,
            keys=self._keys(columns, index.tolist()),
            step=self._step,
        )
        advantages = of_responses.to(token_level_rewards)[:, None] * response_mask
        return advantages, advantages

    def check(self, config: Any) -> None:
        """Raises ValueError for settings of verl's `algorithm` that bias the gradient."""
        filtering = config.get("filter_groups") if config is not None else None
        if filtering and filtering.enable:
            raise ValueError(
                "algorithm.filter_groups drops groups of equal rewards. They have no gradient "
                f"under rloo but teach under {self._live.record.name}, so dropping them biases the "
                "gradient: leave it out."
            )

    def _keys(self, columns: Mapping[str, Any], uids: Sequence[Any]) -> list[int] | None:
        """The key of each response's prompt; None if no prompt is remembered or known."""
        if not self._live.record.remembers_prompts:
            return None
        if PROMPT in columns:
            prompts = dict(zip(uids, columns[PROMPT], strict=True))  # images take long
            keys = {uid: prompt_key(prompt) for uid, prompt in prompts.items()}
            return [keys[uid] for uid in uids]
        if self._live.record.needs_keys:
            raise ValueError(
                f"{self._live.record.name} remembers prompts, and this trainer's batch has no "
                f"{PROMPT}: take {RECOMMENDED}, which does without."
            )
        return None

    def _columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The batch's columns, by name.

        They come from the arguments `batch` and `non_tensor_batch` if verl or another trainer
        passes them, otherwise from the batch that `compute_advantage` works on.
        """
        handed = {**given.get("batch", {}), **given.get("non_tensor_batch", {})}
        if handed:
            return handed
        data = _batch.get()
        record = self._live.record
        if data is not None:
            columns = {**data.batch, **data.non_tensor_batch}
            fetch = _fetch_prompts.get()
            if fetch is not None and record.remembers_prompts and PROMPT not in columns:
                columns[PROMPT] = fetch()
            return columns
        if record.reads_score_norms or record.remembers_prompts:
            raise RuntimeError(
                f"{record.name} reads {LOG_PROBS} and {PROMPT}, and verl's compute_advantage was "
                f"imported before {__name__}: name this module in VERL_USE_EXTERNAL_MODULES"
            )
        return {}


# The batch that verl's `compute_advantage` is working on, which it does not pass to estimators
_batch: ContextVar[DataProto | None] = ContextVar("batch", default=None)


def _with_batch(compute_advantage: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps verl's `compute_advantage`, so that estimators can read its batch.

    It is not needed once verl passes `batch` and `non_tensor_batch` to every estimator, as it does
    for GDPO.
    """

    @functools.wraps(compute_advantage)
    def call(data: DataProto, *args: Any, **settings: Any) -> Any:
        token = _batch.set(data)
        try:
            return compute_advantage(data, *args, **settings)
        finally:
            _batch.reset(token)

    return call


# Returns the prompts of the batch that a v1 trainer is working on
_fetch_prompts: ContextVar[Callable[[], list[Any]] | None] = ContextVar("prompts", default=None)


def _prepare_v1_trainers() -> None:
    """Lets the v1 trainers, verl's default, check the settings at start and log our figures, and
    estimators fetch the prompts of a batch, which are in verl's queue under the keys of its
    responses."""
    try:
        import transfer_queue
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    except ImportError:  # what the v1 trainers need is not installed
        return
    start = PPOTrainer.__init__
    compute_advantage = PPOTrainer._compute_advantage

    @functools.wraps(start)
    def checked_start(self: Any, config: Any) -> None:
        estimator = ADV_ESTIMATOR_REGISTRY.get(config.algorithm.adv_estimator)
        if isinstance(estimator, OutcomeAdvantage):
            estimator.check(config.algorithm)
        start(self, config)

    @functools.wraps(compute_advantage)
    def with_prompts(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        def fetch() -> list[Any]:
            found = transfer_queue.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=[PROMPT]
            )
            return list(found[PROMPT])

        token = _fetch_prompts.set(fetch)
        try:
            computed = compute_advantage(self, batch, metrics)
        finally:
            _fetch_prompts.reset(token)
        estimator = ADV_ESTIMATOR_REGISTRY.get(self.config.algorithm.adv_estimator)
        if isinstance(estimator, OutcomeAdvantage):
            metrics.update(estimator.metrics)
        return computed

    PPOTrainer.__init__ = checked_start
    PPOTrainer._compute_advantage = with_prompts


# verl's other trainers import it from there, later
ray_trainer.compute_advantage = _with_batch(ray_trainer.compute_advantage)
_prepare_v1_trainers()


def _means_over_tokens(config: Any) -> bool:
    """Whether the loss divides each response by its number of tokens.

    Estimators get the settings of the algorithm; those of the loss lie beside them. If the former
    come alone, the loss is assumed to be verl's default, a mean over the tokens of all responses.
    """
    if not isinstance(config, DictConfig):
        return False
    try:
        actor = OmegaConf.select(config, "..actor_rollout_ref.actor")
    except ConfigKeyError:  # they are not part of larger settings
        return False
    if actor is None:
        return False
    mean_by_name = OmegaConf.select(actor, "policy_loss.loss_mode") in LOSSES_OF_MEANS
    return mean_by_name or actor.loss_agg_mode == "seq-mean-token-mean"


def register(name: str) -> Callable[..., Any]:
    """Registers an estimator of ours, or `FILE.py:NAME` under NAME, and returns it."""
    own_baseline = parse_own(name)
    estimator = OutcomeAdvantage(name)
    register_adv_est(name if own_baseline is None else own_baseline.name)(estimator)
    return estimator


for record in ESTIMATORS.values():
    known = record.upstream or record.name in ADV_ESTIMATOR_REGISTRY
    if not (known or record.needs_greedy or record.needs_shrinkage):
        register(record.name)
