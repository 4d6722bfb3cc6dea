"""Tasksets of verifiers in OpenRLHF (`trainers.openrlhf.tasksets`) and in TRL.

verifiers' environment and harness run the rollout and score it. Its renderer makes tokens of the
messages, and the trainer's own engine answers, where a vLLM server would otherwise be asked.

    tasks = Tasks({"taskset": {"id": "my_tasks"}, "agent": {...}})
    rows = Dataset.from_list(tasks.rows())
    ShrinkageGRPOTrainer(model, tasks.reward, args, rows, rollout_func=tasks.rollout)
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from openrlhf_js.trainers import check_source, tried_with

with tried_with("verifiers", "0.4.0"):
    import renderers.client
    from verifiers.v1.clients import ModelContext, TrainClientConfig
    from verifiers.v1.clients.client import SESSION_ID_HEADER
    from verifiers.v1.clients.train import TrainClient
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.env import Env
    from verifiers.v1.interception import InterceptionServer
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

logger = logging.getLogger(__name__)

RELIED_ON_IN_RENDERERS = {
    "generate": (
        "raw_response = await client.post(endpoint, **post_kwargs)",
        'sp["stop_token_ids"] = stop_token_ids',
        '"token_ids": prompt_ids,',
    ),
    "_resolve_max_prompt_len": ('payload = await client.get("/models"',),
}
check_source("renderers", "0.1.12", renderers.client, RELIED_ON_IN_RENDERERS)
RELIED_ON: dict[type, dict[str, tuple[str, ...]]] = {
    TrainClient: {
        "get_response": (
            "client=self.client,",
            "self.config.renderer_model_name or model,",
            "extra_headers={SESSION_ID_HEADER: session_id}",
            "except OverlongPromptError as e:",
        ),
    },
    InterceptionServer: {
        "_client": ("key = config.model_dump_json()", "client = self.clients.get(key)"),
    },
    Env: {
        "serving": ("self._interception = interception",),
        "run_episode": ("on_trace: Callable", "episode.ok = all(t.ok for t in episode.traces)"),
    },
}
for _owner, _lines in RELIED_ON.items():
    check_source("verifiers", "0.4.0", _owner, _lines)
RELIED_ON_IN_TRL = {
    "_generate_single_turn": (
        "(self, prompt_ids, images, multimodal_fields, num_generations",
        "return completion_ids, logprobs",
    ),
    "_generate": (
        "output = self.rollout_func(prompts, self)",
        'tool_mask = extra_fields.pop("env_mask", None)',
    ),
    "_calculate_rewards": ('reward_kwargs["log_metric"] = self._log_metric',),
}


class Sampled(NamedTuple):
    """What an engine samples after a context of token ids."""

    token_ids: list[int]
    log_probs: list[float]
    is_cut_off: bool
    """Whether it ends at the limit of tokens, not at a stop token."""


Sample = Callable[[list[int], list[int]], Awaitable[Sampled]]
"""Samples one turn, from the token ids of its context and the renderer's stop tokens."""


class Unscored(RuntimeError):
    """Why a rollout gives nothing to train on."""


class Scored(NamedTuple):
    """A rollout to train on: (T,) each of `token_ids`, `mask` and `log_probs`."""

    token_ids: list[int]
    mask: list[bool]
    """True for tokens that the policy sampled."""
    log_probs: list[float]
    """0 for all other tokens."""
    reward: float | None
    """The sum of the rewards by name, times their weights; None if it was not scored."""
    logs: dict[str, float]
    """Rewards (without their weights) and metrics by name."""
    is_cut_off: bool


class Engine:
    """The trainer's engine, in the place of the HTTP client of verifiers' `TrainClient`."""

    base_url = "trainer"

    def __init__(self) -> None:
        self.samples: dict[str, Sample] = {}  # by the id of a rollout's trace

    async def get(self, path: str, **_: Any) -> dict[str, Any]:
        return {}  # no list of models: `Sample` knows how long a context may be

    async def post(
        self, path: str, *, body: Mapping[str, Any], options: Mapping[str, Any], **_: Any
    ) -> SimpleNamespace:
        """vLLM's `/inference/v1/generate`."""
        sample = self.samples[options["headers"][SESSION_ID_HEADER]]
        sampled = await sample(body["token_ids"], body["sampling_params"]["stop_token_ids"])
        content = [
            {"token": f"token_id:{token}", "logprob": log_prob}
            for token, log_prob in zip(sampled.token_ids, sampled.log_probs, strict=True)
        ]
        choice = {
            "token_ids": sampled.token_ids,
            "logprobs": {"content": content},
            "finish_reason": "length" if sampled.is_cut_off else "stop",
        }
        return SimpleNamespace(content=json.dumps({"choices": [choice]}).encode())


class EngineClient(TrainClient):
    """verifiers' client for training, with an `Engine` in place of HTTP."""

    def __init__(self, config: TrainClientConfig):
        self.config = config
        self.client = Engine()


