"""The experience maker that subtracts our baselines, between upstream's steps that surround them.

Upstream computes, on the controller and over the whole rollout batch: length penalties, the
baseline, per-token KL, returns, whitening. Its own estimators run its own code here, too. For ours,
the penalised rewards are replaced by the advantages before upstream's step runs; its baseline knows
only its own estimators' names and passes them through.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openrlhf.datasets import PromptDataset
from openrlhf.datasets.prompts_dataset import preprocess_data
from openrlhf.trainer.ppo_utils.experience_maker import (
    RemoteExperienceMaker,
    apply_length_penalties,
)
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js import estimators
from openrlhf_js.common.files import read_rows
from openrlhf_js.common.store import read_store
from openrlhf_js.estimators import Memory
from openrlhf_js.estimators.group_stats import checked_statistics
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.plugin.flags import ESTIMATORS as OURS
from openrlhf_js.plugin.prompts import Room, describe_long, measure, misfits
from openrlhf_js.plugin.rewards import SourcedLabel
from openrlhf_js.plugin.rollout import GREEDY_REWARD
from openrlhf_js.plugin.upstream import BadInput, BadReward

logger = logging.getLogger(__name__)

# upstream's name -> our name of the same baseline where it is another, for the diagnostics
SAME_BASELINE = {
    "reinforce": "reinforce++",  # its whitening subtracts the mean of the batch
    "reinforce_baseline": "dr_grpo",
    "group_norm": "grpo",
    "flash_reinforce": "reinforce++",
}
MEMORY = "js_memory"  # the key in the states that upstream saves with the actor
FEWEST_PROMPTS = 8  # of a batch for each of its datasources, or these are no covariate


class ShrinkageExperienceMaker(RemoteExperienceMaker):
    """Upstream's experience maker with the estimators of `openrlhf_js.estimators`.

    `metrics` are the last rollout batch's diagnostics (`js/...`), for the trainer to log, and
    `step` is that batch's number, which the trainer sets. Only js_memory has a `memory`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.live_estimator: str = self.args.algo.advantage.estimator
        self.metrics: dict[str, float] = {}
        self.step = 0
        remembers = self.live_estimator == "js_memory"
        self.memory = start_memory(self.args, self.tokenizer) if remembers else None
        self._greedy_rewards: torch.Tensor | None = None
        self._error: str | None = None  # of the first masked response
        if self.live_estimator in OURS:
            # Upstream picks the returns by this attribute, but the baseline and the whitening by
            # the flag: with rloo's returns, our advantages pass through unchanged.
            self.advantage_estimator = "rloo"

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
        responses = self.args.rollout.n_samples_per_prompt
        order = _PromptOrder(experiences, responses)
        valid = order.gather([e.rewards for e in experiences]).isfinite()
        if self._greedy_rewards is not None:
            valid &= self._greedy_rewards.isfinite().unsqueeze(1)
        self._check(experiences, valid)

        for experience in experiences:  # as upstream does first: penalties in at least float32
            dtype = torch.promote_types(experience.rewards.dtype, torch.float32)
            experience.rewards = experience.rewards.to(dtype)
        apply_length_penalties(experiences, self.args)
        rewards = order.gather([e.rewards for e in experiences])

        name = SAME_BASELINE.get(self.live_estimator, self.live_estimator)
        prompts, covariates = None, None
        if self.memory is not None:
            prompts = Prompts.of(experiences, responses)
            covariates = prompts.covariates(self.memory, self.step, self.args.js.covariates)
        inputs = {
            "covariates": covariates,
            "earlier": None if self.memory is None else self.memory.earlier,
            "mask": None if valid.all() else valid,
            "greedy_rewards": self._greedy_rewards,
            "shrinkage": self.args.js.shrinkage,
        }
        known = estimators.ESTIMATORS.get(name)
        enough = known is not None and known.lacks(*rewards.shape) is None
        self.metrics = estimators.diagnostics(name, rewards, **inputs) if enough else {}
        advantages = estimators.advantage(name, rewards, **inputs) if enough else rewards
        if self.live_estimator in OURS:
            if not enough:  # an episode's end, if the checks could not know it
                logger.warning("%d prompts are too few for %s: skipped", len(rewards), name)
                valid = torch.zeros_like(valid)
            for experience, part in order.parts(advantages):
                experience.rewards = part
        if self.memory is not None and prompts is not None:  # now: advantages rest on earlier steps
            self.memory.update(prompts.keys, rewards, inputs["mask"], self.step, covariates)
        reward = self.args.reward
        penalties = reward.overlong_buffer_len, reward.stop_properly_penalty_coef
        reward.overlong_buffer_len = reward.stop_properly_penalty_coef = None  # they are applied
        super().compute_advantages_and_returns(experiences)
        reward.overlong_buffer_len, reward.stop_properly_penalty_coef = penalties
        if self.live_estimator in OURS:
            self._restore(order, rewards, valid)
        if self.args.js.save_batches:
            greedy = torch.empty(0) if self._greedy_rewards is None else self._greedy_rewards
            save_batch(
                Path(self.args.js.save_batches, f"batch_{self.step:06d}.npz"),
                experiences,
                order.gather,
                estimator=self.live_estimator,
                rewards=rewards.numpy(),
                valid=valid.numpy(),
                greedy_rewards=greedy.numpy(),
            )
        return experiences

    def get_cumulative_returns(
        self, rewards: torch.Tensor, action_mask: torch.Tensor, gamma: float
    ) -> torch.Tensor:
        """Upstream's; for our estimators without its loop over tokens, if nothing is discounted."""
        if gamma != 1 or self.live_estimator not in OURS:
            return super().get_cumulative_returns(rewards, action_mask, gamma)
        return (action_mask * rewards).flip(1).cumsum(1).flip(1)

    def _restore(self, order: _PromptOrder, rewards: torch.Tensor, valid: torch.Tensor) -> None:
        """Puts the rewards back, and takes masked responses out of the loss."""
        for experience, part in order.parts(rewards):
            experience.rewards = part
        # upstream has just logged our advantages as if they were rewards
        typical = rewards[valid].mean() if valid.any() else rewards.new_zeros(())
        logged = {"reward": rewards.where(valid, typical)}
        if rewards.shape[1] > 1:
            variance = checked_statistics(rewards.where(valid, 0.0), valid).reward_variance
            logged["group_reward_std"] = variance.sqrt().unsqueeze(1).expand_as(rewards)
        for key, values in logged.items():
            for experience, part in order.parts(values):
                experience.info[key] = part
        if valid.all():
            return
        for experience, keep in order.parts(valid):
            experience.advantages = experience.advantages * keep.unsqueeze(1)
            experience.returns = experience.returns * keep.unsqueeze(1)
            experience.action_mask = experience.action_mask * keep.unsqueeze(1)

    def _check(self, experiences: list[Any], valid: torch.Tensor) -> None:
        """Raises BadReward with the first error if a step has more bad rewards than it may."""
        share, masked = 1 - valid.double().mean().item(), self.args.js.on_bad_reward == "mask"
        if share and (share == 1 or share > masked * self.args.js.max_masked_share):
            graded = (
                (e.rewards[i].item(), p) for e in experiences for i, p in enumerate(e.prompts)
            )
            bad = (f"{r} (prompt {p[-400:]!r})" for r, p in graded if not math.isfinite(r))
            raise BadReward(
                f"{share:.0%} of a step's {valid.numel()} responses have no reward "
                "(--js.on_bad_reward mask leaves them out, up to --js.max_masked_share). "
                f"The first: {self._error or next(bad, 'the greedy one')}"
            )


