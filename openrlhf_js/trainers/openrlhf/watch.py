"""Ends a run when one of its processes dies, with a line that says which.

Otherwise a run can wait for ever: vLLM leaves the calls that are under way unanswered when its
engine dies, and upstream waits for them. Ray's table of actors has the deaths on every node, and
deaths alone: a process that is only slow is alive in it. The engine's process is not Ray's, so the
actor that started it ends with it. An actor that an agent or a grader has started is its own
affair: whoever calls it gets an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import ray
from ray._private import state
from ray.experimental import internal_kv

from openrlhf_js.trainers.openrlhf.upstream import ProcessDied, plain_class

POLL_SECONDS = 0.5
SETTLE_SECONDS = 5.0  # after a failure, until Ray knows of the death behind it
LEFT_BY_ITSELF = "INTENDED_USER_EXIT"  # in Ray's words: by `exit_actor`, as an agent's may
NAMESPACE = "openrlhf_js"  # in Ray's key-value store, whose keys begin with the job's number
GROUPS = {
    "OurPolicy": "policy",
    "OurCritic": "critic",
    "ReferenceModelActor": "reference",
    "RewardModelActor": "reward",
}
SINGLE_ACTORS = {
    "ShrinkageTrainer": "the trainer",
    "AsyncTrainer": "the trainer",
    "PPOTrainerAsync": "the asynchronous trainer",
    "AsyncGenerator": "the generator of rollouts",
}
VLLM_WORKERS = ("RayWorkerWrapper", "RayWorkerProc")  # of an engine on several GPUs
PHASES = {  # methods of the trainer and of its generator of samples
    "generate_samples": "generating",
    "generate_eval_samples": "evaluating",
    "train_step": "scoring responses",
    "ppo_train": "training",
    "broadcast_to_vllm": "sending weights",
    "save_logs_and_checkpoints": "saving",
}


# --- in the actors -----------------------------------------------------------------------------


def _key(kind: str, job: str, actor: str = "") -> str:
    return f"{job}:{kind}:{actor}"


def _note(kind: str, text: str) -> None:
    """Keeps a text about this actor where the driver finds it; without Ray there is none."""
    if ray.is_initialized():
        context = ray.get_runtime_context()
        key = _key(kind, context.get_job_id(), context.get_actor_id())
        internal_kv._internal_kv_put(key, text, namespace=NAMESPACE)


def announce_phases(cls: type) -> type:
    """Lets the methods in `PHASES` note what this actor is at; a failed one leaves its note."""
    for name, phase in PHASES.items():
        if hasattr(cls, name):
            setattr(cls, name, _announced(getattr(cls, name), phase))
    return cls


def _announced(method: Callable[..., Any], phase: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **settings: Any) -> Any:
        before = getattr(self, "phase", "")
        self.phase = phase
        _note("phase", phase)
        result = method(self, *args, **settings)
        self.phase = before
        _note("phase", before)
        return result

    return call


async def end_with_engine(llm: Any) -> None:
    """Ends this actor when vLLM's engine has died, so that no call to it waits for ever."""
    processes = multiprocessing.active_children()  # the engine's, and perhaps some of an agent's
    while not llm.errored:
        await asyncio.sleep(POLL_SECONDS)
    for process in processes:
        process.join(POLL_SECONDS)
        if process.exitcode is not None:
            _note("death", f"engine process {process.pid}, exit code {process.exitcode}")
    os._exit(1)


# --- in the driver -----------------------------------------------------------------------------


