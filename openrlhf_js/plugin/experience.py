"""The experience maker that subtracts our baselines, between upstream's steps that surround them.

Upstream computes, on the controller and over the whole rollout batch: length penalties, the
baseline, per-token KL, returns, whitening. Its own estimators run its own code here, too. Ours take
the penalised rewards, and their advantages go on through upstream's per-token KL.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openrlhf.datasets import PromptDataset
from openrlhf.models.utils import compute_reward
from openrlhf.trainer.ppo_utils import experience_maker
from openrlhf.trainer.ppo_utils.experience_maker import (
    RemoteExperienceMaker,
    apply_length_penalties,
)

from openrlhf_js.common.labels import label_text
from openrlhf_js.estimators import LiveEstimator, squared_score_norms
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.plugin.checks.rewards import grades_with_our_task
from openrlhf_js.plugin.flags import means_over_tokens
from openrlhf_js.plugin.memory import keys_of, start_estimator
from openrlhf_js.plugin.prompts import Room, describe_long, measure, misfits
from openrlhf_js.plugin.rollout import GREEDY_REWARD
from openrlhf_js.plugin.selection import PromptSelector
from openrlhf_js.plugin.upstream import BadReward
from openrlhf_js.sampling.prompts import sourced

logger = logging.getLogger(__name__)


class ShrinkageExperienceMaker(RemoteExperienceMaker):
    """Upstream's experience maker with the estimators of `openrlhf_js.estimators`.

    `metrics` are the last rollout batch's diagnostics (`js/...`), for the trainer to log, and
    `step` is that batch's number, which the trainer sets. `estimator` is the live one of ours, or
    the one with the baseline of upstream's; None where upstream's has none like it.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.live_estimator: str = self.args.algo.advantage.estimator
        self.is_ours = in_training(self.live_estimator).is_ours
        self.metrics: dict[str, float] = {}
        self.step = 0
        self.estimator = start_estimator(self.args, self.tokenizer)
        self.selector: PromptSelector | None = None  # of `start_selection`
        self._greedy_rewards: torch.Tensor | None = None
        self._error: str | None = None  # of the first masked response
        self._clipped: list[torch.Tensor] | None = []  # of a step, each (b,); None once said
        # where upstream's estimators clip
        experience_maker.compute_reward = functools.update_wrapper(
            functools.partial(self._compute_reward), compute_reward
        )

    def make_experience_batch(self, rollout_samples: list[Any]) -> list[Any]:
        """Upstream's step, on samples that all have the same fields."""
        _fill_gaps(rollout_samples)
        errors = (getattr(sample, "error", None) for sample in rollout_samples)
        self._error = next(filter(None, errors), None)
        # popped, so that nothing else averages over them
        greedy = [sample.info.pop(GREEDY_REWARD, None) for sample in rollout_samples]
        if self.live_estimator == "remax":  # (n,): every response of a group has the same one
            every = self.args.rollout.n_samples_per_prompt
            self._greedy_rewards = torch.cat(greedy[::every]).float()
        return super().make_experience_batch(rollout_samples)

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
        """Upstream's step, with our baseline in place of upstream's where the estimator is ours.

        Raises BadReward for rewards that are not finite, or too many of them where they are masked.
        """
        order = _PromptOrder(experiences, self.args.rollout.n_samples_per_prompt)
        graded = order.gather([e.rewards for e in experiences])
        valid = self._valid(experiences, graded)
        norms = order.gather(self._squared_score_norms(experiences))
        if self.is_ours:
            for experience in experiences:  # as upstream does: penalties in at least float32
                dtype = torch.promote_types(experience.rewards.dtype, torch.float32)
                experience.rewards = experience.rewards.to(dtype)
            apply_length_penalties(experiences, self.args)
        else:
            super().compute_advantages_and_returns(experiences)
        rewards = order.gather([e.rewards for e in experiences])  # with their penalties
        self.metrics = {}
        if self.estimator is not None:
            prompts, responses = rewards.shape
            if self.estimator.record.lacks(prompts, responses) is None:
                self.metrics = self._estimate(self.estimator, order, rewards, valid, norms)
            elif self.is_ours:  # an episode's end, if the checks could not know it
                name = self.live_estimator
                logger.warning("%d prompts are too few for %s: skipped", prompts, name)
                valid = torch.zeros_like(valid)
                self._train_on(order, rewards, torch.zeros_like(rewards), valid)
        if self.selector is not None:
            self.selector.learn(order.prompt_keys(), rewards, valid)
        self._say_clipped()
        if self.args.js.save_batches:
            self._save_batch(order, rewards, valid, norms)
        return experiences

    def _estimate(
        self,
        estimator: LiveEstimator,
        order: _PromptOrder,
        rewards: torch.Tensor,
        valid: torch.Tensor,
        norms: torch.Tensor,
    ) -> dict[str, float]:
        """Trains on our advantages, where the estimator is ours, and returns what is logged."""
        batch = estimator.batch(
            rewards,
            mask=valid,
            lengths=order.gather([e.action_mask.sum(1) for e in order.experiences]),
            squared_score_norms=norms,
            greedy_rewards=self._greedy_rewards,
            keys=order.prompt_keys(),
            step=self.step,
        )
        estimate = estimator.estimate(batch)
        metrics = estimator.describe(batch, estimate)
        if self.is_ours:
            self._train_on(order, rewards, estimate.advantages.float(), valid)
            estimator.learn(batch)  # last: the advantages rest on earlier steps
        return metrics

    def _squared_score_norms(self, experiences: list[Any]) -> list[torch.Tensor]:
        """(b,) of each experience, as the loss weighs its responses.

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

    def _compute_reward(self, values: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Upstream's `compute_reward`, which clips (b,) values, with a note of what it clips."""
        if self._clipped is not None:
            low, high = self.args.reward.clip_range
            self._clipped.append((values < low) | (values > high))
        return compute_reward(values, *args, **kwargs)

    def _say_clipped(self) -> None:
        """Prints, at the first step that has any, the share of values that were clipped."""
        if self._clipped is None:
            return
        share = torch.cat(self._clipped).double().mean().item()
        self._clipped = [] if share == 0 else None
        if share > 0:
            low, high = self.args.reward.clip_range
            print(
                f"openrlhf_js: {share:.2%} of the rewards of step {self.step}, less their "
                f"baseline, are beyond --reward.clip_range {low:g} {high:g} and are cut to it: "
                "scale the rewards, or give a wider range",
                flush=True,
            )

    def _save_batch(
        self,
        order: _PromptOrder,
        rewards: torch.Tensor,
        valid: torch.Tensor,
        norms: torch.Tensor,
    ) -> None:
        """Writes the batch's .npz file; what the estimator does not need is empty in it."""
        nothing = torch.empty(0)
        greedy = nothing if self._greedy_rewards is None else self._greedy_rewards
        save_batch(
            Path(self.args.js.save_batches, f"batch_{self.step:06d}.npz"),
            order.experiences,
            order.gather,
            estimator=self.live_estimator,
            rewards=rewards.numpy(),
            valid=valid.numpy(),
            squared_score_norms=norms.numpy(),
            greedy_rewards=greedy.numpy(),
        )

    def _train_on(
        self,
        order: _PromptOrder,
        rewards: torch.Tensor,
        advantages: torch.Tensor,
        valid: torch.Tensor,
    ) -> None:
        """Gives each experience its tokens' advantages, as upstream does for rloo, and its logs.

        Responses that are not `valid` (n, m) have no action token: they leave the loss.
        """
        for experience, advantage in order.parts(advantages):
            token_rewards = self._compute_reward(
                advantage,
                self.kl_ctl.value,
                experience.kl,
                action_mask=experience.action_mask,
                reward_clip_range=self.args.reward.clip_range,
            )
            masked = experience.action_mask * token_rewards
            # what follows each token, without upstream's loop over tokens
            experience.returns = masked.flip(1).cumsum(1).flip(1)
            experience.advantages = experience.returns.clone()
            experience.info["return"] = token_rewards.sum(dim=-1)
            experience.kl = None
        _log_rewards(order, rewards)
        for experience, keep in order.parts(valid):
            experience.advantages = experience.advantages * keep.unsqueeze(1)
            experience.returns = experience.returns * keep.unsqueeze(1)
            experience.action_mask = experience.action_mask * keep.unsqueeze(1)

    def _valid(self, experiences: list[Any], rewards: torch.Tensor) -> torch.Tensor:
        """(n, m) bool: responses with a finite reward, and greedy one where that is needed.

        Raises BadReward with the first error if a step has more of the others than it may.
        """
        valid = rewards.isfinite()
        if self._greedy_rewards is not None:
            valid &= self._greedy_rewards.isfinite().unsqueeze(1)
        share = 1 - valid.double().mean().item()
        allowed = 0.0
        if self.args.js.on_bad_reward == "mask":
            allowed = self.args.js.max_masked_share
        if share == 0 or (share < 1 and share <= allowed):
            return valid
        first = self._error or _first_bad_reward(experiences) or "the greedy one"
        raise BadReward(
            f"{share:.0%} of a step's {valid.numel()} responses have no reward "
            "(--js.on_bad_reward mask leaves them out, up to --js.max_masked_share). "
            f"The first: {first}"
        )