class _PromptOrder:
    """Moves values between upstream's list of experiences and a (prompts, responses) tensor."""

    def __init__(self, experiences: list[Any], responses: int):
        self._experiences, self._responses = experiences, responses
        self._index = torch.tensor([i for experience in experiences for i in experience.index])

    def gather(self, values: list[torch.Tensor]) -> torch.Tensor:
        """(n, m) in prompt order, from one (b,) tensor per experience."""
        flat = torch.cat([value.flatten() for value in values])
        ordered = torch.empty_like(flat)
        ordered[self._index] = flat
        return ordered.reshape(-1, self._responses)

    def parts(self, values: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor]]:
        """Every experience with its (b,) part of an (n, m) tensor in prompt order."""
        sizes = [len(e.index) for e in self._experiences]
        parts = values.reshape(-1)[self._index].split(sizes)
        # cloned, since Ray would send a view's whole batch with it
        return zip(self._experiences, (part.clone() for part in parts), strict=True)


class Prompts:
    """The prompts of a batch, each with its label."""

    def __init__(self, texts: Sequence[str], labels: Sequence[Any]):
        self.labels = labels
        self.sources = [str(getattr(label, "datasource", "")) for label in labels]
        known = zip(texts, labels, self.sources, strict=True)
        self.keys = torch.tensor([key_of(*each) for each in known])

    @classmethod
    def of(cls, experiences: Sequence[Any], responses: int) -> Prompts:
        """Those of experiences, in prompt order."""
        labelled = (zip(e.index, e.prompts, e.labels, strict=True) for e in experiences)
        _, texts, labels = zip(*sorted(chain(*labelled))[::responses], strict=True)
        return cls(texts, labels)

    def covariates(self, memory: Memory, step: int, asked: str | None = None) -> torch.Tensor:
        """(n, k) past, columns of `--js.covariates`, and the datasource, where there are few.

        Raises BadInput if the data set has no such column, or labels are no text.
        """
        kinds = sorted(set(self.sources))
        kinds = kinds[1:] if len(kinds) * FEWEST_PROMPTS <= len(self.sources) else []
        rows = [
            [*getattr(label, "covariates", ()), *(float(source == kind) for kind in kinds)]
            for label, source in zip(self.labels, self.sources, strict=True)
        ]
        if asked and any(len(row) < len(asked.split(",")) + len(kinds) for row in rows):
            raise BadInput(f"--js.covariates {asked}: no prompt, or no text label, has all of them")
        columns = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), -1)
        return torch.cat([memory.covariate(self.keys, step), columns], 1)


