"""Rollouts: seeded, in prompt order, and no reward that nobody computed.

Upstream logs a grader's exception at INFO and continues with `None`. Here the reward is checked in
the process that asked for it, where the prompt and the error are still known.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
import torch
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.agent import SingleTurnAgentExecutor

from openrlhf_js.common.processors import FORBIDDEN, media_tokens
from openrlhf_js.plugin import watch
from openrlhf_js.plugin.rewards import RemoteRewards
from openrlhf_js.plugin.upstream import BadInput, BadReward, plain_class
from openrlhf_js.sampling.engines import key

if TYPE_CHECKING:
    from openrlhf_js.plugin.selection import PromptSelector

logger = logging.getLogger(__name__)

GREEDY_REWARD = "greedy_reward"  # the key under which remax's reward travels with a response
ERROR = "openrlhf_js_error"
PROMPT_NUMBER = "openrlhf_js_prompt_number"
EVALUATION = 2**32  # the number of an evaluation's first prompt; every one has the same seeds
GRADING_THREADS = 64

# What a run logs of each response and update besides, under `train/`.
OWN_CURVES = {
    *("policy_loss", "entropy_loss", "actor_lr", "actor_grad_norm"),
    *("critic_loss", "critic_lr", "critic_grad_norm", "values"),
    *("ppo_clip_ratio", "ppo_kl", "vllm_kl", "is_filter_ratio", "kl", "logprobs_diff"),
    *("reward", "score", "return", "group_reward_std", "dynamic_filtering_pass_rate"),
    *("response_clip_ratio", "response_length", "total_length", "truncated"),
    *("generated_samples", "global_step"),
}

_error: ContextVar[Exception | None] = ContextVar("grader's error", default=None)


def as_number(reward: Any) -> float:
    """The one finite number in a grader's reward: a number, or a tensor, array or list of one."""
    try:
        (value,) = torch.as_tensor(reward, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise BadReward(f"the reward is {reward!r:.200}, not one finite number")
    return value


def numeric_logs(logs: Any) -> dict[str, Any]:
    """A grader's `extra_logs`, all of which are numbers, or tensors of one; {} for None.

    Raises BadInput for any other, since no response of that grader could be logged, and for the
    name of a curve of the run, which upstream would replace.
    """
    logs = {} if logs is None else logs
    if not isinstance(logs, dict):
        raise BadInput(f"the grader's extra_logs are {type(logs).__name__}, not a dict of numbers")
    for name, value in logs.items():
        if name in OWN_CURVES:
            raise BadInput(
                f"the grader's extra_logs have {name}, which is a curve of the run: give it "
                "another name"
            )
        try:
            size = torch.as_tensor(value, dtype=torch.float64).numel()
        except (TypeError, ValueError, RuntimeError, OverflowError):
            size = 0
        if size != 1:
            raise BadInput(
                f"the grader's extra_logs have {name}={value!r:.100}, not a number: only numbers "
                "are logged, so leave it out"
            )
    return logs


def settle(response: dict[str, Any], error: Exception | None, on_bad_reward: str) -> None:
    """Makes the reward and the score of a graded response finite floats, in place.

    `error` is the grader's exception. With `on_bad_reward` "stop" a bad reward raises BadReward;
    with "mask" it becomes NaN, which the experience maker masks, and `ERROR` says why.
    Raises BadInput for logs that are no numbers.
    """
    try:
        if isinstance(error, BadReward):
            raise error
        if error:
            raise BadReward(f"the grader failed: {type(error).__name__}: {error}")
        score = response.get("scores")
        response["extra_logs"] = numeric_logs(response.get("extra_logs"))
        response["reward"] = as_number(response.get("reward"))
        response["scores"] = response["reward"] if score is None else as_number(score)
    except BadReward as bad:
        prompt, label = str(response.get("prompt")), str(response.get("label"))
        message = f"{bad} (prompt {prompt[-400:]!r}, label {label[:200]!r})"
        if on_bad_reward == "stop":
            raise BadReward(message) from error
        logger.warning("response masked: %s", message)
        response.update({"reward": math.nan, "scores": None, "extra_logs": {}, ERROR: message})


class RememberingExecutor(SingleTurnAgentExecutor):
    """Upstream's executor with our HTTP client; its responses keep a grader's error as `ERROR`."""

    def __init__(
        self,
        remote_rm_url: Any,
        remote: RemoteRewards | None = None,
        limit_seconds: float | None = None,
    ):
        super().__init__(remote_rm_url)
        self._remote = remote
        self._limit_seconds = limit_seconds
        self._turns = asyncio.Semaphore(GRADING_THREADS)  # none waits for a thread in its time

    async def _fetch_rewards_via_func(
        self, queries_list: Any, prompts_list: Any, labels_list: Any
    ) -> Any:
        async with self._turns:
            grading = super()._fetch_rewards_via_func(queries_list, prompts_list, labels_list)
            return await _remember_error(self._limited(grading))

    async def _limited(self, grading: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(grading)
        done, _ = await asyncio.wait([task], timeout=self._limit_seconds)
        if done:
            return task.result()
        # its thread is lost, and the next graders get new ones
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(GRADING_THREADS))
        limit = f"{self._limit_seconds:g} s (--js.reward_timeout_seconds)"
        raise BadReward(f"the grader gave no reward within {limit}")

    async def _fetch_rewards_via_http(
        self, queries_list: Any, prompts_list: Any, labels_list: Any
    ) -> Any:
        assert self._remote is not None
        gradings = map(self._remote.grade, queries_list, prompts_list, labels_list)
        return await _remember_error(asyncio.gather(*gradings))

    async def execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _error.set(None)
        response = await super().execute(*args, **kwargs)
        return {**response, ERROR: _error.get()}


class ExitCalled(RuntimeError):
    """Code of a grader or an agent has called for the end of Python."""


async def without_exits(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns; ExitCalled where it raises SystemExit or KeyboardInterrupt.

    Model-written code under `exec` may call `sys.exit`. Either would pass through asyncio and end
    the actor's event loop without a word, and the run would wait for its responses for ever. A
    Ctrl-C of the user's does not come this way: it reaches the driver.
    """
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise ExitCalled(repr(error)) from error


def task_without_exits(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any
) -> asyncio.Task[Any]:
    """The task factory of an event loop in which code of the user's runs."""
    return asyncio.Task(without_exits(coroutine), loop=loop, **settings)


async def _remember_error(grading: Awaitable[Any]) -> Any:
    try:
        answers = await grading
        for answer in answers:
            if not isinstance(answer, dict):
                raise TypeError(f"it returned {type(answer).__name__}, not a dict of rewards")
    except Exception as error:  # upstream swallows it one frame up
        _error.set(error)
        raise
    return answers


def checked_rollout(
    actor_class: Any,
    seed: int,
    on_bad_reward: str,
    greedy: bool,
    remote: Callable[[], RemoteRewards] | None = None,
    limit_seconds: float | None = None,
    trust_remote_code: bool = False,
    filtering: bool = False,
    stop: Sequence[str] = (),
) -> Any:
    """Upstream's rollout actor, its responses seeded and its rewards settled.

    It is defined here so that Ray sends it by value. With `greedy` (remax) each prompt of training
    also gets one greedy response, whose reward the others carry in their logs as `GREEDY_REWARD`.
    `remote` makes, in the actor, the client of reward models behind HTTP; a grader may take
    `limit_seconds` for a response. Upstream always gives vLLM `trust_remote_code`. With `filtering`
    a group of equal rewards leaves training, whatever they are. Every response, and every turn of
    an agent, ends with one of the `stop` strings where the model writes it.
    """

    class CheckedRollout(plain_class(actor_class)):  # type: ignore[misc]
        executor: Any
        forbidden: dict[int, float] | None = None  # tokens, and what their logits get
        hf_tokenizer: Any = None

        async def __init__(  # type: ignore[misc]  # Ray awaits it
            self, *args: Any, remote_rm_url: Any = None, **kwargs: Any
        ) -> None:
            if not trust_remote_code:
                kwargs.pop("trust_remote_code", None)
            asyncio.get_running_loop().set_task_factory(task_without_exits)
            await without_exits(super().__init__(*args, remote_rm_url=remote_rm_url, **kwargs))
            self.watching = asyncio.create_task(watch.end_with_engine(self.llm))
            media = media_tokens(self.llm.model_config.hf_config)
            self.forbidden = dict.fromkeys(media, FORBIDDEN)
            # Graders run in its threads. A few graders that hang would fill asyncio's own pool,
            # which has a few threads per core.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(GRADING_THREADS))
            if type(self.executor) is SingleTurnAgentExecutor:
                client = remote and remote()
                self.executor = RememberingExecutor(remote_rm_url, client, limit_seconds)

        async def generate(self, prompt_token_ids: Any, sampling_params: Any, **more: Any) -> Any:
            sampling_params = copy.copy(sampling_params)
            if sampling_params.seed is not None:  # an agent's turns differ in their context
                sampling_params.seed = key(sampling_params.seed, len(prompt_token_ids), 0)
            if self.forbidden:
                sampling_params.logit_bias = (sampling_params.logit_bias or {}) | self.forbidden
            if stop:
                sampling_params.stop = [*(sampling_params.stop or ()), *stop]
                sampling_params.include_stop_str_in_output = True  # as in the tokens that train
            return await super().generate(prompt_token_ids, sampling_params, **more)

        async def generate_responses(
            self, prompt: NumberedPrompt, sampling_params: Any, num_samples: int = 1, **more: Any
        ) -> list[dict[str, Any]]:
            tokenizer = more.get("hf_tokenizer")
            if isinstance(tokenizer, Sent):
                if self.hf_tokenizer is None:
                    self.hf_tokenizer = await tokenizer.reference
                more["hf_tokenizer"] = self.hf_tokenizer
            generate = functools.partial(super().generate_responses, str(prompt), **more)

            async def respond(**changes: Any) -> dict[str, Any]:
                parameters = copy.deepcopy(sampling_params)
                for name, value in changes.items():
                    setattr(parameters, name, value)
                (response,) = await generate(sampling_params=parameters, num_samples=1)
                return response

            jobs = [respond(seed=key(seed, prompt.number, draw)) for draw in range(num_samples)]
            trains = prompt.number < EVALUATION
            needs_greedy = greedy and trains
            if needs_greedy:
                jobs.append(respond(temperature=0.0, top_p=1.0, top_k=0))
            responses = await asyncio.gather(*jobs)
            # without endpoints of its own, a reward model in Ray grades the response later
            if getattr(self.executor, "reward_endpoints", True):
                for response in responses:
                    settle(response, response.pop(ERROR, None), on_bad_reward)
            if filtering and trains and len({response["reward"] for response in responses}) == 1:
                for response in responses:
                    response["scores"] = math.nan  # which is in no range of upstream's filter
            for response in responses[:num_samples]:
                response[PROMPT_NUMBER] = prompt.number
                if needs_greedy:
                    logs = response.get("extra_logs") or {}
                    response["extra_logs"] = {**logs, GREEDY_REWARD: responses[-1]["reward"]}
            return responses[:num_samples]

    return ray.remote(CheckedRollout)


class Sent(NamedTuple):
    """An object in Ray's store, which each engine fetches once.

    Upstream pickles the tokenizer for every prompt: of a vocabulary of 150,000, 0.09 s each, and
    0.35 s to read.
    """

    reference: Any


class NumberedPrompt(str):
    """A prompt and its place among all that a run draws, from 0 or, evaluated, `EVALUATION` on."""

    number: int


@watch.announce_phases
class OrderedSamples(SamplesGenerator):
    """Upstream's generator of rollouts, whose prompts are numbered as they are drawn.

    The number seeds the responses and puts the groups in order, whichever arrived first.
    """

    drawn = 0  # the number of the next prompt; a resumed run sets it
    sent: Sent | None = None  # the tokenizer
    selector: PromptSelector | None = None  # chooses the prompts of training
    tokenizer: Any
    _sample_buffer: list[Any]  # responses that wait for their training step

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.steps_left: float = self.args.js.max_steps or math.inf

    def generate_eval_samples(self, **settings: Any) -> list[Any]:
        drawn = self.drawn
        self.drawn = EVALUATION
        with torch.random.fork_rng(devices=[]):  # the order of training is drawn from it
            samples = super().generate_eval_samples(**settings)
        self.drawn = drawn
        return samples

    def generate_samples(self, **settings: Any) -> tuple[list[Any], float | None, int, bool]:
        """Upstream's, with the share of groups that passed the filter, and full rollouts only.

        What an episode's end leaves is dropped: an optimizer step, a rank or a baseline may need
        more prompts. After `--js.max_steps` there is nothing more.
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
        trains = dataloader_iter is self._training_iter
        if trains and self.selector is not None:
            dataloader_iter = self._chosen(self.selector.choose(), dataloader_iter)
        if trains and not dynamic_filtering:
            dataloader_iter = self._of_whole_rollouts(dataloader_iter, num_prompts)
        samples, consumed, exhausted = super()._generate_vllm(
            dataloader_iter, num_prompts, dynamic_filtering, **settings
        )
        samples.sort(key=lambda sample: sample.index)
        return samples, consumed, exhausted

    @property
    def _training_iter(self) -> Iterator[Any] | None:
        """The loader of the prompts of training; None before the first step."""
        iterator: Iterator[Any] | None = getattr(self, "_dataloader_iter", None)
        return iterator

    def _of_whole_rollouts(self, turns: Iterator[Any], most: int) -> Iterator[Any]:
        """The next prompts, at an episode's end without those that would not fill a rollout."""
        prompts = list(itertools.islice(turns, most))
        if len(prompts) < most:
            sizes = self.args.rollout
            waiting = len(self._sample_buffer) // sizes.n_samples_per_prompt
            surplus = (waiting + len(prompts)) % sizes.batch_size
            prompts = prompts[: max(0, len(prompts) - surplus)]
        return iter(prompts)

    def _chosen(self, chosen_rows: torch.Tensor, turns: Iterator[Any]) -> Iterator[Any]:
        """The chosen prompts of the next step, one for each that the loader has its turn for.

        So the loader says when an episode ends, and where a resumed run goes on.
        """
        dataset = self.prompts_dataloader.dataset
        rows = iter(chosen_rows.tolist())
        for _ in turns:
            yield dataset.collate_fn([dataset[next(rows)]])

    def _dispatch_prompts_to_vllm(self, prompts: list[str], *args: Any, **settings: Any) -> Any:
        numbered = [NumberedPrompt(prompt) for prompt in prompts]
        for prompt in numbered:
            prompt.number = self.drawn
            self.drawn += 1
        self.sent = self.sent or Sent(ray.put(self.tokenizer))
        tokenizer = self.tokenizer
        self.tokenizer = self.sent
        try:
            return super()._dispatch_prompts_to_vllm(numbered, *args, **settings)
        finally:
            self.tokenizer = tokenizer

    def _process_response_into_experience(self, response: Any, **settings: Any) -> Any:
        sample = super()._process_response_into_experience(response, **settings)
        sample.index = [response[PROMPT_NUMBER]]  # upstream gives the samples of a step new ones
        sample.error = response.get(ERROR)
        # upstream's spans the first action to the last, with what an environment said between them
        sample.response_length = sample.action_mask.sum(1)
        return sample
