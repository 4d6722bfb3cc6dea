"""Rollouts: seeded responses, and rewards that a grader really gave.

The path of a prompt: `CheckedPrompts` holds it with its label, `OrderedSamples` numbers it and
sends it to an engine, `CheckedRollout` samples and grades its responses there, and `OrderedSamples`
sorts what comes back, as samples with their outcomes.

Upstream logs a grader's exception at INFO and continues with `None`. Here the reward is checked in
the process that asked for it, where the prompt and the error are still known.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import itertools
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import Any, NamedTuple

import ray
import torch
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray import vllm_engine
from openrlhf.utils.agent import SingleTurnAgentExecutor

from answer_graders.labels import call_grader
from answer_graders.marks import marks_of_template, name_marks
from openrlhf_js.common.processors import FORBIDDEN, media_tokens
from openrlhf_js.common.seeds import key
from openrlhf_js.trainers.openrlhf import watch
from openrlhf_js.trainers.openrlhf.graders import settle
from openrlhf_js.trainers.openrlhf.records import (
    EVALUATION,
    Label,
    Outcome,
    Prompt,
    Sample,
    prompt_key,
)
from openrlhf_js.trainers.openrlhf.rewards import RewardServers, client_of
from openrlhf_js.trainers.openrlhf.upstream import BadReward, plain_class

logger = logging.getLogger(__name__)

OUTCOME = "openrlhf_js_outcome"  # the key of a response's `Outcome` in upstream's dict
GRADING_THREADS = 64


# --- the order of prompts ----------------------------------------------------------------------


@watch.announce_phases
class OrderedSamples(SamplesGenerator):  # type: ignore[misc]
    """Upstream's generator of rollouts, whose prompts are numbered as they are drawn.

    The number seeds the responses, and sorts the groups whatever their order of arrival.
    """

    tokenizer: Any
    _sample_buffer: list[Any]  # responses that wait for their training step

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.tokenizer = Stored(ray.put(self.tokenizer))
        self.steps_left: float = self.args.js.max_steps or math.inf
        self._drawn = 0  # the number of the next prompt

    @classmethod
    def like(cls, generator: SamplesGenerator) -> OrderedSamples:
        """Our generator in place of the one that upstream has just made."""
        return cls(
            strategy=generator.strategy,
            prompts_dataloader=generator.prompts_dataloader,
            eval_dataloader=generator.eval_dataloader,
            tokenizer=generator.tokenizer,
            vllm_engines=generator.vllm_engines,
        )

    def resume(self, *, steps: int = 0, drawn: int = 0) -> None:
        """Resumes after `steps` training steps, or `drawn` prompts."""
        self.steps_left -= steps
        self._drawn += drawn

    def generate_eval_samples(self, **settings: Any) -> list[Any]:
        drawn = self._drawn
        self._drawn = EVALUATION
        with torch.random.fork_rng(devices=[]):  # training draws its order from this generator
            samples = super().generate_eval_samples(**settings)
        self._drawn = drawn
        return samples

    def generate_samples(self, **settings: Any) -> tuple[list[Any], float | None, int, bool]:
        """Upstream's, with the share of groups that passed the filter, and full rollouts only.

        An incomplete rollout at an episode's end is dropped: an optimizer step, a rank or a
        baseline may need more prompts. After `--js.max_steps` nothing more is generated.
        """
        if self.steps_left < 1:
            return [], None, 0, True
        samples, passed, consumed, exhausted = super().generate_samples(**settings)
        sizes = self.args.rollout
        if passed is not None:
            passed /= 100 * sizes.n_samples_per_prompt
        size = sizes.batch_size * sizes.n_samples_per_prompt
        if 0 < len(samples) < size:
            logger.warning("an episode's last %d responses dropped, of %d", len(samples), size)
            samples = []
        self.steps_left -= bool(samples)
        return samples, passed, consumed, exhausted

    def _generate_vllm(
        self,
        dataloader_iter: Iterator[Any],
        num_prompts: int,
        dynamic_filtering: bool,
        **settings: Any,
    ) -> tuple[list[Any], int, bool]:
        is_training = dataloader_iter is getattr(self, "_dataloader_iter", None)
        if is_training and not dynamic_filtering:
            dataloader_iter = self._of_whole_rollouts(dataloader_iter, num_prompts)
        samples, consumed, exhausted = super()._generate_vllm(
            dataloader_iter, num_prompts, dynamic_filtering, **settings
        )
        samples.sort(key=lambda sample: sample.outcomes[0].prompt_number)
        return samples, consumed, exhausted

    def _of_whole_rollouts(self, turns: Iterator[Any], most: int) -> Iterator[Any]:
        """The next prompts; at an episode's end, without those that would not fill a rollout."""
        prompts = list(itertools.islice(turns, most))
        if len(prompts) < most:
            sizes = self.args.rollout
            waiting = len(self._sample_buffer) // sizes.n_samples_per_prompt
            surplus = (waiting + len(prompts)) % sizes.batch_size
            prompts = prompts[: max(0, len(prompts) - surplus)]
        return iter(prompts)

    def _dispatch_prompts_to_vllm(self, prompts: list[str], *args: Any, **settings: Any) -> Any:
        numbered = [Prompt(text, number) for number, text in enumerate(prompts, self._drawn)]
        self._drawn += len(prompts)
        return super()._dispatch_prompts_to_vllm(numbered, *args, **settings)

    def _process_response_into_experience(self, response: Any, **settings: Any) -> Sample:
        experience = super()._process_response_into_experience(response, **settings)
        # upstream counts from the first action to the last, with an environment's tokens in between
        experience.response_length = experience.action_mask.sum(1)
        return Sample.of(experience, outcomes=[response[OUTCOME]])


