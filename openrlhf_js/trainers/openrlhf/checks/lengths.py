"""Prompts as the policy reads them: whether its chat template accepts each, and their lengths.

Upstream cuts off the beginning of a prompt that leaves no room for a response, and trains on what
is left. An empty prompt ends the run at the step that draws it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from answer_graders.programs.console import progress
from openrlhf_js.common.processors import load_processor
from openrlhf_js.reward_model.checkpoint import first_line
from openrlhf_js.trainers.openrlhf.checks.batch_sizes import too_few_prompts
from openrlhf_js.trainers.openrlhf.checks.models import TRUST
from openrlhf_js.trainers.openrlhf.checks.prompts import SPLITS, DataSet
from openrlhf_js.trainers.openrlhf.data_files import first_rows
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_function
from openrlhf_js.trainers.openrlhf.upstream import BadInput

AT_ONCE = 256  # prompts
MODEL = "actor.model_name_or_path"


class Lengths(NamedTuple):
    """How many tokens each prompt of a data set has, and how many it may have."""

    tokens: list[int | None]
    """One number per prompt; None if it has images: upstream itself refuses those if too long."""
    max_len: int
    response: int
    """Tokens reserved for a response."""

    @property
    def known(self) -> list[int]:
        """The tokens of the prompts that were measured."""
        return [count for count in self.tokens if count is not None]

    @property
    def room(self) -> int:
        """The tokens that a prompt may have."""
        return self.max_len - self.response

    @property
    def too_long(self) -> list[int]:
        """The places of prompts that leave no room for a response."""
        return [place for place, count in enumerate(self.tokens) if (count or 0) > self.room]

    def described(self) -> str:
        """The prompts that are too long, in words."""
        longest = max(self.known)
        return (
            f"prompts longer than {self.room:,} tokens (--data.max_len {self.max_len}, less "
            f"{self.response} for the response): {len(self.too_long):,} of "
            f"{len(self.tokens):,}, up to {longest:,} in row {self.tokens.index(longest) + 1:,}"
        )

    def problem(self, may_drop: bool) -> str | None:
        """Why the prompts cannot be trained on; None if they can."""
        if 0 in self.tokens:
            return f"row {self.tokens.index(0) + 1:,} is an empty prompt: leave it out"
        if self.too_long and not may_drop:
            return f"{self.described()}; raise --data.max_len, or add --js.on_long_prompt drop"
        if self.too_long and len(self.too_long) == len(self.tokens):
            return f"{self.described()}: no prompt is left"
        return None


def measured(
    tokenizer: Any,
    prompts: Sequence[str],
    images: Sequence[Any],
    max_len: int,
    max_new_tokens: int | None,
) -> Lengths:
    """The lengths of prompts; `images` has the images of each prompt, None if it has none.

    `tokenizer` may be the processor of a vision model.
    """
    places = list(range(len(prompts)))
    if hasattr(tokenizer, "image_processor"):
        tokenizer = tokenizer.tokenizer
        places = [place for place in places if not images[place]]
    tokens: list[int | None] = [None] * len(prompts)
    for start in range(0, len(places), AT_ONCE):
        batch = places[start : start + AT_ONCE]
        texts = [prompts[place] for place in batch]
        encoded = tokenizer(text=texts, add_special_tokens=False, verbose=False)
        for place, ids in zip(batch, encoded.input_ids, strict=True):
            tokens[place] = len(ids)
    # upstream counts at least one token for a response
    return Lengths(tokens=tokens, max_len=max_len, response=max_new_tokens or 1)


def check_lengths(
    data_sets: Sequence[DataSet], flat: Flat, tokenizer: Any
) -> dict[str, list[Lengths | None]]:
    """The lengths of the prompts, by the flag of their data sets; None for data sets on a hub.

    Without a tokenizer (`load_tokenizer`) nothing is measured here; the trainer measures later. An
    agent's prompts are not measured, since it writes what the policy reads. Raises BadInput for
    prompts that cannot be trained on.
    """
    if tokenizer is None or flat["train.agent_func_path"]:
        return {}
    found: dict[str, list[Lengths | None]] = {flag: [] for flag in SPLITS}
    problems = []
    may_drop = flat["js.on_long_prompt"] == "drop"
    for data_set in data_sets:
        lengths = problem = None
        try:
            if data_set.rows is not None:
                lengths = _lengths(data_set.rows, flat, tokenizer)
                problem = lengths.problem(may_drop)
        except BadInput as error:
            problem = str(error)
        found[data_set.flag].append(lengths)
        if problem:
            problems.append(f"--{data_set.flag} {data_set.name}: {problem}")
    if problems:
        raise BadInput("\n".join(problems))
    return found


def prompts_left(flat: Flat, lengths: Mapping[str, list[Lengths | None]]) -> int | None:
    """The prompts per episode without those that are too long; None if not known.

    Raises BadInput for too few.
    """
    all_sets = lengths.get("data.prompt_dataset", [])
    measured_sets = [one for one in all_sets if one is not None]
    is_known = 0 < len(measured_sets) == len(all_sets)
    if not is_known or flat["data.prompt_probs"] is not None:
        return None
    fits = [(count or 0) <= one.room for one in measured_sets for count in one.tokens]
    prompts = sum(fits[: flat["data.max_samples"]])
    problems = too_few_prompts(prompts, flat["rollout.batch_size"])
    if problems:
        raise BadInput("\n".join(problems))
    return prompts


def load_tokenizer(flat: Flat, download: bool) -> Any:
    """The tokenizer that upstream will make prompts with; None if it is not on this machine.

    The tokenizer of a model on a hub is used if it is cached or may be downloaded. Raises BadInput
    for a folder without a tokenizer, and for a tokenizer without the chat template that is needed.
    """
    tokenizer = _tokenizer_of(flat, download)
    if tokenizer is not None and flat["data.apply_chat_template"] and not tokenizer.chat_template:
        raise BadInput(
            f"--data.apply_chat_template: the tokenizer of {flat[MODEL]} has no chat template: "
            "take the model's instruct variant, or leave the flag out and give text as the prompts"
        )
    return tokenizer


def _tokenizer_of(flat: Flat, download: bool) -> Any:
    from transformers import AutoTokenizer

    name = flat[MODEL]
    is_folder = os.path.isdir(name)
    sees = flat["data.max_images_per_prompt"] > 0
    if not is_folder and (flat["use_ms"] or (sees and not download)):
        return None
    try:
        if sees:
            return load_processor(name, flat[TRUST])
        return AutoTokenizer.from_pretrained(
            name,
            trust_remote_code=flat[TRUST],
            use_fast=not flat["data.disable_fast_tokenizer"],
            local_files_only=not download,
        )
    except Exception as error:  # tokenizers raises bare Exceptions on damaged files
        if not is_folder:
            return None  # upstream says why
        raise BadInput(f"--{MODEL} {name}: no tokenizer ({first_line(error)})") from None


def prompt_of(row: Mapping[str, Any], flat: Flat, tokenizer: Any) -> str:
    """The prompt that upstream makes of a row; no chat template is applied without a tokenizer."""
    template = flat["data.input_template"]
    with_template = flat["data.apply_chat_template"] and tokenizer is not None
    preprocess_data = upstream_function("preprocess_data", "prompts_dataset", "datasets")
    prompt, _ = preprocess_data(
        row,
        input_template=template if template and "{}" in template else None,
        input_key=flat["data.input_key"],
        apply_chat_template=tokenizer.apply_chat_template if with_template else None,
    )
    return str(prompt)


def _lengths(rows: Any, flat: Flat, tokenizer: Any) -> Lengths:
    """The lengths of the prompts that upstream makes of rows; BadInput for a row that fails."""
    image_key = flat["data.image_key"]
    columns = (flat["data.input_key"], image_key)
    used = first_rows(rows, flat["data.max_samples"], columns)
    prompts = []
    images = []
    with progress("reading prompts", len(used)) as bar:
        for number, row in enumerate(used, 1):
            try:
                prompt = prompt_of(row, flat, tokenizer)
            except Exception as error:  # a template can raise anything
                template = f"--data.input_template {flat['data.input_template']!r}"
                if flat["data.apply_chat_template"]:
                    template = f"the chat template of {flat[MODEL]}"
                raise BadInput(
                    f"row {number:,} is refused by {template}: {first_line(error)}"
                ) from None
            prompts.append(prompt)
            images.append(row.get(image_key))
            bar.advance()
    with _one_thread():
        return measured(
            tokenizer,
            prompts=prompts,
            images=images,
            max_len=flat["data.max_len"],
            max_new_tokens=flat["rollout.max_new_tokens"],
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps tokenizers from starting threads, for which a CPU run's forks would wait for ever."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
