"""The experience maker that subtracts our baselines in place of upstream's.

Upstream computes, on the controller and over the whole rollout batch: length penalties, the
baseline, per-token KL, returns, whitening. Upstream's own estimators still run upstream's code.
Ours take the penalised rewards, and upstream's per-token KL is then applied to their advantages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openrlhf.models.utils import compute_reward
from openrlhf.trainer.ppo_utils.experience_maker import (
    RemoteExperienceMaker,
    apply_length_penalties,
)

from openrlhf_js.estimators import Batch, make_batch, squared_score_norms
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.trainers.openrlhf.flags import means_over_tokens
from openrlhf_js.trainers.openrlhf.memory import keep_memory, resume_memory, start_estimator
from openrlhf_js.trainers.openrlhf.records import Sample
from openrlhf_js.trainers.openrlhf.upstream import BadInput, BadReward


class ShrinkageExperienceMaker(RemoteExperienceMaker):  # type: ignore[misc]
    """Upstream's experience maker with the estimators of `openrlhf_js.estimators`.

    `batch` is the last rollout batch, and `metrics` are its diagnostics (`js/...`). `estimator` is
    our live one, or our estimator with the same baseline as upstream's live one; None if we have
    no such estimator.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.live_estimator: str = self.args.algo.advantage.estimator
        self.is_ours = in_training(self.live_estimator).is_ours
        self.estimator = start_estimator(self.args)
        self.step = 0  # the number of the last rollout batch
        self.batch: Batch | None = None
        self.metrics: dict[str, float] = {}
        self._said_clipped = False

    @classmethod
    def like(cls, maker: RemoteExperienceMaker) -> ShrinkageExperienceMaker:
        """Our maker in place of the one that upstream's trainer has just made."""
        return cls(
            actor_model_group=maker.actor_model_group,
            critic_model_group=maker.critic_model_group,
            reward_model_group=maker.reward_model_group,
            initial_model_group=maker.initial_model_group,
            kl_controller=maker.kl_ctl,
            strategy=maker.strategy,
            tokenizer=maker.tokenizer,
        )

    def keep(self, states: dict[str, Any]) -> None:
        """Adds what the estimator remembers to the states of a checkpoint."""
        keep_memory(states, self.estimator, self.args)

    def resume(self, states: dict[str, Any]) -> None:
        """Resumes from the states of a checkpoint; a new run has the states of step 0.

        Raises BadInput if they do not fit the estimator.
        """
        self.step = states["global_step"]
        if self.step:
            resume_memory(states, self.estimator, self.args)

    def split_rollout_samples(self, rollout_samples: list[Sample]) -> list[Sample]:
        """Upstream's micro-batches, with the outcomes of their responses."""
        _fill_gaps(rollout_samples)
        return [
            Sample.of(
                micro_batch,
                [rollout_samples[number].outcomes[0] for number in micro_batch.index],
            )
            for micro_batch in super().split_rollout_samples(rollout_samples)
        ]

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Sample]) -> list[Sample]:
        """Upstream's step, with our baseline in place of upstream's where the estimator is ours.

        Raises BadReward if a reward is not finite or, with masking, if too many are not, and
        BadInput for rewards that the estimator does not take.
        """
        self.step += 1
        order = PromptOrder(experiences, self.args.rollout.n_samples_per_prompt)
        valid = self._valid(order)
        norms = order.gather(self._squared_score_norms(experiences))
        if self.is_ours:
            self._penalise(experiences)
        else:
            super().compute_advantages_and_returns(experiences)
        rewards = order.gather([e.rewards for e in experiences])
        make = make_batch if self.estimator is None else self.estimator.batch
        try:
            self.batch = make(
                rewards,
                mask=valid,
                lengths=order.gather([e.action_mask.sum(1) for e in experiences]),
                squared_score_norms=norms,
                greedy_rewards=order.greedy_rewards(),
                keys=order.prompt_keys(),
                step=self.step,
            )
        except ValueError as error:  # of rewards that the estimator does not take
            raise BadInput(f"--algo.advantage.estimator: {error}") from error
        self.metrics = self._estimate(self.batch, order, rewards)
        if self.args.js.save_batches:
            path = Path(self.args.js.save_batches, f"batch_{self.step:06d}.npz")
            save_batch(path, self.live_estimator, self.batch, order)
        return experiences

    def _estimate(
        self, batch: Batch, order: PromptOrder, rewards: torch.Tensor
    ) -> dict[str, float]:
        """Trains on our advantages, where the estimator is ours, and returns what is logged."""
        estimator = self.estimator
        if estimator is None:
            return {}
        if not self.is_ours and estimator.record.lacks(*batch.rewards.shape):
            return {}  # upstream's own estimator still runs
        estimate = estimator.estimate(batch)
        metrics = estimator.describe(batch, estimate)
        self._say_clipped(estimate.advantages)
        if self.is_ours:
            self._spread(order, rewards, estimate.advantages.float(), batch.mask)
            estimator.learn(batch)  # last: the advantages may use only earlier steps
        return metrics

    def _penalise(self, experiences: list[Sample]) -> None:
        """Applies upstream's length penalties to rewards in at least float32, as upstream does."""
        for experience in experiences:
            dtype = torch.promote_types(experience.rewards.dtype, torch.float32)
            experience.rewards = experience.rewards.to(dtype)
        apply_length_penalties(experiences, self.args)

    def _squared_score_norms(self, experiences: list[Sample]) -> list[torch.Tensor]:
        """(b,) per experience: squared score norms, as the loss weighs its responses.

        Raises BadReward for a policy whose log-probabilities are not numbers.
        """
        norms = [
            squared_score_norms(
                experience.action_log_probs,
                experience.action_mask,
                mean_over_tokens=means_over_tokens(self.args),
            )
            for experience in experiences
        ]
        if not torch.cat(norms).isfinite().all():
            raise BadReward(
                f"the policy's log-probabilities are not finite in step {self.step}: it has "
                "diverged; resume an earlier checkpoint at a lower --actor.adam.lr"
            )
        return norms

    def _spread(
        self,
        order: PromptOrder,
        rewards: torch.Tensor,
        advantages: torch.Tensor,
        valid: torch.Tensor,
    ) -> None:
        """Sets each experience's per-token advantages and logs, as upstream does for rloo.

        Responses that are not `valid` (n, m) get no action tokens and so drop out of the loss.
        """
        for experience, advantage in order.parts(advantages):
            token_rewards = compute_reward(
                advantage,
                self.kl_ctl.value,
                experience.kl,
                action_mask=experience.action_mask,
                reward_clip_range=self.args.reward.clip_range,
            )
            masked = experience.action_mask * token_rewards
            # the sum from each token on, without upstream's loop over tokens
            experience.returns = masked.flip(1).cumsum(1).flip(1)
            experience.advantages = experience.returns.clone()
            experience.info["return"] = token_rewards.sum(dim=-1)
            experience.kl = None
        _log_rewards(order, rewards)
        for experience, keep in order.parts(valid):
            experience.advantages = experience.advantages * keep.unsqueeze(1)
            experience.returns = experience.returns * keep.unsqueeze(1)
            experience.action_mask = experience.action_mask * keep.unsqueeze(1)

    def _say_clipped(self, advantages: torch.Tensor) -> None:
        """Prints once, at the first step where upstream clips advantages, the share it clips."""
        low, high = self.args.reward.clip_range
        share = ((advantages < low) | (advantages > high)).double().mean().item()
        if share == 0 or self._said_clipped:
            return
        self._said_clipped = True
        print(
            f"openrlhf_js: {share:.2%} of the advantages of step {self.step} are beyond "
            f"--reward.clip_range {low:g} {high:g} and are cut to it: scale the rewards, or give a "
            "wider range",
            flush=True,
        )

    def _valid(self, order: PromptOrder) -> torch.Tensor:
        """(n, m) bool: responses with a finite reward and, if needed, a finite greedy reward.

        Raises BadReward with the first error if a step has more invalid responses than allowed.
        """
        rewards = order.gather([e.rewards for e in order.experiences])
        valid = rewards.isfinite()
        greedy_rewards = order.greedy_rewards()
        if greedy_rewards is not None:
            valid &= greedy_rewards.isfinite().unsqueeze(1)
        bad = int((~valid).sum())
        share = bad / valid.numel()
        allowed = 0.0
        if self.args.js.on_bad_reward == "mask":
            allowed = self.args.js.max_masked_share
        if share == 0 or (share < 1 and share <= allowed):
            return valid
        raise BadReward(
            f"{bad:,} of a step's {valid.numel():,} responses have no reward "
            "(--js.on_bad_reward mask leaves them out, up to --js.max_masked_share). "
            f"The first: {order.first_error() or 'the greedy one'}"
        )