class Stored(NamedTuple):
    """The tokenizer in Ray's store, which each engine fetches once.

    Upstream pickles it for every prompt: with a vocabulary of 150,000 that takes 0.09 s, and 0.35 s
    to read.
    """

    reference: Any


# --- rewards -----------------------------------------------------------------------------------


class GradingThreads(ThreadPoolExecutor):
    """Threads for graders and agents, whose StopIteration becomes a RuntimeError.

    Up to Python 3.11 asyncio cannot take a StopIteration from a thread, and waits for ever.
    """

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(without_stop_iteration, function, *args, **kwargs)


def without_stop_iteration(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns; raises RuntimeError in place of StopIteration."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration: a next() found nothing") from error


class CheckedExecutor(SingleTurnAgentExecutor):  # type: ignore[misc]
    """Upstream's executor with our HTTP client. It returns a grader's error as the reward, where
    `settle` finds it; upstream would swallow the exception one frame up."""

    def __init__(
        self,
        remote_rm_url: Any,
        client: RewardServers | None = None,
        limit_seconds: float | None = None,
    ):
        super().__init__(remote_rm_url)
        self._client = client
        self._limit_seconds = limit_seconds
        # the time limit starts once a thread is free
        self._turns = asyncio.Semaphore(GRADING_THREADS)

    async def _fetch_rewards_via_func(
        self, queries_list: list[str], prompts_list: list[str], labels_list: list[Label]
    ) -> list[dict[str, Any]]:
        values = [label.value for label in labels_list]
        datasources = [label.datasource for label in labels_list]
        async with self._turns:
            grading = asyncio.to_thread(
                call_grader, self.reward_func, queries_list, prompts_list, values, datasources
            )
            return [await _answer_or_error(self._limited(grading))]

    async def _limited(self, grading: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(grading)
        done, _ = await asyncio.wait([task], timeout=self._limit_seconds)
        if done:
            return task.result()
        # the hanging thread is lost, so later graders get a new pool
        asyncio.get_running_loop().set_default_executor(GradingThreads(GRADING_THREADS))
        limit = f"{self._limit_seconds:g} s (--js.reward_timeout_seconds)"
        raise BadReward(f"the grader gave no reward within {limit}")

    async def _fetch_rewards_via_http(
        self, queries_list: list[str], prompts_list: list[str], labels_list: list[Label]
    ) -> list[dict[str, Any]]:
        assert self._client is not None
        (query,), (prompt,), (label,) = queries_list, prompts_list, labels_list
        return [await _answer_or_error(self._client.grade(query, prompt, label.value))]


async def _answer_or_error(grading: Awaitable[Any]) -> dict[str, Any]:
    """What a grader returns, or its error as the reward."""
    try:
        answer = await grading
        if not isinstance(answer, dict):
            raise TypeError(f"it returned {type(answer).__name__}, not a dict of rewards")
    except Exception as error:
        return {"rewards": error}
    return answer


# --- engines -----------------------------------------------------------------------------------


class ExitCalled(RuntimeError):
    """Code of a grader or an agent tried to exit Python."""


async def without_exits(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns; raises ExitCalled in place of SystemExit or KeyboardInterrupt.

    Model-written code under `exec` may call `sys.exit`. Either exception would pass through asyncio
    and silently end the actor's event loop, and the run would wait for its responses for ever. A
    user's Ctrl-C does not come this way: it reaches the driver.
    """
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise ExitCalled(repr(error)) from error


def task_without_exits(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any
) -> asyncio.Task[Any]:
    """The task factory of an event loop that runs users' code."""
    return asyncio.Task(without_exits(coroutine), loop=loop, **settings)


class CheckedRollout(plain_class(vllm_engine.RolloutRayActor)):  # type: ignore[misc]
    """Upstream's rollout actor, with seeded responses and settled rewards.

    `rollout_class` gives the class the run's arguments.
    """

    run_args: argparse.Namespace
    client: RewardServers | None
    executor: Any
    forbidden: dict[int, float] | None = None  # token -> its logit bias
    hf_tokenizer: Any = None
    draws: defaultdict[int, Counter[int]]  # trajectory's seed -> length of its context -> draws

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self, *args: Any, remote_rm_url: Any = None, **kwargs: Any
    ) -> None:
        ours = self.run_args.js
        if not ours.trust_remote_code:  # upstream always passes it to vLLM
            kwargs.pop("trust_remote_code", None)
        self.draws = defaultdict(Counter)
        name_marks(ours.thinking_mark or ())
        asyncio.get_running_loop().set_task_factory(task_without_exits)
        await without_exits(super().__init__(*args, remote_rm_url=remote_rm_url, **kwargs))
        self.watching = asyncio.create_task(watch.end_with_engine(self.llm))
        media = media_tokens(self.llm.model_config.hf_config)
        self.forbidden = dict.fromkeys(media, FORBIDDEN)
        # Graders run in this pool. A few that hang would fill asyncio's default pool, which has a
        # few threads per core.
        asyncio.get_running_loop().set_default_executor(GradingThreads(GRADING_THREADS))
        if type(self.executor) is SingleTurnAgentExecutor:
            self.executor = CheckedExecutor(remote_rm_url, self.client, ours.reward_timeout_seconds)

    async def generate(self, prompt_token_ids: Any, sampling_params: Any, **more: Any) -> Any:
        """Upstream's, called for every response and every turn of an agent."""
        sampling_params = copy.copy(sampling_params)
        seed = sampling_params.seed
        if seed is not None:  # unique by the turn's context length and the draw's number
            length = len(prompt_token_ids)
            sampling_params.seed = key(seed, length, self.draws[seed][length])
            self.draws[seed][length] += 1
        if self.forbidden:
            sampling_params.logit_bias = (sampling_params.logit_bias or {}) | self.forbidden
        stop = self.run_args.rollout.stop
        if stop:
            sampling_params.stop = [*(sampling_params.stop or ()), *stop]
            sampling_params.include_stop_str_in_output = True  # as in the tokens that train
        return await super().generate(prompt_token_ids, sampling_params, **more)

    async def generate_responses(
        self,
        prompt: Prompt,
        label: Label,
        sampling_params: Any,
        num_samples: int = 1,
        *,
        hf_tokenizer: Stored,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """Upstream's responses, each with its `Outcome`.

        With remax each training prompt also gets one greedy response, for its reward.
        """
        if self.hf_tokenizer is None:
            self.hf_tokenizer = await hf_tokenizer.reference
            name_marks(marks_of_template(self.hf_tokenizer))
        seed = self.run_args.train.seed
        requests = [
            _changed(sampling_params, seed=key(seed, prompt.number, draw))
            for draw in range(num_samples)
        ]
        if prompt.is_trained and self.run_args.algo.advantage.estimator == "remax":
            requests.append(_changed(sampling_params, temperature=0.0, top_p=1.0, top_k=0))
        more["prompt"] = prompt.text
        # a user's agent expects the plain label, not a `Label`
        more["label"] = label if isinstance(self.executor, CheckedExecutor) else label.value
        more["hf_tokenizer"] = self.hf_tokenizer
        generate = super().generate_responses
        groups = await asyncio.gather(
            *(generate(sampling_params=request, num_samples=1, **more) for request in requests)
        )
        for request in requests:
            self.draws.pop(request.seed, None)
        known = {"prompt": prompt.text, "label": label.value}
        responses = [{**response, **known} for (response,) in groups]
        errors = self._settle(responses, prompt)
        greedy_reward = None
        if len(responses) > num_samples:
            greedy_reward = responses[num_samples]["reward"]
        for response, error in zip(responses, errors, strict=True):
            response[OUTCOME] = Outcome(
                prompt_number=prompt.number,
                prompt_key=prompt_key(prompt.text, label, more.get("images")),
                error=error,
                greedy_reward=greedy_reward,
            )
        return responses[:num_samples]

    def _settle(self, responses: list[dict[str, Any]], prompt: Prompt) -> list[str | None]:
        """Settles the rewards of a group; returns for each why it is masked, or None."""
        errors: list[str | None] = [None] * len(responses)
        # without endpoints of its own, a reward model in Ray grades the response later
        if getattr(self.executor, "reward_endpoints", True):
            on_bad_reward = self.run_args.js.on_bad_reward
            errors = [settle(response, on_bad_reward) for response in responses]
        filters = self.run_args.algo.dynamic_filtering_enable and prompt.is_trained
        if filters and not self._passes_filter(responses, errors):
            for response in responses:
                response["scores"] = math.nan  # outside any range of upstream's filter
        return errors

    def _passes_filter(self, responses: list[dict[str, Any]], errors: list[str | None]) -> bool:
        """Whether dynamic filtering keeps a group: by its responses that are not masked.

        Equal rewards are filtered out, whatever their value.
        """
        valid = [
            response for response, error in zip(responses, errors, strict=True) if error is None
        ]
        if len({response["reward"] for response in valid}) <= 1:
            return False
        low, high = self.run_args.algo.dynamic_filtering_range
        return bool(low < fmean(response["scores"] for response in valid) < high)


def _changed(sampling_params: Any, **changes: Any) -> Any:
    """A copy of vLLM's sampling parameters with other values."""
    changed = copy.deepcopy(sampling_params)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def rollout_class(args: argparse.Namespace) -> type[CheckedRollout]:
    """`CheckedRollout` with these nested arguments and their client as class attributes.

    They travel with the class, since upstream calls the constructor.
    """
    return type("CheckedRollout", (CheckedRollout,), {"run_args": args, "client": client_of(args)})
