"""A pool: sampled responses to prompts, with their rewards.

FOLDER/samples/ holds `prompts.jsonl`, `responses.jsonl`, and a `rewards-HASH.jsonl` for each reward
function, so another one can grade without sampling again. `settings.json` records what the samples
depend on and the reward function used last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from answer_graders.programs.files import write_json
from answer_graders.programs.store import Record, Store, read_store
from baseline_research.lab.grading import Grader
from baseline_research.lab.results import Ints, versions
from paired_eval.sampling.complete import Outcomes, complete, in_batches, missing
from paired_eval.sampling.models import ModelFiles
from paired_eval.sampling.parameters import Response
from paired_eval.sampling.parameters import key as seed_of
from paired_eval.sampling.prompts import Prompt
from paired_eval.sampling.sampler import LocalEngine, Parameters, SampledResponse
from paired_eval.sampling.settings import SamplingSettings
from paired_eval.stats.estimate import Floats

FOLDER = "samples"
SETTINGS = "settings.json"
PROMPTS = "prompts.jsonl"
RESPONSES = "responses.jsonl"
# Settings that may change; older versions stored prompts_sha256 as a setting.
NOTES = ("model", "prompts", "prompts_sha256", "device", "versions")
KEY = ("prompt", "draw")
GREEDY = -1  # the draw of the greedy response


class ResponseKey(NamedTuple):
    """Identifies a response by the index of its prompt and the number of its draw."""

    prompt: int
    draw: int


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

    @property
    def lengths(self) -> Ints:
        """(n, m) tokens of the responses."""
        return np.array([[len(tokens) for tokens in row] for row in self.response_tokens])

    @property
    def in_unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return bool(self.rewards.min() >= 0 and self.rewards.max() <= 1)

    def at(self, rows: Sequence[int] | Ints, responses: int | None = None) -> Samples:
        """The pool of these prompts, with the first `responses` of each."""
        return self._replace(
            prompts=[self.prompts[row] for row in rows],
            response_tokens=[self.response_tokens[row][:responses] for row in rows],
            rewards=self.rewards[rows, :responses],
            finished=self.finished[rows, :responses],
            greedy_rewards=self.greedy_rewards[rows],
        )


def fill(
    out: Path,
    settings: SamplingSettings,
    files: ModelFiles,
    source: Mapping[str, Any],
    wanted: Sequence[Prompt],
    responses: int,
    grader: Grader,
) -> None:
    """Samples and grades what `out/samples` lacks; responses are stored before they are graded.

    `source` is what the responses depend on besides the settings: prompts, form and model.
    """
    folder = out / FOLDER
    parameters = Parameters(
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_new_tokens=settings.max_new_tokens,
        seed=settings.seed,
    )
    identity = {
        "model": str(files.folder),
        **source,
        **parameters._asdict(),
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
        engine = LocalEngine(settings, files)
        longest_prompt = max(len(prompt.tokens) for prompt in wanted)
        engine.room = longest_prompt + settings.max_new_tokens
        pool = _Pool(prompts, response_store, reward_store, engine, parameters, grader)
        pool.grade_ungraded()
        pool.sample_missing(len(wanted), responses)


@dataclass(frozen=True)
class _Pool:
    """The stores of a pool, and how its responses are sampled and graded."""

    prompts: Mapping[int, Prompt]
    responses: Store
    rewards: Store
    engine: LocalEngine
    parameters: Parameters
    grader: Grader

    def grade_ungraded(self) -> None:
        """Grades the stored responses that have no reward."""
        stored = [_key(record) for record in self.responses.records.values()]
        ungraded = missing(self.rewards, stored)
        work = in_batches(self.engine.settings.rows, self._stored_tokens)
        complete(self.rewards, ungraded, work, self._grade, title="grading")

    def sample_missing(self, prompts: int, responses: int) -> None:
        """Samples and grades the missing responses, greedy ones first."""
        greedy = [ResponseKey(prompt, GREEDY) for prompt in range(prompts)]
        random = [
            ResponseKey(prompt, draw) for prompt in range(prompts) for draw in range(responses)
        ]
        work = in_batches(self.engine.settings.rows, self._sample)
        for keys, title in ((greedy, "sampling greedy ones"), (random, "sampling")):
            complete(self.rewards, missing(self.responses, keys), work, self._grade, title)

    def _stored_tokens(self, keys: Sequence[ResponseKey]) -> list[Response]:
        return [_tokens(self.responses.records[key]) for key in keys]

    def _sample(self, keys: Sequence[ResponseKey]) -> list[Response]:
        """Samples and stores responses, either all greedy or none."""
        prompts = [self.prompts[key.prompt].tokens for key in keys]
        are_greedy = keys[0].draw == GREEDY
        seeds = None if are_greedy else [self._seed(key) for key in keys]
        responses = self.engine.respond(prompts, self.parameters, seeds)
        records = [_record(key, drawn) for key, drawn in zip(keys, responses, strict=True)]
        self.responses.append(records)
        return [response.tokens for response in responses]

    def _seed(self, key: ResponseKey) -> int:
        return seed_of(self.parameters.seed, key.prompt, key.draw)

    def _grade(self, results: Outcomes) -> list[Record]:
        """The records with the rewards of responses."""
        decode = self.engine.files.tokenizer.decode
        prompts = [self.prompts[key.prompt] for key, _ in results]
        queries = []
        for prompt, (_, response) in zip(prompts, results, strict=True):
            tokens = prompt.tokens + response.tolist()  # with the end token
            queries.append(str(decode(tokens, skip_special_tokens=False)))
        rewards = self.grader.grade(
            queries,
            prompts=[prompt.text for prompt in prompts],
            labels=[prompt.label for prompt in prompts],
            datasources=[prompt.group for prompt in prompts],
        )
        return [
            {**key._asdict(), "reward": reward}
            for (key, _), reward in zip(results, rewards.tolist(), strict=True)
        ]


def _add_prompts(store: Store, wanted: Sequence[Prompt]) -> None:
    """Adds prompts. One of the two lists, stored or wanted, must begin with the other."""
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
    """The pool below --out: the first prompts (or all), with the draws that all of them have."""
    folder = out / FOLDER
    if not (folder / SETTINGS).is_file():
        raise ValueError(f"{out} holds no samples: say with --model and --prompts what to sample")
    settings = json.loads((folder / SETTINGS).read_bytes())
    asked = [_prompt(record) for record in _records(folder / PROMPTS)][:prompts]
    responses = {_key(record): record for record in _records(folder / RESPONSES)}
    rewards_path = _rewards_path(folder, settings["reward_sha256"])
    rewards = {_key(record): float(record["reward"]) for record in _records(rewards_path)}

    draws = _complete_draws(responses, len(asked))
    greedy_keys = [ResponseKey(place, GREEDY) for place in range(len(asked))]
    keys = [[ResponseKey(place, draw) for draw in range(draws)] for place in range(len(asked))]
    is_graded = rewards.keys() >= set(greedy_keys).union(*keys)
    if not (draws and is_graded):
        raise ValueError(f"{folder} is unfinished; the command that sampled it resumes")
    drawn = [[responses[key] for key in row] for row in keys]
    return Samples(
        prompts=asked,
        response_tokens=[[_tokens(record) for record in row] for row in drawn],
        rewards=np.array([[rewards[key] for key in row] for row in keys]),
        finished=np.array([[record["finished"] for record in row] for row in drawn]),
        greedy_rewards=np.array([rewards[key] for key in greedy_keys]),
        settings=settings,
    )


def _complete_draws(responses: Collection[ResponseKey], prompts: int) -> int:
    """How many draws every prompt has, without a gap."""
    draws = 0
    while prompts and all((place, draws) in responses for place in range(prompts)):
        draws += 1
    return draws


def _records(path: Path) -> Iterator[Record]:
    """The records of a store, without the first line, its identity; none before the first one."""
    if not path.is_file():
        return iter(())
    _, records = read_store(path)
    return records


def _key(record: Record) -> ResponseKey:
    """The key of a record's response."""
    return ResponseKey(record["prompt"], record["draw"])


def _prompt(record: Mapping[str, Any]) -> Prompt:
    """The prompt in a record."""
    return Prompt._make(record[name] for name in Prompt._fields)


def _record(key: ResponseKey, drawn: SampledResponse) -> Record:
    """The record that stores a response."""
    tokens = " ".join(map(str, drawn.tokens.tolist()))
    return {**key._asdict(), "tokens": tokens, "finished": drawn.ended}


def _tokens(record: Mapping[str, Any]) -> Response:
    """The tokens of a response's record."""
    return np.array(record["tokens"].split(), dtype=np.int32)


def _rewards_path(folder: Path, sha256: str) -> Path:
    """The file with the rewards of one grader."""
    return folder / f"rewards-{sha256[:12]}.jsonl"