def _fill_gaps(samples: list[Any]) -> None:
    """Gives all samples of a batch the fields that upstream wants them all to have. A logged value
    that some samples lack (masked, or of another task) becomes the mean of the others."""
    if any(sample.scores is not None for sample in samples):
        for sample in samples:
            if sample.scores is None:
                sample.scores = torch.tensor([math.nan])
    for key in {key for sample in samples for key in sample.info}:
        known = [sample.info[key] for sample in samples if key in sample.info]
        if len(known) < len(samples):
            mean = torch.cat(known).float().mean(0, keepdim=True)
            for sample in samples:
                sample.info.setdefault(key, mean)


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
    both = gather(advantages)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        prompts=np.array([texts[i] for i in in_order]).reshape(both.shape),
        tokens=np.concatenate([tokens[i] for i in in_order]),
        lengths=np.array([len(tokens[i]) for i in in_order]).reshape(both.shape),
        advantages=both.float().numpy(),
        **arrays,
    )


def start_memory(args: Any, tokenizer: Any) -> Memory:
    """The memory of a run that begins: empty, or of the samples that `--js.warm_memory` names."""
    js, data = args.js, args.data
    memory = Memory() if js.half_life is None else Memory((js.half_life,))
    if js.warm_memory:
        path = Path(js.warm_memory)
        rewards: dict[str, list[float]] = {}
        for record in read_store(path)[1]:
            rewards.setdefault(record["uid"], []).append(float(record["status"] == "correct"))
        chat = tokenizer.apply_chat_template if data.apply_chat_template else None
        texts, labels, scores = [], [], []
        for row in read_rows(path.with_suffix(".items.jsonl")):
            item = row.object(path)
            said = item["messages"] if chat else item["messages"][-1]["content"]
            asked = {"input": said, "label": item["label"]}
            how = (data.input_template, "input", "label", chat or False)
            text, label = preprocess_data(asked, *how)
            texts.append(text)
            labels.append(SourcedLabel(label))
            labels[-1].datasource = item["datasource"]
            scores.append(torch.tensor(rewards.get(item["uid"], [])))
        scored = pad_sequence(scores, batch_first=True, padding_value=math.nan)
        memory.update(Prompts(texts, labels).keys, scored, scored.isfinite(), 0)
        print(f"openrlhf_js: {len(memory):,} prompts are remembered from {path}", flush=True)
    return memory


