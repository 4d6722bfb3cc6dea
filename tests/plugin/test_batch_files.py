"""A saved batch has every response's own tokens and advantage, in prompt order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from openrlhf_js.plugin.batch_files import save_batch


def experience(index, prompts, sequences, attention, actions, advantages):
    return SimpleNamespace(
        index=index,
        prompts=prompts,
        sequences=torch.tensor(sequences),
        attention_mask=torch.tensor(attention),
        action_mask=torch.tensor(actions, dtype=torch.bool),
        advantages=torch.tensor(advantages),
    )


def test_tokens_go_without_padding_and_in_prompt_order(tmp_path):
    shuffled = [  # two prompts with two responses, padded on the right
        experience(
            [3, 0],
            ["b", "a"],
            [[7, 8, 9, 0], [1, 2, 0, 0]],
            [[1, 1, 1, 0], [1, 1, 0, 0]],
            [[0, 1, 0], [1, 0, 0]],
            [[0.0, 4.0, 0.0], [1.0, 0.0, 0.0]],
        ),
        experience(
            [1, 2],
            ["a", "b"],
            [[1, 3, 4], [7, 5, 6]],
            [[1, 1, 1], [1, 1, 1]],
            [[1, 1], [1, 1]],
            [[9.0, 2.0], [9.0, 3.0]],
        ),
    ]

    def gather(values):
        flat = torch.cat([value.flatten() for value in values])
        return flat[torch.tensor([1, 2, 3, 0])].reshape(2, 2)

    for number in (1, 2):
        save_batch(tmp_path / "batches", shuffled, gather, rewards=np.eye(2), estimator="js")
        saved = np.load(tmp_path / "batches" / f"batch_{number:06d}.npz")
    assert saved["prompts"].tolist() == [["a", "a"], ["b", "b"]]
    assert saved["lengths"].tolist() == [[2, 3], [3, 3]]
    assert saved["tokens"].tolist() == [1, 2, 1, 3, 4, 7, 5, 6, 7, 8, 9]
    assert saved["advantages"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert saved["rewards"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert str(saved["estimator"]) == "js"
