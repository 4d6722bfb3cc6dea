"""The prompts of a run, before it begins: files that upstream can read, and prompts that fit.

Upstream cuts off the beginning of a prompt that leaves no room for a response, and trains on what
is left. An empty prompt ends the run at the step that draws it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.processors import parts
from openrlhf_js.plugin.data_files import first_rows, order_of, parse_probabilities, read_local
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.reward_model.checkpoint import first_line

Flat = dict[str, Any]  # "rollout.batch_size" -> value

SPLITS = {"data.prompt_dataset": "data.prompt_split", "eval.dataset": "eval.split"}  # flags
BASE64_CHARACTERS = 256  # that upstream takes for an image; a shorter text is a path
AT_ONCE = 256  # prompts
OWN_CODE = "trust_remote_code"  # in what transformers says of a tokenizer that has some


# --- lengths -----------------------------------------------------------------------------------


class Room(NamedTuple):
    """Tokens of `--data.max_len`, and those of them that are kept for the response."""

    max_len: int
    response: int

    @classmethod
    def of(cls, max_len: int, max_new_tokens: int | None) -> Room:
        """As upstream counts: without --rollout.max_new_tokens, one token is kept."""
        return cls(max_len, max_new_tokens or 1)

    @property
    def prompt(self) -> int:
        """The most tokens that a prompt may have."""
        return self.max_len - self.response


class Measured(NamedTuple):
    """Places of texts without any token, and of those that are too long with their tokens."""

    empty: list[int]
    long: dict[int, int]


def measure(texts: Mapping[int, str], tokenizer: Any, room: Room) -> Measured:
    """Which of some texts, each at its place, have no token, or too many."""
    measured = Measured([], {})
    all_places = list(texts)
    with progress("tokens of prompts", len(texts), "prompts") as bar:
        for start in range(0, len(texts), AT_ONCE):
            places = all_places[start : start + AT_ONCE]
            batch = [texts[place] for place in places]
            encoded = tokenizer(text=batch, add_special_tokens=False, verbose=False)
            for place, tokens in zip(places, encoded.input_ids, strict=True):
                if not tokens:
                    measured.empty.append(place)
                elif len(tokens) > room.prompt:
                    measured.long[place] = len(tokens)
            bar.advance(len(places))
    return measured


def describe_long(measured: Measured, prompts: int, room: Room) -> str:
    """How many prompts are too long, and the longest."""
    longest = max(measured.long, key=lambda place: measured.long[place])
    return (
        f"prompts of more than {room.prompt:,} tokens, which --data.max_len {room.max_len} leaves "
        f"beside {room.response} for the response: {len(measured.long):,} of {prompts:,}, up to "
        f"{measured.long[longest]:,} in row {longest + 1:,}"
    )


def misfits(measured: Measured, prompts: int, room: Room, *, drops: bool) -> Iterator[str]:
    """The problems of measured prompts, of which `--js.on_long_prompt drop` drops the long ones."""
    if measured.empty:
        yield f"row {measured.empty[0] + 1:,} is an empty prompt: leave it out"
    if measured.long and not drops:
        long = describe_long(measured, prompts, room)
        yield f"{long}; raise --data.max_len, or add --js.on_long_prompt drop"


# --- what training makes of a row --------------------------------------------------------------


def load_tokenizer(flat: Flat) -> Any:
    """The policy's tokenizer; None where only the trainer, which has another one, can measure.

    That is so where an agent writes what the model reads, where images are part of it, where the
    model is on a hub and was not loaded yet, and where the tokenizer has code of its own, which
    only OpenRLHF runs. Raises BadInput if a tokenizer, or a chat template that is asked for, is
    missing.
    """
    from transformers import AutoTokenizer  # slow to import

    name = flat["actor.model_name_or_path"]
    if not name or flat["train.agent_func_path"] or flat["data.max_images_per_prompt"] > 0:
        return None
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name,
            local_files_only=True,
            use_fast=not flat["data.disable_fast_tokenizer"],
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        if OWN_CODE in str(error) or not os.path.exists(name):
            say(f"openrlhf_js: no tokenizer of {name} yet: the trainer will measure the prompts")
            return None
        raise _no_tokenizer(name, error) from error
    except Exception as error:  # whatever transformers and tokenizers raise of damaged files
        raise _no_tokenizer(name, error) from error
    if flat["data.apply_chat_template"] and not tokenizer.chat_template:
        raise BadInput(
            f"--data.apply_chat_template: the tokenizer of {name} has no chat template: take an "
            "instruct variant of the model, or leave the flag out"
        )
    return tokenizer


def _no_tokenizer(name: str, error: Exception) -> BadInput:
    reason = first_line(error) or type(error).__name__
    return BadInput(f"--actor.model_name_or_path {name}: no tokenizer ({reason})")


def render(prompt: Any, flat: Flat, tokenizer: Any) -> str:
    """The text that upstream's `preprocess_data` makes of a row's prompt."""
    template = flat["data.input_template"]
    if flat["data.apply_chat_template"]:
        chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        split = [{**message, "content": _split(message.get("content"))} for message in chat]
        return tokenizer.apply_chat_template(split, tokenize=False, add_generation_prompt=True)
    if template and "{}" in template:  # upstream ignores any other
        return template.format(prompt)
    return prompt


def _split(content: Any) -> Any:
    return parts(content) if isinstance(content, str) else content


def _render_all(prompts: Sequence[Any], flat: Flat, tokenizer: Any) -> dict[int, str]:
    """The texts of all rows, each at its place; BadInput for a row that becomes none."""
    texts = {}
    with progress("reading prompts", len(prompts), "prompts") as bar:
        for place, prompt in enumerate(prompts):
            try:
                texts[place] = render(prompt, flat, tokenizer)
            except Exception as error:  # whatever a template raises
                reason = f"{type(error).__name__}: {first_line(error)}"
                raise BadInput(f"row {place + 1:,} does not become a prompt ({reason})") from error
            bar.advance()
    return texts


# --- data sets ---------------------------------------------------------------------------------


@dataclass
class DataSet:
    """What a check finds out about the rows of a data set that are trained or evaluated."""

    name: str  # of its flag and its path
    problems: list[str] = field(default_factory=list)
    prompts: list[Any] | None = None  # None: not seen, or no prompts
    left_out: Collection[int] = ()  # places of prompts, from 0


def check_prompts(flat: Flat) -> tuple[list[str], int | None]:
    """The problems of both data sets, and the number of prompts of an episode.

    None if it is not known. Data sets on a hub pass unseen: the trainer measures their prompts.
    """
    names = flat["data.prompt_dataset"]
    if not names:
        return ["--data.prompt_dataset is missing: a file, a folder or a name on a hub"], None
    trained = _data_sets(flat, "data.prompt_dataset")
    data_sets = trained + _data_sets(flat, "eval.dataset")
    problems: list[str] = []
    measured = False
    try:
        measured = _measure_all(data_sets, flat)
    except BadInput as error:
        problems.append(str(error))
    for data_set in data_sets:
        problems += [f"{data_set.name}: {problem}" for problem in data_set.problems]
    if flat["js.on_long_prompt"] == "drop" and not measured:
        return problems, None
    try:
        return problems, _count_prompts(trained, flat)
    except BadInput as error:
        return [*problems, str(error)], None


def _count_prompts(data_sets: Sequence[DataSet], flat: Flat) -> int | None:
    """How many prompts are trained in an episode; None where a set was not seen."""
    shares = None
    if flat["data.prompt_probs"] is not None:
        shares = parse_probabilities(flat["data.prompt_probs"], len(data_sets))
    sizes = []
    for data_set in data_sets:
        if data_set.prompts is None or data_set.problems:
            return None
        sizes.append(len(data_set.prompts))
    order = order_of(sizes, shares, flat["train.seed"])[: flat["data.max_samples"]]
    return sum(row not in data_sets[number].left_out for number, row in order)


def _measure_all(data_sets: Sequence[DataSet], flat: Flat) -> bool:
    """Adds the problems of prompts that do not fit, or leaves those out; whether it could."""
    room = Room.of(flat["data.max_len"], flat["rollout.max_new_tokens"])
    seen = [data_set for data_set in data_sets if data_set.prompts and not data_set.problems]
    tokenizer = load_tokenizer(flat) if seen and room.prompt > 0 else None
    if tokenizer is None:
        return False
    drops = flat["js.on_long_prompt"] == "drop"
    for data_set in seen:
        prompts = data_set.prompts or []
        try:
            measured = measure(_render_all(prompts, flat, tokenizer), tokenizer, room)
        except BadInput as error:
            data_set.problems = [str(error)]
            continue
        data_set.problems = list(misfits(measured, len(prompts), room, drops=drops))
        if drops and measured.long:
            data_set.left_out = measured.long
            described = describe_long(measured, len(prompts), room)
            say(f"openrlhf_js: {data_set.name}: left out {described}")
    return True


def _data_sets(flat: Flat, flag: str) -> list[DataSet]:
    """The data sets of a comma-separated list, of which `--data.max_samples` rows are taken."""
    data_sets: list[DataSet] = []
    most = flat["data.max_samples"]
    if not flat[flag]:
        return data_sets
    for name in flat[flag].split(","):
        data_set = DataSet(f"--{flag} {name.strip() or repr(name)}")
        try:
            rows = read_local(name, flat[SPLITS[flag]])
            if rows is not None:
                data_set.problems += _column_problems(rows, flat)
                columns = (flat["data.input_key"], flat["data.image_key"])
                _check_rows(data_set, first_rows(rows, most, columns), flat)
        except BadInput as error:
            data_set.problems.append(str(error))
        if flat["data.prompt_probs"] is None:
            most -= len(data_set.prompts or ())
        data_sets.append(data_set)
    return data_sets


def _check_rows(data_set: DataSet, rows: Iterable[Mapping[str, Any]], flat: Flat) -> None:
    """Adds the first problem of prompts and of images, or the prompts if there is none."""
    if data_set.problems:
        return
    images_of_rows = []
    prompts = []
    for row in rows:
        prompts.append(row[flat["data.input_key"]])
        images_of_rows.append(row.get(flat["data.image_key"]))
    data_set.problems += _image_problems(images_of_rows)
    data_set.problems += _type_problems(prompts, flat)
    data_set.prompts = prompts


def _column_problems(data: Any, flat: Flat) -> Iterator[str]:
    for flag in ("data.input_key", "data.label_key"):
        key = flat[flag]
        if key is not None and key not in data.column_names:
            columns = ", ".join(data.column_names)
            yield f"no column {key!r} (--{flag}); there are {columns}"


def _type_problems(prompts: Sequence[Any], flat: Flat) -> list[str]:
    """The first prompt that is neither text nor, with a chat template, a list of messages."""
    allowed: tuple[type, ...] = (str,)
    advice = ", or with --data.apply_chat_template a list of messages"
    if flat["data.apply_chat_template"]:
        allowed = (str, list)
        advice = ""
    for number, prompt in enumerate(prompts, 1):
        if not isinstance(prompt, allowed):
            kind = type(prompt).__name__
            return [f"row {number:,}: {flat['data.input_key']!r} holds {kind}, not text{advice}"]
    return []


def _image_problems(images_of_rows: Iterable[Any]) -> list[str]:
    """The first image that does not exist, of those that upstream takes for paths."""
    for number, images in enumerate(images_of_rows, 1):
        for image in images if isinstance(images, list) else [images]:
            if not isinstance(image, str) or len(image) > BASE64_CHARACTERS:
                continue
            if not re.match("https?://|data:image", image) and not os.path.isfile(image):
                return [f"row {number} shows an image that does not exist: {image}"]
    return []
