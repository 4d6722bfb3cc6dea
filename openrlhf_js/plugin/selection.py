"""Which prompts a run trains on next: the selector, at the start and in checkpoints."""

from __future__ import annotations

from typing import Any

import torch

from openrlhf_js.estimators.selection import PromptSelector
from openrlhf_js.plugin.memory import keys_of
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.sampling.prompts import sourced

SELECTION = "js_selection"  # the key in the states that upstream saves: what is known of prompts


def start_selection(trainer: Any) -> PromptSelector | None:
    """Gives a trainer's generator of samples what chooses the prompts, and returns it.

    None where they are drawn uniformly, or where no prompt comes again, which it prints. Raises
    BadInput where fewer prompts differ than a step trains on.
    """
    args = trainer.args
    selection = args.js.prompt_selection
    if selection == "uniform":
        return None
    dataset = trainer.prompts_dataloader.dataset
    labels = map(sourced, dataset.labels, dataset.datasources)
    keys = keys_of(dataset.prompts, list(labels))
    different = len(keys.unique())
    drawn = args.train.num_episodes * len(keys)
    if args.js.max_steps:
        drawn = min(drawn, args.js.max_steps * args.rollout.batch_size)
    if drawn <= different:
        print(
            f"openrlhf_js: the run draws {drawn:,} prompts of {different:,} different ones, so "
            "that none comes again and there is nothing to choose by: --js.prompt_selection "
            f"{selection} changes nothing",
            flush=True,
        )
        return None
    try:
        selector = PromptSelector(
            keys,
            args.rollout.batch_size,
            args.train.seed,
            rule="spo" if selection == "spo" else "variance",
        )
    except ValueError as error:
        raise BadInput(f"--js.prompt_selection: {error}") from None
    trainer.samples_generator.selector = selector
    return selector


def learn_samples(selector: PromptSelector, samples: list[Any], responses: int) -> None:
    """Learns the graders' rewards of a step, whose samples are in prompt order."""
    groups = samples[::responses]
    texts = [group.prompts[0] for group in groups]
    labels = [group.labels[0] for group in groups]
    rewards = torch.cat([sample.rewards for sample in samples]).view(-1, responses)
    selector.learn(keys_of(texts, labels), rewards, selector.next_step, rewards.isfinite())


def keep_selection(states: dict[str, Any], selector: PromptSelector | None) -> None:
    """Adds what is known of the prompts to the states of a checkpoint."""
    if selector is not None:
        states[SELECTION] = selector.state_dict()


def resume_selection(states: dict[str, Any], selector: PromptSelector | None) -> None:
    """Gives a resumed run what its checkpoint knows of the prompts.

    Raises BadInput if it is of other prompts, or of a run that drew them uniformly.
    """
    if selector is None:
        return
    if SELECTION not in states:
        raise BadInput(
            "--ckpt.load_enable: the run of that checkpoint did not choose its prompts: resume it "
            "with --js.prompt_selection uniform"
        )
    try:
        selector.load_state_dict(states[SELECTION])
    except ValueError as error:
        raise BadInput(f"--ckpt.load_enable: {error}") from None
