"""The estimator of a run: at first, perhaps with samples to remember, and in its checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from openrlhf.datasets.prompts_dataset import preprocess_data
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.common.files import read_rows
from openrlhf_js.estimators import LiveEstimator, make_batch
from openrlhf_js.estimators.catalogue import in_training
from openrlhf_js.estimators.own import parse_own
from openrlhf_js.plugin.flags import means_over_tokens
from openrlhf_js.plugin.records import Label, prompt_key
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.sampling.complete import ITEMS, read_samples

# The key of a checkpoint's states under which the name and the state of an estimator are.
ESTIMATOR = "js_estimator"


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
    keys = []
    prompt_rewards = []
    for row in read_rows(samples.with_suffix(ITEMS)):
        item = row.object(samples)
        prompt = item["messages"] if chat else item["messages"][-1]["content"]
        columns = {"input": prompt, "label": item["label"]}
        text, label = preprocess_data(
            columns, data.input_template, "input", "label", apply_chat_template=chat or False
        )
        keys.append(prompt_key(text, Label(label, item["datasource"]), item.get("images")))
        prompt_rewards.append(torch.tensor(rewards.get(item["uid"], [])))
    padded = pad_sequence(prompt_rewards, batch_first=True, padding_value=math.nan)
    return torch.tensor(keys), padded


def keep_memory(states: dict[str, Any], estimator: LiveEstimator | None, args: Any) -> None:
    """Adds what an estimator remembers to the states of a checkpoint."""
    if estimator is not None and estimator.memory is not None:
        states[ESTIMATOR] = {
            "name": _kept_name(estimator),
            "over_tokens": means_over_tokens(args),  # which gives the weights their unit
            "state": estimator.state_dict(),
        }


def resume_memory(states: dict[str, Any], estimator: LiveEstimator | None, args: Any) -> None:
    """Gives an estimator what its checkpoint remembers, unless its weights have another unit.

    A checkpoint without a memory will do for one that `--js.warm_memory` has warmed. Raises
    BadInput for any other, and for the memory of another estimator or version.
    """
    if estimator is None or estimator.memory is None:
        return
    name = _kept_name(estimator)
    if ESTIMATOR not in states:
        if args.js.warm_memory:
            return
        raise BadInput(
            f"--ckpt.load_enable: that checkpoint holds no memory, and {name} would begin with an "
            "empty one: resume it with its own estimator, give --js.warm_memory, or start afresh "
            "without --ckpt.load_enable"
        )
    kept = states[ESTIMATOR]
    reads_norms = estimator.record.reads_score_norms
    fits = kept["name"] == name and ("over_tokens" in kept or not reads_norms)
    if parse_own(estimator.record.name) is None:  # a class has attributes as it likes
        fits &= kept["state"].keys() == estimator.state_dict().keys()
    if not fits:
        raise BadInput(
            "--ckpt.load_enable: that checkpoint holds the memory of another estimator, or of "
            "another version of openrlhf_js: resume it with that one, or start afresh without "
            "--ckpt.load_enable"
        )
    if reads_norms and kept["over_tokens"] != means_over_tokens(args):
        print(
            f"openrlhf_js: the loss now weighs responses otherwise: {name} begins with what it "
            "knew at the start",
            flush=True,
        )
    else:
        estimator.load_state_dict(kept["state"])


def _kept_name(estimator: LiveEstimator) -> str:
    """The estimator's name; of a user's own that in its file, which may be moved."""
    own = parse_own(estimator.record.name)
    return estimator.record.name if own is None else own.name
