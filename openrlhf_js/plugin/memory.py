"""What a run remembers of its prompts: at first, from step to step, and in its checkpoints.

Of `spo` also how far the policy has moved since it last answered each prompt, by which that
estimator forgets. The last responses to each prompt are kept with their log-probabilities, and
scored once more by the policy of today: one more forward pass a step, and 8 bytes a token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from openrlhf.datasets.prompts_dataset import preprocess_data
from openrlhf.trainer.ppo_utils.experience import Experience
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.common.files import read_rows
from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, key_of, make_batch
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.plugin.flags import our_estimator
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.sampling.complete import ITEMS, read_samples
from openrlhf_js.sampling.prompts import sourced

# Keys in the states that upstream saves with the actor.
MEMORY = "js_memory"
MEMORY_OF = "js_memory_of"  # whose memory it is
VISITS = "js_last_visits"
SAME_BASELINE = {name: record.name for record in ESTIMATORS.values() for name in record.upstream}


def keys_of(texts: Sequence[str], labels: Sequence[Any]) -> Tensor:
    """(n,) what prompts are known by: their text, label and datasource."""
    keys = []
    for text, label in zip(texts, labels, strict=True):
        source = str(getattr(label, "datasource", ""))
        # pass@k, whose samples may have warmed the memory, keeps whole numbers as text
        known_label = str(label) if isinstance(label, int) else label
        keys.append(key_of(text, known_label, source))
    return torch.tensor(keys)


# --- the live estimator, at the start and in checkpoints ------------------------------------------


def start_estimator(args: Any, tokenizer: Any) -> LiveEstimator | None:
    """The estimator of a run that begins, which has learnt at most what `--js.warm_memory` names.

    None where upstream's own has a baseline that we do not have.
    """
    name = SAME_BASELINE.get(args.algo.advantage.estimator, args.algo.advantage.estimator)
    if our_estimator(name) is None and name not in ESTIMATORS:
        return None
    estimator = LiveEstimator(name, shrinkage=args.js.shrinkage)
    if args.js.warm_memory:
        samples = Path(args.js.warm_memory)
        keys, rewards = _earlier_rewards(samples, args.data, tokenizer)
        estimator.start(make_batch(rewards, mask=rewards.isfinite(), keys=keys, step=0))
        print(f"openrlhf_js: {len(keys):,} prompts are remembered from {samples}", flush=True)
    return estimator


def _earlier_rewards(samples: Path, data: Any, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Keys (n,) and rewards (n, m), NaN where there are fewer, of samples that pass@k has left.

    What was refused has no reward.
    """
    rewards: dict[str, list[float]] = {}
    for sample in read_samples(samples):
        if sample.refused is None:
            rewards.setdefault(sample.uid, []).append(float(sample.status == "correct"))
    chat = tokenizer.apply_chat_template if data.apply_chat_template else None
    texts = []
    labels = []
    prompt_rewards = []
    for row in read_rows(samples.with_suffix(ITEMS)):
        item = row.object(samples)
        prompt = item["messages"] if chat else item["messages"][-1]["content"]
        columns = {"input": prompt, "label": item["label"]}
        text, label = preprocess_data(
            columns, data.input_template, "input", "label", apply_chat_template=chat or False
        )
        texts.append(text)
        labels.append(sourced(label, item["datasource"]))
        prompt_rewards.append(torch.tensor(rewards.get(item["uid"], [])))
    padded = pad_sequence(prompt_rewards, batch_first=True, padding_value=math.nan)
    return keys_of(texts, labels), padded


def keep_memory(states: dict[str, Any], maker: Any) -> None:
    """Adds what the experience maker's estimator remembers to the states of a checkpoint."""
    estimator = maker.estimator
    if estimator is None or estimator.memory is None:
        return
    states[MEMORY] = estimator.state_dict()
    states[MEMORY_OF] = _name_in_checkpoints(estimator)
    if estimator.record.needs_drift:
        states[VISITS] = dict(maker.last_visits.visits)


def resume_memory(states: dict[str, Any], maker: Any) -> None:
    """Gives a resumed run what its checkpoint remembers.

    A checkpoint without a memory will do where `--js.warm_memory` has given one. Raises BadInput
    for any other, and for the memory of another estimator or version.
    """
    estimator = maker.estimator
    if estimator is None or estimator.memory is None or not states["global_step"]:
        return
    name = _name_in_checkpoints(estimator)
    if MEMORY not in states:
        if maker.args.js.warm_memory:
            return
        raise BadInput(
            f"--ckpt.load_enable: that checkpoint holds no memory, and {name} would begin with an "
            "empty one: resume it with its own estimator, give --js.warm_memory, or start afresh "
            "without --ckpt.load_enable"
        )
    state = states[MEMORY]
    fits = states.get(MEMORY_OF) == name
    if parse_own(estimator.record.name) is None:  # a class has attributes as it likes
        fits &= state.keys() == estimator.state_dict().keys()
    if not fits:
        raise BadInput(
            "--ckpt.load_enable: that checkpoint holds the memory of another estimator, or of "
            "another version of openrlhf_js: resume it with that one, or start afresh without "
            "--ckpt.load_enable"
        )
    estimator.load_state_dict(state)
    if estimator.record.needs_drift:
        maker.last_visits.visits = states[VISITS]


