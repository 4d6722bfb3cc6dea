"""A pool: sampled responses to prompts, with their rewards.

FOLDER/samples/ holds `prompts.jsonl`, `responses.jsonl`, and for each reward function
`rewards-HASH.jsonl`, so that another one grades without sampling again. `settings.json` says what
the samples depend on and which reward function was the last.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import write_json
from openrlhf_js.common.store import Record, Store, read_store
from openrlhf_js.lab.grading import Grader, label_of
from openrlhf_js.lab.results import Ints, versions
from openrlhf_js.sampling.engines import Response
from openrlhf_js.sampling.engines import key as seed_of
from openrlhf_js.sampling.models import ModelFiles
from openrlhf_js.sampling.prompts import Prompt
from openrlhf_js.sampling.settings import SamplingSettings
from openrlhf_js.stats.estimate import Floats

FOLDER = "samples"
SETTINGS = "settings.json"
PROMPTS = "prompts.jsonl"
RESPONSES = "responses.jsonl"
# Settings whose change does not matter; of prompts_sha256, older versions made a setting.
NOTES = ("model", "prompts", "prompts_sha256", "device", "versions")
DRAWING = ("max_new_tokens", "temperature", "top_p")
KEY = ("prompt", "draw")
GREEDY = -1  # the draw of the greedy response

ResponseKey: TypeAlias = tuple[int, int]  # the places of a prompt and of its draw


class Samples(NamedTuple):
    """Responses of a policy with their rewards: n prompts in order, m responses to each."""

    prompts: list[Prompt]
    response_tokens: list[list[Response]]
    """With the end token where the model ended."""
    rewards: Floats
    """(n, m) finite."""
    finished: NDArray[np.bool_]
    """(n, m) whether the model ended the response."""
    greedy_rewards: Floats
    """(n,)"""
    settings: dict[str, Any]
    """What the samples depend on."""
    past: Floats | None = None
    """(n, k) rewards of an earlier checkpoint."""

    @property
    def lengths(self) -> Ints:
        """(n, m) tokens of the responses."""
        return np.array([[len(tokens) for tokens in row] for row in self.response_tokens])

    def at(self, rows: Sequence[int] | Ints, responses: int | None = None) -> Samples:
        """The pool of some prompts, and of these the first responses."""
        return self._replace(
            prompts=[self.prompts[row] for row in rows],
            response_tokens=[self.response_tokens[row][:responses] for row in rows],
            rewards=self.rewards[rows, :responses],
            finished=self.finished[rows, :responses],
            greedy_rewards=self.greedy_rewards[rows],
            past=None if self.past is None else self.past[rows],
        )

    def after(self, earlier: Samples) -> Samples:
        """The pool with the rewards that the same prompts had under an earlier checkpoint."""
        earlier_rewards = {}
        for prompt, rewards in zip(earlier.prompts, earlier.rewards, strict=True):
            earlier_rewards[prompt.text, prompt.label] = rewards
        questions = [(prompt.text, prompt.label) for prompt in self.prompts]
        missing = [question for question in questions if question not in earlier_rewards]
        if missing:
            text, _ = missing[0]
            raise ValueError(f"--past lacks {len(missing)} prompts, such as {text!r:.200}")
        past = [earlier_rewards[question] for question in questions]
        return self._replace(past=np.stack(past))


def fill(
    out: Path,
    settings: SamplingSettings,
    files: ModelFiles,
    source: Mapping[str, Any],
    wanted: Sequence[Prompt],
    responses: int,
    grader: Grader,
) -> None:
    """Samples and grades what `out/samples` lacks; responses are kept before they are graded.

    `source` is what the responses depend on beside the settings: prompts, form and model.
    """
    folder = out / FOLDER
    identity = {
        "model": str(files.folder),
        **source,
        **_drawing(settings),
        "seed": settings.seed,
        **settings.engine_identity(),
        "versions": versions(),
    }
    with (
        Store(folder / RESPONSES, identity, KEY, NOTES) as response_store,
        Store(folder / PROMPTS, {}, ("prompt",)) as prompt_store,
        Store(_rewards_path(folder, grader.sha256), {}, KEY) as reward_store,
    ):
        _add_prompts(prompt_store, wanted)
        reward = {"reward": grader.name, "reward_sha256": grader.sha256}
        write_json(folder / SETTINGS, {**identity, **reward})
        prompts = {record["prompt"]: _prompt(record) for record in prompt_store.records.values()}
        grading = _Grading(prompts, response_store, reward_store, grader, files.tokenizer)
        grading.grade_missing(settings.rows)
        _sample_missing(grading, settings, files, wanted, responses)


@dataclass(frozen=True)
class _Grading:
    """The stores of a pool, and how its responses are graded."""

    prompts: Mapping[int, Prompt]
    responses: Store
    rewards: Store
    grader: Grader
    tokenizer: Any

    def grade(self, keys: Sequence[ResponseKey]) -> None:
        """Adds the rewards of responses."""
        prompts = [self.prompts[prompt] for prompt, _ in keys]
        queries = [self._query(key) for key in keys]
        texts = [prompt.text for prompt in prompts]
        labels = [label_of(prompt) for prompt in prompts]
        rewards = self.grader.grade(queries, texts, labels).tolist()
        records = []
        for (prompt, draw), reward in zip(keys, rewards, strict=True):
            records.append({"prompt": prompt, "draw": draw, "reward": reward})
        self.rewards.append(records)

    def _query(self, key: ResponseKey) -> str:
        """A prompt and its response in one text, with the end token."""
        prompt, _ = key
        tokens = self.prompts[prompt].tokens + _tokens(self.responses.records[key]).tolist()
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))

    def grade_missing(self, rows: int) -> None:
        """Grades what was sampled before and has no reward, so many responses at a time."""
        ungraded = _absent(self.responses.records, self.rewards)
        with progress("grading", len(ungraded), "responses") as bar:
            for keys in _chunks(ungraded, rows):
                self.grade(keys)
                bar.advance(len(keys))


def _sample_missing(
    grading: _Grading,
    settings: SamplingSettings,
    files: ModelFiles,
    wanted: Sequence[Prompt],
    responses: int,
) -> None:
    """Samples and grades the responses that the store lacks, greedy ones first."""
    prompts = range(len(wanted))
    greedy = _absent(product(prompts, [GREEDY]), grading.responses)
    random = _absent(product(prompts, range(responses)), grading.responses)
    if not greedy and not random:
        return
    longest = max(len(prompt.tokens) for prompt in wanted)
    policy = settings.policy(files, longest, **_drawing(settings))
    engine = settings.load(policy)
    with progress("sampling", len(greedy) + len(random), "responses") as bar:
        for keys in chain(_chunks(greedy, settings.rows), _chunks(random, settings.rows)):
            tokens = [grading.prompts[prompt].tokens for prompt, _ in keys]
            seeds = [
                seed_of(settings.seed, prompt, draw) for prompt, draw in keys if draw != GREEDY
            ]
            records = []
            for key, response in zip(keys, engine.sample(tokens, seeds or None), strict=True):
                records.append(_response_record(key, response, policy.ends))
            grading.responses.append(records)
            grading.grade(keys)
            bar.advance(len(keys))


def _absent(keys: Iterable[Any], store: Store) -> list[ResponseKey]:
    """The keys that a store has no record of."""
    return [key for key in keys if key not in store]


def _response_record(key: ResponseKey, response: Response, ends: Sequence[int]) -> dict[str, Any]:
    """What is stored of a response."""
    prompt, draw = key
    tokens = response.tolist()
    return {
        "prompt": prompt,
        "draw": draw,
        "tokens": " ".join(map(str, tokens)),
        "finished": bool(tokens) and tokens[-1] in ends,
    }


def _add_prompts(store: Store, wanted: Sequence[Prompt]) -> None:
    """Adds prompts; those of before must be the first of them, or they the first of those."""
    new = []
    for number, prompt in enumerate(wanted):
        if (number,) not in store:
            new.append({"prompt": number, **prompt._asdict()})
        elif _prompt(store.records[number,]) != prompt:
            raise ValueError(
                f"{store.path} has other prompts; give another --out, or delete {store.path.parent}"
            )
    store.append(new)


def open_samples(out: Path, prompts: int | None = None) -> Samples:
    """The pool below --out: the first prompts (or all) with the responses that each of them has."""
    folder = out / FOLDER
    if not (folder / SETTINGS).is_file():
        raise ValueError(
            f"{out} holds no samples: say with --model and --prompts (or --task) what to sample"
        )
    settings = json.loads((folder / SETTINGS).read_bytes())
    asked = [_prompt(record) for record in _records(folder / PROMPTS)][:prompts]
    records = {}
    for record in _records(folder / RESPONSES):
        records[_key(record)] = record
    for record in _records(_rewards_path(folder, settings["reward_sha256"])):
        if _key(record) in records:
            records[_key(record)]["reward"] = float(record["reward"])
    responses = _responses_to_each(records, len(asked))
    greedy = []
    random = []
    for prompt in range(len(asked)):
        greedy.append(records.get((prompt, GREEDY), {}))
        random.append([records[prompt, draw] for draw in range(responses)])
    if not responses or any("reward" not in record for record in chain(greedy, *random)):
        raise ValueError(f"{folder} is unfinished; the command that sampled it resumes")
    return Samples(
        prompts=asked,
        response_tokens=[[_tokens(record) for record in row] for row in random],
        rewards=np.array([[record["reward"] for record in row] for row in random]),
        finished=np.array([[record["finished"] for record in row] for row in random]),
        greedy_rewards=np.array([record["reward"] for record in greedy]),
        settings=settings,
    )


def _responses_to_each(records: Container[ResponseKey], prompts: int) -> int:
    """How many responses, without a gap, every prompt has."""
    draw = 0
    while prompts and all((prompt, draw) in records for prompt in range(prompts)):
        draw += 1
    return draw


def _records(path: Path) -> Iterator[Record]:
    """The records of a store, without its identity."""
    _, records = read_store(path)
    return records


def _key(record: Record) -> ResponseKey:
    """Which response a record is of."""
    return record["prompt"], record["draw"]


def _prompt(record: Mapping[str, Any]) -> Prompt:
    """The prompt that a record holds."""
    return Prompt._make(record[name] for name in Prompt._fields)


def _tokens(record: Mapping[str, Any]) -> Response:
    """The tokens of a response's record."""
    return np.array(record["tokens"].split(), dtype=np.int32)


def _drawing(settings: SamplingSettings) -> dict[str, Any]:
    """The settings of a single response."""
    return {name: getattr(settings, name) for name in DRAWING}


def _rewards_path(folder: Path, sha256: str) -> Path:
    """Where the rewards of one grader are."""
    return folder / f"rewards-{sha256[:12]}.jsonl"


def _chunks(keys: Sequence[ResponseKey], size: int) -> Iterator[Sequence[ResponseKey]]:
    """The keys in runs of `size`."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
