"""The estimators in verl. Importing this file registers those that verl does not have:

    export VERL_USE_EXTERNAL_MODULES=openrlhf_js.integrations.verl
    python -m verl.trainer.main_ppo algorithm.adv_estimator=js_plus ...

A baseline of your own is registered by a module of yours: `register("path/to/mine.py:my_baseline")`
makes it `algorithm.adv_estimator=my_baseline`.

`js` is the paper's formula, whose coefficient has the factor (n-1)/n for n prompts in the batch;
the authors' own code, a fork of verl, leaves it out: its coefficient is n/(n-1) times this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, key_of
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.estimators.flat import Groups
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.integrations import check_prompts

PROMPT = "raw_prompt"  # verl's column of the prompts, as chat messages


class OutcomeAdvantage:
    """An estimator as verl calls one: tokens in, (advantages, returns) out.

    As with verl's own outcome estimators, a response's reward is the sum over its tokens, responses
    of one prompt share a uid, and every token of a response gets its advantage. Groups may differ
    in size and come in any order. A response without a token to train on is left out of all means:
    verl fills batches up with such, under a uid of their own.

    An estimator that remembers prompts needs to know them. verl's uid is new in every step, so that
    it takes the prompts themselves, where verl hands them over in `non_tensor_batch`. What is
    remembered is not in verl's checkpoints.

    `metrics` are the last batch's figures (`js/...`). verl takes nothing but advantages and returns
    from an estimator, so that it is for others to log them.
    """

    def __init__(self, name: str):
        self.metrics: dict[str, float] = {}
        self._live = LiveEstimator(name)
        self._step = 0

    @torch.no_grad()
    def __call__(
        self,
        token_level_rewards: Tensor,
        response_mask: Tensor,
        index: np.ndarray,
        non_tensor_batch: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """(responses, tokens) each of rewards and mask, and the uid of each response."""
        groups = Groups(index)
        trained = groups.pad(response_mask.any(-1), "response_mask")
        self._step += 1
        batch = self._live.batch(
            groups.pad(token_level_rewards.sum(-1), "token_level_rewards"),
            mask=trained,
            lengths=groups.pad(response_mask.sum(-1), "response_mask"),
            keys=self._keys(groups, non_tensor_batch),
            step=self._step,
        )
        check_prompts(self._live.record, batch)
        estimate = self._live.estimate(batch)
        self.metrics = self._live.describe(batch, estimate)
        self._live.learn(batch)
        flat = groups.flatten(estimate.advantages).to(token_level_rewards)
        advantages = flat[:, None] * response_mask
        return advantages, advantages

    def _keys(self, groups: Groups, columns: Mapping[str, Any] | None) -> Tensor | None:
        """(n,) keys of the prompts, where the estimator wants them."""
        if not self._live.record.needs_keys:
            return None
        if columns is None or PROMPT not in columns:
            raise ValueError(
                f"{self._live.record.name} remembers prompts, and this verl does not hand "
                f"{PROMPT} to estimators (its pull request 7473 does, with "
                f"data.return_raw_chat=True): take {RECOMMENDED}, which needs none."
            )
        keys = torch.tensor([key_of(repr(prompt)) for prompt in columns[PROMPT]])
        return groups.pad(keys, PROMPT)[:, 0].contiguous()


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