class Watch:
    """The actors of a run, of which none may die before its end."""

    def __init__(self, upstream_program: ModuleType) -> None:
        self.job: str = ray.get_runtime_context().get_job_id()
        self.names: dict[str, str] = {}  # by the actor's id
        self._start_group = upstream_program.RayActorGroup
        self._start_engines = upstream_program.create_vllm_engines

    def start_group(self, *args: Any, **settings: Any) -> Any:
        """Upstream's `RayActorGroup`."""
        group = self._start_group(*args, **settings)
        role = GROUPS[plain_class(group.ray_actor_type).__name__]
        self._name(f"{role} rank", group._actor_handlers)
        return group

    def start_engines(self, *args: Any, **settings: Any) -> Any:
        """Upstream's `create_vllm_engines`."""
        engines = self._start_engines(*args, **settings)
        self._name("vLLM engine", engines)
        return engines

    def _name(self, title: str, actors: Iterable[Any]) -> None:
        for number, actor in enumerate(actors):
            self.names[actor._actor_id.hex()] = f"{title} {number}"

    def get(self, references: Any) -> Any:
        """`ray.get`, but raises ProcessDied if a process of the run dies meanwhile."""
        pending = references if isinstance(references, list) else [references]
        while pending:
            ready, pending = ray.wait(pending, timeout=POLL_SECONDS)
            ray.get(ready)
            self.check()
        return ray.get(references)

    def check(self) -> None:
        """Raises ProcessDied if a process of the run is dead."""
        job = ray.JobID(bytes.fromhex(self.job))
        actors = state.actors(job_id=job, actor_state_name="DEAD").values()
        for actor in sorted(actors, key=lambda actor: actor["EndTime"]):  # the first to die
            if self._name_of(actor) is not None and _cause(actor["DeathCause"]) is not None:
                raise ProcessDied(self._describe(actor))

    def check_answers(self, error: BaseException) -> None:
        """Raises ProcessDied if an error is of an actor that has left without Ray's knowledge.

        So does a grader that ends its process: the engine that this has forked keeps its sockets.
        """
        cause = error
        while isinstance(getattr(cause, "cause", None), BaseException):
            cause = cause.cause  # type: ignore[attr-defined]
        if isinstance(cause, ray.exceptions.RayActorError):
            for actor, name in self.names.items():
                if actor in str(cause):
                    raise ProcessDied(f"{name} died{self._during()}") from error

    def _name_of(self, actor: dict[str, Any]) -> str | None:
        """What an actor is to the run; None if the run did not start it."""
        if actor["ActorID"] in self.names:
            return self.names[actor["ActorID"]]
        class_name = actor["ActorClassName"].rpartition(".")[2]  # a function may define it
        if class_name in VLLM_WORKERS:
            return "a vLLM worker"
        return SINGLE_ACTORS.get(class_name)

    def _describe(self, actor: dict[str, Any]) -> str:
        """A sentence on a dead actor: which it was, where, and what the run was at."""
        process = _read(_key("death", self.job, actor["ActorID"])) or f"process {actor['Pid']}"
        if len(ray.nodes()) > 1:
            process = f"{process} on {actor['Address']['IPAddress']}"
        cause = _cause(actor["DeathCause"])
        return f"{self._name_of(actor)} ({process}) died{self._during()}{cause}"

    def _during(self) -> str:
        """What the trainer and its generator of samples are at, or were at when they failed."""
        keys = internal_kv._internal_kv_list(_key("phase", self.job), namespace=NAMESPACE)
        phases = sorted({_read(key) for key in keys} - {""})
        return f" while {' and '.join(phases)}" if phases else ""


def _read(key: str | bytes) -> str:
    return (internal_kv._internal_kv_get(key, namespace=NAMESPACE) or b"").decode()


def _cause(death: Any) -> str | None:
    """What is known of an actor's death, perhaps ""; None if it does not end the run by itself.

    That is so for an actor that was let go, that left by itself, that raised an error in its
    constructor, or whose owner died before it.
    """
    if death.HasField("oom_context"):
        return ": Ray ended it, since the memory of its node was full"
    context = death.actor_died_error_context
    if LEFT_BY_ITSELF in context.error_message:
        return None
    causes = {context.WORKER_DIED: "", context.NODE_DIED: ": its node was lost"}
    return causes.get(context.reason)


@contextlib.contextmanager
def watched(upstream_program: ModuleType) -> Iterator[None]:
    """Lets `train` of upstream's program raise ProcessDied as soon as one of its actors dies."""
    watch = Watch(upstream_program)
    changes = {
        "RayActorGroup": watch.start_group,
        "create_vllm_engines": watch.start_engines,
        "ray": SimpleNamespace(get=watch.get, is_initialized=ray.is_initialized),
    }
    vars(upstream_program).update(changes)
    try:
        yield
    except ray.exceptions.RayError as error:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            watch.check()
            time.sleep(POLL_SECONDS)
        watch.check_answers(error)
        raise