class PromptOrder:
    """Moves values between upstream's list of experiences and a (prompts, responses) tensor."""

    def __init__(self, experiences: list[Sample], responses: int):
        self.experiences = experiences
        self._responses = responses
        index = [number for e in experiences for number in e.index]
        outcomes = [outcome for e in experiences for outcome in e.outcomes]
        self._index = torch.tensor(index)
        self._outcomes = [outcomes[place] for place in np.argsort(index)]
        self._of_prompts = self._outcomes[::responses]

    def gather(self, values: list[torch.Tensor]) -> torch.Tensor:
        """(n, m) in prompt order, from one (b,) tensor per experience."""
        flat = torch.cat([value.flatten() for value in values])
        ordered = torch.empty_like(flat)
        ordered[self._index] = flat
        return ordered.reshape(-1, self._responses)

    def parts(self, values: torch.Tensor) -> Iterator[tuple[Sample, torch.Tensor]]:
        """Yields every experience with its (b,) part of an (n, m) tensor in prompt order."""
        sizes = [len(experience.index) for experience in self.experiences]
        parts = values.reshape(-1)[self._index].split(sizes)
        for experience, part in zip(self.experiences, parts, strict=True):
            yield experience, part.clone()  # with a view, Ray would send the whole batch

    def prompt_keys(self) -> torch.Tensor:
        """(n,) keys of the prompts."""
        return torch.tensor([outcome.prompt_key for outcome in self._of_prompts])

    def greedy_rewards(self) -> torch.Tensor | None:
        """(n,) greedy rewards of the prompts; None if none were asked for."""
        if self._outcomes[0].greedy_reward is None:
            return None
        return torch.tensor([outcome.greedy_reward for outcome in self._of_prompts])

    def first_error(self) -> str | None:
        """Why the first masked response has no reward; for a reward model in Ray, the reward that
        is not finite, and its prompt."""
        errors = {}
        for experience in self.experiences:
            rewards = experience.rewards.tolist()
            for row, number in enumerate(experience.index):
                error = experience.outcomes[row].error
                if error is None and not math.isfinite(rewards[row]):
                    error = f"{rewards[row]} (prompt {experience.prompts[row][-400:]!r})"
                if error is not None:
                    errors[number] = error
        return errors[min(errors)] if errors else None


