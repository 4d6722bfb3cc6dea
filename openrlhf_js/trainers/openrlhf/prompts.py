"""The prompts that the trainer draws: those that fit (`checks.lengths`), each with its label."""

from __future__ import annotations

from typing import Any

from openrlhf.datasets import PromptDataset

from answer_graders.labels import label_text
from openrlhf_js.trainers.openrlhf.checks.lengths import measured
from openrlhf_js.trainers.openrlhf.checks.rewards import is_our_task
from openrlhf_js.trainers.openrlhf.records import Label


class CheckedPrompts(PromptDataset):  # type: ignore[misc]
    """Upstream's data set, with only the prompts that fit, and with labels as `Label`s.

    Upstream uses the datasource only for the metrics of an evaluation. `problem` says why the
    prompts or labels cannot be trained on; None if they can.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any):
        super().__init__(dataset, *args, **kwargs)
        on_agent = self.strategy.args.train.agent_func_path  # an agent writes the prompts itself
        self.problem = self._unreadable_label()
        if self.problem is None and not on_agent:
            self.problem = self._leave_out_long()

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        datasource, prompt, _, images = super().__getitem__(idx)
        return datasource, prompt, self._label(idx), images

    def _label(self, place: int) -> Label:
        datasource = self.datasources[place]
        return Label(self.labels[place], datasource if isinstance(datasource, str) else "")

    def _unreadable_label(self) -> str | None:
        """The first label that is neither text nor a whole number, if one of our tasks grades it.

        Labels in local files were checked before; those of a data set on a hub are first seen here.
        """
        for number, label in enumerate(self.labels, 1):
            try:
                label_text(label)
            except ValueError as error:
                is_ours = is_our_task(self.strategy.args.js.task)
                return f"row {number:,}: {error}" if is_ours else None
        return None

    def _leave_out_long(self) -> str | None:
        """Drops prompts that are too long, if allowed; returns any problem that remains."""
        args = self.strategy.args
        lengths = measured(
            self.tokenizer,
            prompts=self.prompts,
            images=self.images,
            max_len=args.data.max_len,
            max_new_tokens=args.rollout.max_new_tokens,
        )
        problem = lengths.problem(may_drop=args.js.on_long_prompt == "drop")
        if problem is None and lengths.too_long:
            print(f"openrlhf_js: left out {lengths.described()}", flush=True)
            too_long = {*lengths.too_long}
            for name in ("prompts", "labels", "images", "datasources"):
                values = getattr(self, name)
                setattr(self, name, [v for place, v in enumerate(values) if place not in too_long])
        return problem
