"""What a run remembers of its prompts: at first, from step to step, and in its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from openrlhf.datasets.prompts_dataset import preprocess_data
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.common.files import read_rows
from openrlhf_js.estimators import LiveEstimator, key_of, make_batch
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.sampling.complete import ITEMS, read_samples
from openrlhf_js.sampling.prompts import sourced

# Keys in the states that upstream saves with the actor.
MEMORY = "js_memory"
MEMORY_OF = "js_memory_of"  # whose memory it is


def keys_of(texts: Sequence[str], labels: Sequence[Any]) -> Tensor:
    """(n,) what prompts are known by: their text, label and datasource."""
    keys = []
    for text, label in zip(texts, labels, strict=True):
        source = str(getattr(label, "datasource", ""))
        # pass@k, whose samples may have warmed the memory, keeps whole numbers as text
        known_label = str(label) if isinstance(label, int) else label
        keys.append(key_of(text, known_label, source))
    return torch.tensor(keys)


def start_estimator(args: Any, tokenizer: Any) -> LiveEstimator | None:
    """The estimator of a run that begins, which has learnt at most what `--js.warm_memory` names.

    None where upstream's own has a baseline that we do not have.
    """
    record = in_training(args.algo.advantage.estimator).record
    if record is None:
        return None
    estimator = LiveEstimator(record.name, shrinkage=args.js.shrinkage)
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


def _name_in_checkpoints(estimator: LiveEstimator) -> str:
    """The estimator's name; of a user's own that in its file, which may be moved."""
    own = parse_own(estimator.record.name)
    return estimator.record.name if own is None else own.name