def _log_rewards(order: PromptOrder, rewards: torch.Tensor) -> None:
    """Sets what upstream logs of the rewards (n, m); non-finite ones count as the mean."""
    known = rewards.isfinite()
    mean = rewards[known].mean().item()
    for experience, reward in order.parts(rewards.where(known, mean)):
        experience.info["reward"] = reward
    if rewards.shape[1] > 1:
        statistics = checked_statistics(rewards.where(known, 0.0).double(), known)
        deviation = statistics.reward_variance.sqrt().unsqueeze(1).expand_as(rewards).float()
        for experience, group_deviation in order.parts(deviation):
            experience.info["group_reward_std"] = group_deviation


def _fill_gaps(samples: list[Sample]) -> None:
    """Gives all samples of a batch the fields that upstream needs in every sample.

    If some samples lack a logged value (masked, or of another task), they get the mean of the
    others.
    """
    if any(sample.scores is not None for sample in samples):
        for sample in samples:
            if sample.scores is None:
                sample.scores = torch.tensor([math.nan])
    names = set().union(*(sample.info for sample in samples))
    for name in names:
        known = [sample.info[name] for sample in samples if name in sample.info]
        mean = torch.cat(known).float().mean(0, keepdim=True)
        for sample in samples:
            sample.info.setdefault(name, mean)


def save_batch(path: Path, estimator: str, batch: Batch, order: PromptOrder) -> None:
    """Writes the .npz file of a rollout batch of n prompts with m responses.

    It holds `rewards`, `valid`, `squared_score_norms` and `prompts` (n, m); `advantages` (n, m) of
    each response's last token (the same for every token if the reward has no KL); `tokens`, all
    prompts with their responses concatenated, of `lengths` (n, m) tokens each;
    `greedy_rewards` (n,), empty where there are none; and the `estimator`.
    """
    advantages = []
    texts: dict[int, str] = {}
    tokens: dict[int, np.ndarray] = {}
    for experience in order.experiences:
        mask = experience.action_mask
        last = mask.shape[1] - 1 - mask.long().fliplr().argmax(1, keepdim=True)
        advantages.append(experience.advantages.gather(1, last))
        for row, number in enumerate(experience.index):
            real = experience.attention_mask[row].bool()
            tokens[number] = experience.sequences[row][real].numpy().astype(np.int32)
            texts[number] = experience.prompts[row]
    in_order = sorted(tokens)
    shape = batch.rewards.shape
    assert batch.squared_score_norms is not None
    greedy_rewards = np.zeros(0)
    if batch.greedy_rewards is not None:
        greedy_rewards = batch.greedy_rewards.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        estimator=estimator,
        rewards=order.gather([e.rewards for e in order.experiences]).numpy(),
        valid=batch.mask.numpy(),
        squared_score_norms=batch.squared_score_norms.numpy(),
        greedy_rewards=greedy_rewards,
        prompts=np.array([texts[number] for number in in_order]).reshape(shape),
        tokens=np.concatenate([tokens[number] for number in in_order]),
        lengths=np.array([len(tokens[number]) for number in in_order]).reshape(shape),
        advantages=order.gather(advantages).float().numpy(),
    )
