"""Each rollout batch in a file, as it goes to training, for whoever wants to check a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


def save_batch(
    folder: Path,
    experiences: list[Any],
    gather: Callable[[list[torch.Tensor]], torch.Tensor],
    **arrays: Any,
) -> None:
    """Writes `batch_000001.npz` or the next number, so that a resumed run goes on counting.

    Beside `arrays` it holds, for n prompts with m responses: `prompts` (n, m); `advantages` (n, m),
    which are those of a response's last token, without KL in the reward those of every token; and
    `tokens`, all prompts with their responses one after the other, of `lengths` (n, m) tokens each.

    Args:
        folder: made if it is not there.
        experiences: upstream's, their advantages set.
        gather: makes (n, m) in prompt order from one (b,) tensor for each experience.
        arrays: what else to write.
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
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("batch_*.npz"))) + 1
    np.savez(
        folder / f"batch_{number:06d}.npz",
        prompts=np.array([texts[i] for i in in_order]).reshape(both.shape),
        tokens=np.concatenate([tokens[i] for i in in_order]),
        lengths=np.array([len(tokens[i]) for i in in_order]).reshape(both.shape),
        advantages=both.float().numpy(),
        **arrays,
    )
