"""A pool: sampled responses to prompts, with their rewards.

FOLDER/samples/ holds `prompts.jsonl`, `responses.jsonl`, and for each reward function
`rewards-HASH.jsonl`, so that another one grades without sampling again. `settings.json` says what
the samples depend on and which reward function was the last.
"""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openrlhf_js import __version__
from openrlhf_js.common.console import progress
from openrlhf_js.common.files import write_json
from openrlhf_js.common.store import Key, Store, read_store
from openrlhf_js.lab.results import versions
from openrlhf_js.sampling.engines import key
from openrlhf_js.sampling.models import ModelFiles
from openrlhf_js.sampling.prompts import Prompt
from openrlhf_js.sampling.settings import SamplingSettings
from openrlhf_js.tasks.rewards import RewardFunction, reward_by_datasource, reward_function

FOLDER, SETTINGS = "samples", "settings.json"
PROMPTS, RESPONSES = "prompts.jsonl", "responses.jsonl"
# Settings whose change does not matter; of prompts_sha256, older versions made a setting.
NOTES = ("model", "prompts", "prompts_sha256", "device", "versions")
DRAWING = ("max_new_tokens", "temperature", "top_p")
GREEDY = -1  # the draw of the greedy response


class Samples(NamedTuple):
    """Responses of a policy with their rewards: n prompts in order, m responses to each."""

    prompts: list[str]  # with the chat template if there is one
    labels: list[str]
    groups: list[str]  # data sources, such as `math/level_3`; "" for none
    prompt_tokens: list[list[int]]
    response_tokens: list[list[NDArray[np.int32]]]  # with the end token where the model ended
    rewards: NDArray[np.float64]  # (n, m), finite
    finished: NDArray[np.bool_]  # (n, m) whether the model ended the response
    greedy_rewards: NDArray[np.float64]  # (n,)
    settings: dict[str, Any]  # what the samples depend on
    past: NDArray[np.float64] | None = None  # (n, k) rewards of an earlier checkpoint

    def at(self, rows: Sequence[int] | NDArray[np.int64], responses: int | None = None) -> Samples:
        """The pool of some prompts, and of these the first responses."""
        prompts, labels, groups = ([each[i] for i in rows] for each in self[:3])
        return Samples(
            *(prompts, labels, groups),
            [self.prompt_tokens[i] for i in rows],
            [self.response_tokens[i][:responses] for i in rows],
            self.rewards[rows, :responses],
            self.finished[rows, :responses],
            self.greedy_rewards[rows],
            self.settings,
            None if self.past is None else self.past[rows],
        )

    def after(self, earlier: Samples) -> Samples:
        """The pool with the rewards that the same prompts had under an earlier checkpoint."""
        asked = zip(earlier.prompts, earlier.labels, strict=True)
        places = {each: place for place, each in enumerate(asked)}
        own = [*zip(self.prompts, self.labels, strict=True)]
        if missing := [prompt for prompt, label in own if (prompt, label) not in places]:
            raise ValueError(f"--past lacks {len(missing)} prompts, such as {missing[0]!r:.200}")
        return self._replace(past=earlier.rewards[[places[each] for each in own]])


class RewardFailed(RuntimeError):
    """A response without a usable reward."""


class GroupLabel(str):
    """A label that knows its row's data source, by which mixed data is graded."""

    datasource: str


@dataclass(frozen=True)
class Grader:
    """A reward function `reward_func(queries, prompts, labels)` with a name and a fingerprint.

    A query is a prompt and its response in one text.
    """

    function: RewardFunction
    name: str
    sha256: str

    def grade(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]
    ) -> NDArray[np.float64]:
        """The reward of each query; RewardFailed unless each is one finite number."""
        try:
            answer: Any = self.function(list(queries), list(prompts), list(labels))
            found = answer["rewards"] if isinstance(answer, dict) else answer
            rewards = torch.as_tensor(found, dtype=torch.float64).detach().cpu().flatten().numpy()
            if rewards.shape != (len(queries),) or not np.isfinite(rewards).all():
                raise ValueError(f"one finite number for each of {len(queries)} queries: {rewards}")
        except Exception as error:  # whatever a user's own file raises
            message = f"{self.name}: {type(error).__name__}: {error}"
            raise RewardFailed(f"{message}\namong responses to {prompts[0]!r:.200}") from error
        return rewards


def file_grader(path: Path) -> Grader:
    """The `reward_func` of a Python file."""
    found = runpy.run_path(str(path))
    if "reward_func" not in found:
        raise ValueError(f"--reward {path} gives no reward_func(queries, prompts, labels)")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Grader(found["reward_func"], str(path), sha256)


