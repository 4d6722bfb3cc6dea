"""The prompts of a run in its trainer: those that fit, each with its label.

Upstream cuts off the beginning of a prompt that leaves no room for a response, and trains on what
is left. An empty prompt ends the run at the step that draws it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from openrlhf.datasets import PromptDataset

from openrlhf_js.common.labels import label_text
from openrlhf_js.plugin.checks.rewards import grades_with_our_task
from openrlhf_js.plugin.records import Label, prompt_key

AT_ONCE = 256  # prompts


class CheckedPrompts(PromptDataset):  # type: ignore[misc]
    """Upstream's data set of prompts that fit, whose labels are `Label`s.

    Upstream reads the datasource for the evaluation's metrics alone. `problem` says why the prompts
    or labels cannot be trained on; None if they can.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any):
        super().__init__(dataset, *args, **kwargs)
        on_agent = self.strategy.args.train.agent_func_path  # which writes what the model reads
        self.problem = self._unreadable_label()
        if self.problem is None and not on_agent:
            self.problem = self._leave_out_long()

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        datasource, prompt, _, images = super().__getitem__(idx)
        return datasource, prompt, self._label(idx), images

    def keys(self) -> torch.Tensor:
        """(N,) what the prompts are known by."""
        return torch.tensor(
            [prompt_key(text, self._label(place)) for place, text in enumerate(self.prompts)]
        )

    def _label(self, place: int) -> Label:
        datasource = self.datasources[place]
        return Label(self.labels[place], datasource if isinstance(datasource, str) else "")

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
        response = args.rollout.max_new_tokens or 1  # as upstream counts
        room = args.data.max_len - response
        too_long = {}  # places and lengths
        for place, tokens in self._lengths():
            if tokens == 0:
                return f"row {place + 1:,} is an empty prompt: leave it out"
            if tokens > room:
                too_long[place] = tokens
        if not too_long:
            return None
        longest = max(too_long, key=lambda place: too_long[place])
        described = (
            f"prompts of more than {room:,} tokens, which --data.max_len {args.data.max_len} "
            f"leaves beside {response} for the response: {len(too_long):,} of {len(self):,}, up to "
            f"{too_long[longest]:,} in row {longest + 1:,}"
        )
        if args.js.on_long_prompt != "drop":
            return f"{described}; raise --data.max_len, or add --js.on_long_prompt drop"
        print(f"openrlhf_js: left out {described}", flush=True)
        for name in ("prompts", "labels", "images", "datasources"):
            values = getattr(self, name)
            setattr(self, name, [v for place, v in enumerate(values) if place not in too_long])
        return None if len(self) else f"{described}: no prompt is left"

    def _lengths(self) -> Iterator[tuple[int, int]]:
        """The place and the number of tokens of each prompt."""
        tokenizer = self.tokenizer
        places = list(range(len(self.prompts)))
        if hasattr(tokenizer, "image_processor"):  # upstream refuses long prompts with images
            tokenizer = tokenizer.tokenizer
            places = [place for place in places if not self.images[place]]
        for start in range(0, len(places), AT_ONCE):
            batch = places[start : start + AT_ONCE]
            texts = [self.prompts[place] for place in batch]
            encoded = tokenizer(text=texts, add_special_tokens=False, verbose=False)
            yield from zip(batch, map(len, encoded.input_ids), strict=True)