def _log_rewards(order: _PromptOrder, rewards: torch.Tensor) -> None:
    """What upstream logs of rewards (n, m); the mean where they are not finite."""
    known = rewards.isfinite()
    mean = rewards[known].mean().item()
    for experience, reward in order.parts(rewards.where(known, mean)):
        experience.info["reward"] = reward
    if rewards.shape[1] > 1:
        statistics = checked_statistics(rewards.where(known, 0.0).double(), known)
        deviation = statistics.reward_variance.sqrt().unsqueeze(1).expand_as(rewards).float()
        for experience, group_deviation in order.parts(deviation):
            experience.info["group_reward_std"] = group_deviation


def _first_bad_reward(experiences: list[Any]) -> str | None:
    """The first reward in prompt order that is not finite, with its prompt."""
    bad = {}
    for experience in experiences:
        rewards = experience.rewards.tolist()
        for number, reward, prompt in zip(
            experience.index, rewards, experience.prompts, strict=True
        ):
            if not math.isfinite(reward):
                bad[number] = f"{reward} (prompt {prompt[-400:]!r})"
    return bad[min(bad)] if bad else None


class _PromptOrder:
    """Moves values between upstream's list of experiences and a (prompts, responses) tensor."""

    def __init__(self, experiences: list[Any], responses: int):
        self.experiences = experiences
        self._responses = responses
        self._index = torch.tensor([number for e in experiences for number in e.index])

    def gather(self, values: list[torch.Tensor]) -> torch.Tensor:
        """(n, m) in prompt order, from one (b,) tensor per experience."""
        flat = torch.cat([value.flatten() for value in values])
        ordered = torch.empty_like(flat)
        ordered[self._index] = flat
        return ordered.reshape(-1, self._responses)

    def parts(self, values: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor]]:
        """Every experience with its (b,) part of an (n, m) tensor in prompt order."""
        sizes = [len(experience.index) for experience in self.experiences]
        parts = values.reshape(-1)[self._index].split(sizes)
        for experience, part in zip(self.experiences, parts, strict=True):
            yield experience, part.clone()  # Ray would send a view's whole batch with it

    def prompt_keys(self) -> torch.Tensor:
        """(n,) keys of the prompts, in their order."""
        texts: dict[int, str] = {}
        labels: dict[int, Any] = {}
        for experience in self.experiences:
            texts.update(zip(experience.index, experience.prompts, strict=True))
            labels.update(zip(experience.index, experience.labels, strict=True))
        first_of_groups = range(0, len(texts), self._responses)
        return keys_of(
            [texts[number] for number in first_of_groups],
            [labels[number] for number in first_of_groups],
        )