class Tasks:
    """The tasks of a taskset, and rollouts of them.

    Args:
        env: verifiers' settings of an environment, as in the block `env` of its TOML files.
        renderer: settings of verifiers' renderer, such as {"name": "qwen3"}; by default the one
            that verifiers knows for the model's name.
        max_concurrent: how many rollouts run at the same time. Who calls `run` holds one of
            `places`.
    """

    def __init__(
        self,
        env: Mapping[str, Any],
        *,
        renderer: Mapping[str, Any] | None = None,
        max_concurrent: int = 64,
    ):
        if "interception" in env:
            raise ValueError("leave out interception: the trainer's engine takes its place.")
        config = resolve_env_config({**env, "interception": {"type": "server"}})
        self.env = load_environment(config)
        self.renderer = renderer
        self._tasks: list[Any] = []  # as far as they were needed
        self._unread = iter(self.env.taskset)
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self.places = asyncio.Semaphore(max_concurrent)
        self._engine: Engine | None = None
        self._context: ModelContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # TRL has none

    def rows(self, count: int | None = None) -> list[dict[str, Any]]:
        """The rows of a data set, one for each task, or for the first `count`.

        `prompt` holds the messages of the task, and `label` finds it again; so does `task` of each
        message, since TRL hands only prompts to a rollout.
        """
        if count is None and not self.env.taskset.bounded:
            raise ValueError("the taskset has no end: give rows() a count.")
        rows = []
        for task in islice(self.env.taskset, count):
            label = f"{task.data.idx}/{task.key}"
            prompt = [{**message, "task": label} for message in _messages(task.data)]
            rows.append({"prompt": prompt, "label": label})
        return rows

    def write(self, file: str | Path, count: int | None = None) -> None:
        """Writes `rows` as a JSONL file."""
        rows = self.rows(count)
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def task(self, label: str) -> Any:
        """The task of a row; ValueError if the taskset is not that of the rows."""
        index, _, key = label.partition("/")
        missing = int(index) + 1 - len(self._tasks)
        self._tasks += islice(self._unread, max(0, missing))
        if int(index) >= len(self._tasks) or self._tasks[int(index)].key != key:
            raise ValueError(
                f"the taskset {self.env.config.taskset.id} has no task {label}: write the rows "
                "again with the settings of this run."
            )
        return self._tasks[int(index)]

    async def run(self, label: str, model: str, sample: Sample) -> Scored:
        """A rollout of a task, scored. `model` is the folder or the name of the tokenizer.

        Raises Unscored if it failed, was not scored, or if its tokens are not one sequence.
        """
        task = self.task(label)
        engine = await self._serve(model)
        ids: list[str] = []

        def begin(trace: Any) -> None:
            ids.append(trace.id)
            engine.samples[trace.id] = sample

        try:
            episode = await self.env.run_episode(task, self._context, on_trace=begin)
        finally:
            for trace_id in ids:
                del engine.samples[trace_id]
        return scored(episode)

    async def _serve(self, model: str) -> Engine:
        """Starts what verifiers shares between rollouts, once."""
        async with self._starting:
            if self._engine is not None:
                return self._engine
            if not model:
                raise ValueError("the tokenizer has no name: load it with from_pretrained.")
            config = TrainClientConfig(
                base_url=Engine.base_url, renderer_model_name=model, renderer=self.renderer
            )
            await self._stack.enter_async_context(self.env.serving())
            client = EngineClient(config)
            self.env._interception.clients[config.model_dump_json()] = client
            self._context = ModelContext(model=model, client=config)
            self._engine = client.client
            return self._engine

    async def close(self) -> None:
        """Ends what rollouts share."""
        await self._stack.aclose()
        self._engine = None

    def _end(self) -> None:
        """Closes what runs on TRL's loop, and the loop."""
        if self._loop is not None:
            self._loop.run_until_complete(self.close())
            self._loop.close()

    # --- TRL -------------------------------------------------------------------------------------

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any] | None]:
        """TRL's `rollout_func`, for rows of `rows`."""
        if trainer.accelerator.num_processes > 1:
            raise ValueError("rollouts of a taskset in TRL take one process: start one.")
        turns = Turns(trainer)
        model, end = trainer._tokenizer.name_or_path, trainer._tokenizer.eos_token_id
        errors: list[Unscored] = []

        async def one(label: str) -> Scored:
            async with self.places, turns:
                try:
                    return await self.run(label, model, turns.sample)
                except Unscored as error:
                    logger.warning("response masked: %s (task %s)", error, label)
                    errors.append(error)
                    return Scored([end, end], [False, False], [0.0, 0.0], None, {}, True)

        async def every() -> list[Scored]:
            running = [asyncio.ensure_future(one(prompt[0]["task"])) for prompt in prompts]
            try:
                return await asyncio.gather(*running)
            finally:  # after an error, the others
                for rollout in running:
                    rollout.cancel()
                await asyncio.gather(*running, return_exceptions=True)

        if self._loop is None:
            from trl import GRPOTrainer

            check_source("trl", "1.16.0", GRPOTrainer, RELIED_ON_IN_TRL)
            self._loop = asyncio.new_event_loop()
            atexit.register(self._end)
        rollouts = self._loop.run_until_complete(every())
        if turns.error is not None:
            raise turns.error
        if len(errors) == len(rollouts):
            raise errors[0]
        starts = [row.mask.index(True) if any(row.mask) else 1 for row in rollouts]
        parts = list(zip(rollouts, starts, strict=True))
        return {
            "prompt_ids": [row.token_ids[:start] for row, start in parts],
            "completion_ids": [row.token_ids[start:] for row, start in parts],
            "logprobs": [row.log_probs[start:] for row, start in parts]
            if trainer.use_vllm
            else None,
            "env_mask": [list(map(int, row.mask[start:])) for row, start in parts],
            "taskset_reward": [row.reward for row in rollouts],
            "taskset_logs": [row.logs for row in rollouts],
        }

    @staticmethod
    def reward(
        taskset_reward: list[float | None],
        taskset_logs: list[dict[str, float]],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """TRL's reward function: the weighted sum; it logs each reward and metric by name."""
        for name in dict.fromkeys(name for logs in taskset_logs for name in logs):
            values = [logs[name] for logs in taskset_logs if name in logs]
            log_metric(name, sum(values) / len(values))
        return taskset_reward


def scored(episode: Any) -> Scored:
    """What a trainer needs of an episode; raises Unscored where it has nothing to train on."""
    if not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        message = errors[-1].message.strip().rpartition("\n")[2]  # the end of a traceback
        raise Unscored(f"{errors[-1].type}: {message}")
    traces = [trace for trace in episode.traces if trace.agent.trainable]
    if len(traces) != 1:
        raise ValueError(f"{len(traces)} traces are trainable: leave one trainable agent.")
    (trace,) = traces
    if len(trace.branches) != 1:
        raise Unscored(
            f"a trace with {len(trace.branches)} branches: its tokens are not one sequence, since "
            "something rewrites the context between turns"
        )
    (branch,) = trace.branches
    if not any(branch.sampled_mask):
        raise Unscored("the policy sampled no token")
    if trace.stop_condition in ("scoring_timeout", "finalize_timeout"):
        raise Unscored(f"not scored: {trace.stop_condition}")
    missing = [name for name, reward in trace.rewards.items() if reward is None]
    if missing or not trace.rewards:
        raise Unscored(f"not scored: {', '.join(missing) or 'no reward'}")
    if not math.isfinite(trace.reward):
        raise Unscored(f"the reward is {trace.reward}")
    rewards = {f"rewards/{name}": reward.score for name, reward in trace.rewards.items()}
    metrics = {f"metrics/{name}": value for name, value in trace.metrics.items()}
    return Scored(
        token_ids=branch.token_ids,
        mask=branch.sampled_mask,
        log_probs=branch.logprobs,
        reward=trace.reward,
        logs={name: value for name, value in {**rewards, **metrics}.items() if value is not None},
        is_cut_off=branch.calls[-1].finish_reason == "length",
    )


def _messages(data: Any) -> list[dict[str, Any]]:
    """The messages that a task shows the policy first, each with its role and text."""
    messages = [] if data.system_prompt is None else [("system", data.system_prompt)]
    if isinstance(data.prompt, str):
        messages.append(("user", data.prompt))
    else:
        wires = map(message_to_wire, data.prompt or ())
        messages += [(wire["role"], wire.get("content") or "") for wire in wires]
    if data.prompt is None:
        raise ValueError(f"task {data.idx} has no prompt: its user opens, and a row needs one.")
    if not all(isinstance(text, str) for _, text in messages):
        raise ValueError(f"task {data.idx} has more than text in its prompt, which is not tried.")
    return [{"role": role, "content": text} for role, text in messages]


class Turns:
    """Asks TRL's engine for the next turn of all rollouts at once, when each waits for one."""

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self.error: Exception | None = None
        self._running = 0
        self._waiting: list[tuple[list[int], asyncio.Future[tuple[list[int], list[float]]]]] = []

    async def __aenter__(self) -> None:
        self._running += 1

    async def __aexit__(self, *_: Any) -> None:
        self._running -= 1
        self._ask()

    async def sample(self, context: list[int], stop: list[int]) -> Sampled:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((context, answer))
        self._ask()
        try:
            tokens, log_probs = await answer
        except asyncio.CancelledError:  # by verifiers, at a deadline
            self._waiting = [turn for turn in self._waiting if turn[1] is not answer]
            raise
        ends = [place for place, token in enumerate(tokens, 1) if token in stop]
        end = ends[0] if ends else len(tokens)  # TRL may know fewer stop tokens
        return Sampled(tokens[:end], log_probs[:end], is_cut_off=not ends)

    def _ask(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        asked, self._waiting = self._waiting, []
        contexts = [context for context, _ in asked]
        try:
            tokens, log_probs = self.trainer._generate_single_turn(contexts, None, {}, 1)
        except Exception as error:  # the run's, not a rollout's: `rollout` raises it
            self.error = error
            for _, answer in asked:
                if not answer.done():
                    answer.set_exception(error)
            return
        if log_probs is None:  # without vLLM
            log_probs = [[0.0] * len(row) for row in tokens]
        for (_, answer), *row in zip(asked, tokens, log_probs, strict=True):
            if not answer.done():
                answer.set_result(tuple(row))