def _name_in_checkpoints(estimator: LiveEstimator) -> str:
    """The estimator's name; of a user's own that in its file, which may be moved."""
    own = parse_own(estimator.record.name)
    return estimator.record.name if own is None else own.name


# --- how far the policy has moved ----------------------------------------------------------------


class Visit(NamedTuple):
    """One response, without padding: t tokens with the prompt, a of which may be trained on."""

    sequence: Tensor  # (t,) int32
    action_mask: Tensor  # (a,) bool
    log_probs: Tensor  # (a,) float32


class LastVisits:
    """The last responses to each prompt, by its key and the number of the response."""

    def __init__(self) -> None:
        self.visits: dict[tuple[int, int], Visit] = {}

    def replace(self, maker: Any, experiences: Sequence[Any], keys: Tensor) -> Tensor:
        """Keeps a step's responses, and returns the drift (n,) since the visits before.

        That is the mean absolute change of the log-probabilities of the former visits' tokens; 0
        for a prompt that is visited for the first time.

        Args:
            maker: the experience maker, whose actor scores the former responses.
            experiences: the step's micro-batches, scored.
            keys: (n,) of the step's prompts, in their order.
        """
        responses = maker.args.rollout.n_samples_per_prompt
        today = []  # visits, each with its place: the prompt's key, and which of its responses
        former = []
        known = torch.zeros(len(keys), dtype=torch.bool)
        for experience in experiences:
            if any(experience.mm_train_inputs):
                raise BadInput(
                    "spo scores each prompt's last responses once more, which is not built for "
                    "images: choose another --algo.advantage.estimator"
                )
            for row, number in enumerate(experience.index):
                place = (int(keys[number // responses]), number % responses)
                visit = _visit(experience, row)
                today.append((place, visit))
                known[number // responses] |= place in self.visits
                former.append(self.visits.get(place, visit))
        drift = torch.zeros(len(keys), dtype=torch.float64)
        if known.any():
            drift = _drift(maker, experiences, former, len(keys))
            drift[~known] = 0.0  # scored twice today, which differs by rounding
        self.visits.update(today)
        return drift


def _visit(experience: Any, row: int) -> Visit:
    tokens = int(experience.attention_mask[row].sum())
    padding = experience.sequences.shape[1] - tokens
    actions = experience.action_mask.shape[1] - padding
    # cloned: a view would keep the whole micro-batch
    return Visit(
        sequence=experience.sequences[row, :tokens].int().clone(),
        action_mask=experience.action_mask[row, :actions].bool().clone(),
        log_probs=experience.action_log_probs[row, :actions].float().clone(),
    )


def _drift(maker: Any, experiences: Sequence[Any], former: Sequence[Visit], n: int) -> Tensor:
    """(n,) from the former visits of every response, in micro-batches as large as today's."""
    batches = []
    start = 0
    for experience in experiences:
        visits = former[start : start + len(experience.index)]
        batches.append(_micro_batch(visits, maker.tokenizer.pad_token_id))
        start += len(visits)
    args = maker.args
    scored = maker._dispatch_forward(
        maker.actor_model_group,
        args.train.colocate_all or args.train.colocate_actor_ref,
        sequences=[batch.sequences for batch in batches],
        action_mask=[batch.action_mask for batch in batches],
        attention_mask=[batch.attention_mask for batch in batches],
    )
    copies = args.ds.ring_attn_size * args.ds.tensor_parallel_size
    log_probs = maker._flatten_results(scored, copies)
    change = torch.zeros(n, dtype=torch.float64)
    tokens = torch.zeros(n, dtype=torch.float64)
    for experience, batch, now in zip(experiences, batches, log_probs, strict=True):
        prompts = torch.tensor(experience.index) // args.rollout.n_samples_per_prompt
        moved = (now.float() - batch.action_log_probs).abs() * batch.action_mask
        change.index_add_(0, prompts, moved.sum(1).double())
        tokens.index_add_(0, prompts, batch.action_mask.sum(1).double())
    return change / tokens.clamp(min=1)


def _micro_batch(visits: Sequence[Visit], pad: int) -> Any:
    """The visits padded as upstream pads its samples."""
    rows = []
    for visit in visits:
        sequence = visit.sequence.long()[None]
        row = Experience(
            sequences=sequence,
            attention_mask=torch.ones_like(sequence),
            action_mask=visit.action_mask[None],
            action_log_probs=visit.log_probs[None],
            index=[0],
        )
        rows.append(row)
    return Experience.concat_experiences(rows, pad)
