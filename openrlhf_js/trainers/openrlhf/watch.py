"""Ends a run when one of its processes dies, with a line that says which.

Otherwise a run can wait for ever: when vLLM's engine dies, its open calls stay unanswered, and
upstream waits for them. Ray's table of actors lists deaths on every node, and nothing but deaths: a
process that is only slow counts as alive. The engine's process is not Ray's, so the actor that
started it ends with it. Actors that an agent or a grader started are not watched: their callers get
an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray._private import state
from ray.experimental import internal_kv

from openrlhf_js.trainers.openrlhf.upstream import ProcessDied

POLL_SECONDS = 0.5
SETTLE_SECONDS = 5.0  # after a failure, until Ray knows of the death behind it
MOST_FAILURES = 20  # failed calls of Ray in a row: on a busy machine some may fail
LEFT_BY_ITSELF = "INTENDED_USER_EXIT"  # Ray's word for `exit_actor`, as an agent's actor may call
NAMESPACE = "openrlhf_js"  # in Ray's key-value store, whose keys begin with the job's number
ROLES = {  # of a run's actors, by the names of their classes; `note_names` tells ranks apart
    "OurPolicy": "a policy rank",
    "OurCritic": "a critic rank",
    "ReferenceModelActor": "a reference rank",
    "RewardModelActor": "a reward rank",
    "CheckedRollout": "a vLLM engine",
    "RayWorkerWrapper": "a vLLM worker",  # of an engine on several GPUs
    "RayWorkerProc": "a vLLM worker",
    "ShrinkageTrainer": "the trainer",
    "AsyncTrainer": "the trainer",
    "PPOTrainerAsync": "the asynchronous trainer",
    "AsyncGenerator": "the generator of rollouts",
}
DEATH_SIGNAL = signal.SIGUSR2  # with it the watching thread interrupts the training one
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


def _note(kind: str, text: str, actor: str = "") -> None:
    """Stores a text about an actor, by default this one, where the driver finds it.

    Does nothing without Ray.
    """
    if ray.is_initialized():
        context = ray.get_runtime_context()
        key = _key(kind, context.get_job_id(), actor or context.get_actor_id())
        internal_kv._internal_kv_put(key, text, namespace=NAMESPACE)


def note_names(groups: Mapping[str, Any], engines: Sequence[Any] | None) -> None:
    """Stores names, with numbers, for the actors that a trainer works with.

    Args:
        groups: upstream's `RayActorGroup`s by their title; None for one that does not exist.
        engines: the actors of vLLM's engines.
    """
    titled = {title: group._actor_handlers for title, group in groups.items() if group is not None}
    for title, actors in {**titled, "vLLM engine": engines or ()}.items():
        for number, actor in enumerate(actors):
            _note("name", f"{title} {number}", actor._actor_id.hex())


def announce_phases(cls: type) -> type:
    """Makes the methods in `PHASES` store the actor's phase; a failed method leaves it there."""
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
    """Ends this actor when vLLM's engine dies, so that no call to it waits for ever."""
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
    """Looks for dead actors of a run; none may die before the run's end."""

    def __init__(self) -> None:
        self.job: str = ray.get_runtime_context().get_job_id()
        self.death: str | None = None  # the message about the death that `wait_for_death` saw

    def wait_for_death(self, ended: threading.Event) -> None:
        """Interrupts the main thread as soon as an actor is dead; returns then, or after `ended`.

        `watched` turns the interrupt into a ProcessDied.
        """
        main: Any = threading.main_thread().ident
        failures = 0  # in a row
        while not ended.wait(POLL_SECONDS):
            death = None
            try:
                death = self.find_death()
                failures = 0
            except Exception as error:  # whatever Ray raises: keep watching
                failures += 1
                if failures == MOST_FAILURES:
                    death = f"Ray, which no longer answers ({error}), died"
            if death is not None and not ended.is_set():
                self.death = death
                signal.pthread_kill(main, DEATH_SIGNAL)
                return

    def find_death(self) -> str | None:
        """A sentence on the first actor of the run that died; None if all are alive."""
        job = ray.JobID(bytes.fromhex(self.job))
        actors = state.actors(job_id=job, actor_state_name="DEAD").values()
        for actor in sorted(actors, key=lambda actor: actor["EndTime"]):
            if _role(actor) is not None and _cause(actor["DeathCause"]) is not None:
                return self._describe(actor)
        return None

    def check_answers(self, error: BaseException) -> None:
        """Raises ProcessDied if an error is from an actor that died without Ray's knowledge.

        This happens if a grader ends its process: the engine forked from it keeps its sockets open.
        """
        cause = error
        while isinstance(getattr(cause, "cause", None), BaseException):
            cause = cause.cause  # type: ignore[attr-defined]
        if isinstance(cause, ray.exceptions.RayActorError):
            for key in self._keys("name"):
                if key.rpartition(":")[2] in str(cause):
                    raise ProcessDied(f"{_read(key)} died{self._during()}") from error

    def _keys(self, kind: str) -> list[str]:
        keys = internal_kv._internal_kv_list(_key(kind, self.job), namespace=NAMESPACE)
        return [key.decode() for key in keys]

    def _describe(self, actor: dict[str, Any]) -> str:
        """A sentence on a dead actor: which one, where, and in which phase of the run."""
        name = _read(_key("name", self.job, actor["ActorID"])) or _role(actor)
        process = _read(_key("death", self.job, actor["ActorID"])) or f"process {actor['Pid']}"
        if len(ray.nodes()) > 1:
            process = f"{process} on {actor['Address']['IPAddress']}"
        cause = _cause(actor["DeathCause"])
        return f"{name} ({process}) died{self._during()}{cause}"

    def _during(self) -> str:
        """The phases of the trainer and its generator of samples, or those in which they failed."""
        phases = sorted({_read(key) for key in self._keys("phase")} - {""})
        return f" while {' and '.join(phases)}" if phases else ""


def _role(actor: dict[str, Any]) -> str | None:
    """The role of an actor in the run; None if the run did not start it."""
    class_name = actor["ActorClassName"].rpartition(".")[2]  # a function may define it
    return ROLES.get(class_name)


def _read(key: str) -> str:
    return (internal_kv._internal_kv_get(key, namespace=NAMESPACE) or b"").decode()


def _cause(death: Any) -> str | None:
    """The known cause of an actor's death, perhaps ""; None if the death need not end the run.

    None is for an actor that was released, that exited by itself, that raised an error in its
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
def watched() -> Iterator[None]:
    """Raises ProcessDied in the main thread, inside this context, as soon as an actor dies."""
    watch = Watch()
    ended = threading.Event()
    thread = threading.Thread(target=watch.wait_for_death, args=(ended,), daemon=True)
    before = signal.signal(DEATH_SIGNAL, signal.default_int_handler)  # `ray.get` lets it through
    thread.start()
    try:
        try:
            yield
        finally:
            ended.set()
            thread.join(SETTLE_SECONDS)
    except KeyboardInterrupt:
        if watch.death is None:
            raise
        raise ProcessDied(watch.death) from None
    except ray.exceptions.RayError as error:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if death := watch.find_death():
                raise ProcessDied(death) from error
            time.sleep(POLL_SECONDS)
        watch.check_answers(error)
        raise
    finally:
        signal.signal(DEATH_SIGNAL, before or signal.SIG_DFL)