def keep_memory(states: dict[str, Any], maker: ShrinkageExperienceMaker) -> None:
    """Adds what js_memory keeps to the states of a checkpoint."""
    if maker.memory is not None:
        states[MEMORY] = maker.memory.state()


def resume_memory(states: dict[str, Any], maker: ShrinkageExperienceMaker) -> None:
    """Gives a resumed run the memory that its checkpoint kept.

    Raises BadInput if the checkpoint belongs to a run with another `--js.half_life`.
    """
    if maker.memory is None or MEMORY not in states:
        return
    resumed = Memory.restored(states[MEMORY])
    before, now = resumed.half_lives.tolist(), maker.memory.half_lives.tolist()
    if before != now:
        raise BadInput(
            f"--ckpt.load_enable: the run of that checkpoint had --js.half_life {before}, this one "
            f"has {now}: give it as it was, or start afresh without --ckpt.load_enable"
        )
    maker.memory = resumed


class SourcedPrompts(PromptDataset):
    """Upstream's data set of prompts that fit, whose text labels carry what else their rows have.

    That is the datasource, which upstream reads for the evaluation's metrics alone, and covariates.
    `problem` says why the prompts cannot be trained on; None if they can.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any):
        super().__init__(dataset, *args, **kwargs)
        asked = (self.strategy.args.js.covariates or "").split(",")
        there = [name for name in asked if any(row.get(name) is not None for row in dataset)]
        self._covariates = [
            tuple(math.nan if row.get(name) is None else float(row[name]) for name in there)
            for row in (dataset if there else [{}] * len(self))
        ]
        on_agent = self.strategy.args.train.agent_func_path  # which writes what the model reads
        self.problem = None if on_agent else self._leave_out_long()

    def _leave_out_long(self) -> str | None:
        """Drops prompts that are too long, if they may be dropped; the problem of what is left."""
        data = self.strategy.args.data
        room = Room.of(data.max_len, self.strategy.args.rollout.max_new_tokens)
        sees = hasattr(self.tokenizer, "image_processor")  # upstream refuses long ones with images
        texts = {
            place: text
            for place, text in enumerate(self.prompts)
            if not (sees and self.images[place])
        }
        tokenizer = self.tokenizer.tokenizer if sees else self.tokenizer
        measured = measure(texts, tokenizer, room)
        drops = self.strategy.args.js.on_long_prompt == "drop"
        problems = misfits(measured, len(self), room, drops=drops)
        if problem := next(problems, None):
            return problem
        if not measured.long:
            return None
        described = describe_long(measured, len(self), room)
        print(f"openrlhf_js: left out {described}", flush=True)
        for name in ("prompts", "labels", "images", "datasources", "_covariates"):
            values = getattr(self, name)
            kept = [value for place, value in enumerate(values) if place not in measured.long]
            setattr(self, name, kept)
        return None if len(self) else f"{described}: no prompt is left"

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        datasource, prompt, label, images = super().__getitem__(idx)
        if isinstance(label, str):
            label = SourcedLabel(label)
            label.covariates = self._covariates[idx]
            if isinstance(datasource, str):
                label.datasource = datasource
        return datasource, prompt, label, images
