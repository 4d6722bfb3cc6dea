"""Whether a reward model in Ray can grade the policy's responses: it gets the policy's tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from openrlhf_js.reward_model.checkpoint import checkpoint_problems

# Releases of one family rename some reserved tokens; anything more is another language.
RENAMED_SHARE = 0.01


def reward_model_problems(
    folder: str, policy: str | None, value_head_prefix: str, normalize: bool
) -> Iterator[str]:
    """What keeps a local folder from being the reward model of a run, one line each.

    Args:
        folder: the reward model's.
        policy: the policy's folder, or a name on a hub, of which nothing is known here.
        value_head_prefix: `--ds.value_head_prefix`.
        normalize: `--reward.normalize_enable`.
    """
    problems = checkpoint_problems(
        folder, value_head_prefix, normalize=normalize, pad_with_eos=True
    )
    if not problems and policy and os.path.isdir(policy):
        problems += _tokens_differ(folder, policy)
    yield from (f"--reward.model_name_or_path: {problem}" for problem in problems)


def _tokens_differ(folder: str, policy: str) -> list[str]:
    from transformers import AutoTokenizer

    if not Path(policy, "tokenizer_config.json").is_file():
        return []  # said elsewhere
    try:
        spoken, understood = (
            AutoTokenizer.from_pretrained(path, trust_remote_code=False).get_vocab()
            for path in (policy, folder)
        )
    except (OSError, ValueError):  # the policy's comes with code, which only OpenRLHF runs
        return []
    other = sum(understood.get(token) != number for token, number in spoken.items())
    if other <= RENAMED_SHARE * len(spoken):
        return []
    return [
        f"{other:,} of the policy's {len(spoken):,} tokens have another number in {folder}, which "
        "would read other text than was written: take one with the policy's tokenizer, or, if it "
        "knows the policy's chat template, serve it (`openrlhf-js rm serve`, --reward.remote_url)"
    ]