def task_grader(task: str | None) -> Grader:
    """The grader of a task, as `reward_models/<task>.py` has it; None: of each row's task."""
    digest = hashlib.sha256(f"{task} {__version__}".encode()).hexdigest()
    if task is None:
        return Grader(reward_by_datasource, "the tasks of the rows", digest)
    return Grader(reward_function(task), f"task {task}", digest)


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
    longest = max(len(each.tokens) for each in wanted)
    drawing = {name: getattr(settings, name) for name in DRAWING}
    policy = settings.policy(files, longest, **drawing)
    identity = {
        **{"model": str(files.folder), **source, **drawing, "seed": settings.seed},
        **{**settings.engine_identity(), "versions": versions()},
    }
    with (
        Store(folder / RESPONSES, identity, ("prompt", "draw"), NOTES) as said,
        Store(folder / PROMPTS, {}, ("prompt",)) as prompts,
        Store(_rewards_path(folder, grader.sha256), {}, ("prompt", "draw")) as rewards,
    ):
        _record(prompts, wanted)
        texts = {key[0]: _prompt(each) for key, each in prompts.records.items()}
        reward = {"reward": grader.name, "reward_sha256": grader.sha256}
        write_json(folder / SETTINGS, {**identity, **reward})

        def grade(keys: Sequence[Key]) -> None:
            tokens = [_tokens(said.records[each]["tokens"]).tolist() for each in keys]
            of = [texts[prompt] for prompt, _ in keys]
            queries = [
                files.tokenizer.decode(prompt.tokens + own, skip_special_tokens=False)
                for prompt, own in zip(of, tokens, strict=True)
            ]
            labels = [GroupLabel(each.label) for each in of]
            for label, each in zip(labels, of, strict=True):
                label.datasource = each.group
            found = grader.grade(queries, [each.text for each in of], labels).tolist()
            rewards.append(
                {"prompt": i, "draw": j, "reward": reward}
                for (i, j), reward in zip(keys, found, strict=True)
            )

        ungraded = [each for each in said.records if each not in rewards]
        with progress("grading", len(ungraded), "responses") as bar:
            for keys in _chunks(ungraded, settings.rows):
                grade(keys)
                bar.advance(len(keys))
        missing = [
            [(i, j) for i in range(len(wanted)) for j in draws if (i, j) not in said]
            for draws in ([GREEDY], range(responses))
        ]
        if not any(missing):
            return
        engine = settings.load(policy)
        with progress("sampling", sum(map(len, missing)), "responses") as bar:
            for keys in (chunk for each in missing for chunk in _chunks(each, settings.rows)):
                tokens = [texts[i].tokens for i, _ in keys]
                seeds = [key(settings.seed, i, j) for i, j in keys if j != GREEDY]
                found = engine.sample(tokens, seeds or None)
                said.append(
                    {
                        **{"prompt": i, "draw": j, "tokens": " ".join(map(str, each.tolist()))},
                        "finished": bool(len(each)) and int(each[-1]) in policy.ends,
                    }
                    for (i, j), each in zip(keys, found, strict=True)
                )
                grade(keys)
                bar.advance(len(keys))


def _record(store: Store, wanted: Sequence[Prompt]) -> None:
    """Adds prompts; those of before must be the first of them, or they the first of those."""
    for i, prompt in enumerate(wanted):
        if (i,) in store and _prompt(store.records[i,]) != prompt:
            raise ValueError(
                f"{store.path} has other prompts; give another --out, or delete {store.path.parent}"
            )
    store.append(
        {"prompt": i, **prompt._asdict()} for i, prompt in enumerate(wanted) if (i,) not in store
    )


def _prompt(record: Mapping[str, Any]) -> Prompt:
    return Prompt(*(record[name] for name in Prompt._fields))


def _chunks(keys: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


def _rewards_path(folder: Path, sha256: str) -> Path:
    return folder / f"rewards-{sha256[:12]}.jsonl"


def _tokens(text: str) -> NDArray[np.int32]:
    return np.array(text.split(), dtype=np.int32)


def open_samples(out: Path, prompts: int | None = None) -> Samples:
    """The pool below --out: the first prompts (or all) with the responses that each of them has."""
    folder = out / FOLDER
    if not (folder / SETTINGS).is_file():
        raise ValueError(
            f"{out} holds no samples: say with --model and --prompts (or --task) what to sample"
        )
    settings = json.loads((folder / SETTINGS).read_bytes())
    asked = [_prompt(each) for each in read_store(folder / PROMPTS)[1]][:prompts]
    said = {(each["prompt"], each["draw"]): each for each in read_store(folder / RESPONSES)[1]}
    graded = read_store(_rewards_path(folder, settings["reward_sha256"]))[1]
    rewards = {(each["prompt"], each["draw"]): each["reward"] for each in graded}
    n = len(asked)
    m = min((next(j for j in count() if (i, j) not in said) for i in range(n)), default=0)
    keys = [(i, j) for i in range(n) for j in range(m)]
    greedy = [(i, GREEDY) for i in range(n)]
    if not keys or any(each not in rewards for each in (*keys, *greedy)):
        raise ValueError(f"{folder} is unfinished; the command that sampled it resumes")
    texts, labels, groups, tokens = (
        [getattr(each, name) for each in asked] for name in ("text", "label", "group", "tokens")
    )
    return Samples(
        *(texts, labels, groups, tokens),
        [[_tokens(said[i, j]["tokens"]) for j in range(m)] for i in range(n)],
        np.array([rewards[each] for each in keys], dtype=np.float64).reshape(n, m),
        np.array([said[each]["finished"] for each in keys]).reshape(n, m),
        np.array([rewards[each] for each in greedy], dtype=np.float64),
        settings,
    )
