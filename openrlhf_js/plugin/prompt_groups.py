"""A replay buffer that keeps all responses to a prompt in one micro-batch."""

from __future__ import annotations

from typing import Any

from openrlhf.trainer.ppo_utils import NaiveReplayBuffer

from openrlhf_js.plugin.errors import UpstreamMismatch


class PromptGroups(NaiveReplayBuffer):
    """Upstream's replay buffer, from which the loader draws whole prompt groups.

    Upstream shuffles single responses, so that those of a prompt fall into several micro-batches.
    Here an item is a prompt group, and the loader's shuffle moves groups. Responses arrive in
    prompt order, and each rank gets whole groups (`gradient_checks` sees to the sizes).
    """

    def __init__(self, micro_batch_size: int, responses: int, packing_samples: bool):
        """
        Args:
            micro_batch_size: responses in a micro-batch, a multiple of `responses`.
            responses: in a prompt group.
            packing_samples: upstream's `--ds.packing_samples`.
        """
        super().__init__(micro_batch_size // responses, packing_samples=packing_samples)
        self._responses = responses

    def __len__(self) -> int:
        return len(self.items) // self._responses

    def __getitem__(self, index: int) -> list[Any]:
        """The group's responses, as upstream's items.

        Raises:
            UpstreamMismatch: they are not responses to one prompt.
        """
        start = index * self._responses
        group = self.items[start : start + self._responses]
        if len({prompt for item in group for prompt in item.prompts}) != 1:
            raise UpstreamMismatch(
                "the responses do not lie in prompt order, which --js.group_micro_batches needs"
            )
        return group

    def collate_fn(self, batch: list[list[Any]]) -> Any:
        return super().collate_fn([item for group in batch for item in group])
