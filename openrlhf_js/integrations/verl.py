"""The estimators in verl. Importing this file registers `js`, `js_plus`, `js1` and `bloo`:

    export VERL_USE_EXTERNAL_MODULES=openrlhf_js.integrations.verl
    python -m verl.trainer.main_ppo algorithm.adv_estimator=js ...

`js` is the paper's formula, whose coefficient has the factor (n-1)/n for n prompts in the batch;
the authors' own code, a fork of verl, leaves it out: its coefficient is n/(n-1) times this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from openrlhf_js.estimators import ESTIMATORS, advantage

NAMES = [  # those that need nothing but rewards, and that verl does not have
    name
    for name, record in ESTIMATORS.items()
    if not (record.upstream or record.needs_greedy or record.needs_shrinkage or record.remembers)
    and name != "reinforce"
]


def outcome_advantage(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the estimator as verl calls one: tokens in, (advantages, returns) out.

    As with verl's own outcome estimators, a response's reward is the sum over its tokens, responses
    of one prompt share a uid, and every token of a response gets its advantage. Groups may differ
    in size and come in any order. A response without a token to train on is left out of all means:
    verl fills batches up with such, under a uid of their own.
    """

    @torch.no_grad()
    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """(responses, tokens) each of rewards and mask, and the uid of each response."""
        outcome = token_level_rewards.sum(-1)
        prompt, sizes = np.unique(index, return_inverse=True, return_counts=True)[1:]
        place = np.empty_like(prompt)
        place[prompt.argsort(kind="stable")] = np.concatenate([np.arange(size) for size in sizes])
        rewards = outcome.new_zeros(len(sizes), sizes.max())
        rewards[prompt, place] = outcome
        mask = torch.zeros_like(rewards, dtype=torch.bool)
        mask[prompt, place] = response_mask.any(-1)
        advantages = advantage(name, rewards, mask=mask)[prompt, place, None] * response_mask
        return advantages, advantages

    return estimate


for name in NAMES:
    register_adv_est(name)(outcome_advantage(name))