def _fill_gaps(samples: list[Any]) -> None:
    """Gives all samples of a batch the fields that upstream wants them all to have.

    A logged value that some samples lack (masked, or of another task) becomes the mean of the
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


def save_batch(
    path: Path, experiences: list[Any], gather: Callable[..., Any], **arrays: Any
) -> None:
    """Writes the .npz file of a rollout batch.

    Besides `arrays` it holds, for n prompts with m responses: `prompts` (n, m); `advantages` (n, m)
    of each response's last token (without KL in the reward those of every token); and `tokens`,
    all prompts with their responses one after the other, of `lengths` (n, m) tokens each.
    """
    advantages = []
    texts: dict[int, str] = {}
    tokens: dict[int, np.ndarray] = {}
    for experience in experiences:
        mask = experience.action_mask
        last = mask.shape[1] - 1 - mask.long().fliplr().argmax(1, keepdim=True)
        advantages.append(experience.advantages.gather(1, last))
        texts.update(zip(experience.index, experience.prompts, strict=True))
        for i, sequence, real in zip(
            experience.index, experience.sequences, experience.attention_mask, strict=True
        ):
            tokens[i] = sequence[real.bool()].numpy().astype(np.int32)
    in_order = sorted(tokens)
    ordered_advantages = gather(advantages)
    shape = ordered_advantages.shape
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        prompts=np.array([texts[i] for i in in_order]).reshape(shape),
        tokens=np.concatenate([tokens[i] for i in in_order]),
        lengths=np.array([len(tokens[i]) for i in in_order]).reshape(shape),
        advantages=ordered_advantages.float().numpy(),
        **arrays,
    )


class SourcedPrompts(PromptDataset):
    """Upstream's data set of prompts that fit, whose labels carry their datasource.

    Upstream reads the datasource for the evaluation's metrics alone. `problem` says why the prompts
    or labels cannot be trained on; None if they can.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any):
        super().__init__(dataset, *args, **kwargs)
        on_agent = self.strategy.args.train.agent_func_path  # which writes what the model reads
        self.problem = self._unreadable_label()
        if self.problem is None and not on_agent:
            self.problem = self._leave_out_long()

    def _unreadable_label(self) -> str | None:
        """The first label that is neither text nor a whole number, where a task of ours grades it.

        Labels of local files were checked before; those of a data set on a hub are first seen here.
        """
        for number, label in enumerate(self.labels, 1):
            try:
                label_text(label)
            except ValueError as error:
                ours = grades_with_our_task(self.strategy.args)
                return f"row {number:,}: {error}" if ours else None
        return None

    def _leave_out_long(self) -> str | None:
        """Drops prompts that are too long, if they may be dropped; the problem of what is left."""
        args = self.strategy.args
        room = Room.of(args.data.max_len, args.rollout.max_new_tokens)
        tokenizer = self.tokenizer
        texts = dict(enumerate(self.prompts))
        if hasattr(tokenizer, "image_processor"):  # upstream refuses long prompts with images
            tokenizer = tokenizer.tokenizer
            texts = {place: text for place, text in texts.items() if not self.images[place]}
        measured = measure(texts, tokenizer, room)
        drops = args.js.on_long_prompt == "drop"
        problems = list(misfits(measured, len(self), room, drops=drops))
        if problems:
            return problems[0]
        if not measured.long:
            return None
        described = describe_long(measured, len(self), room)
        print(f"openrlhf_js: left out {described}", flush=True)
        for name in ("prompts", "labels", "images", "datasources"):
            values = getattr(self, name)
            kept = [value for place, value in enumerate(values) if place not in measured.long]
            setattr(self, name, kept)
        return None if len(self) else f"{described}: no prompt is left"

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        datasource, prompt, label, images = super().__getitem__(idx)
        return datasource, prompt, sourced(label, datasource), images
