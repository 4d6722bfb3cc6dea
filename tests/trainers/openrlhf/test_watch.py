"""Which ends of which actors are deaths. The deaths themselves are in `integration`."""

import signal
import threading
import time
from types import SimpleNamespace

import pytest
from ray.core.generated.common_pb2 import ActorDeathCause

from openrlhf_js.trainers.openrlhf import watch
from openrlhf_js.trainers.openrlhf.upstream import ProcessDied

LEFT_BY_ITSELF = "its worker has died. Worker exit type: INTENDED_USER_EXIT Worker exit detail: x"
CRASHED = ActorDeathCause(actor_died_error_context={"reason": "WORKER_DIED"})


NO_DEATHS = [
    {"actor_died_error_context": {"reason": reason}}
    for reason in ("OWNER_DIED", "RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED")
] + [
    {"actor_died_error_context": {"reason": "WORKER_DIED", "error_message": LEFT_BY_ITSELF}},
    {"creation_task_failure_context": {}},  # an error in a constructor is upstream's to raise
]


def test_a_death_says_what_ray_knows_of_it_and_other_ends_are_none():
    lost = ActorDeathCause(actor_died_error_context={"reason": "NODE_DIED"})
    assert watch._cause(CRASHED) == ""
    assert "node was lost" in watch._cause(lost)
    assert "memory" in watch._cause(ActorDeathCause(oom_context={}))
    for context in NO_DEATHS:
        assert watch._cause(ActorDeathCause(**context)) is None


@pytest.fixture
def run(monkeypatch):
    """A run whose actor "01" is named "policy rank 0"; the actors that are dead, by their ids."""
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    monkeypatch.setattr(watch.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(watch.ray, "nodes", lambda: ["the only node"])
    notes = {
        "01000000:phase:trainer": b"training",
        "01000000:phase:generator": b"",
        "01000000:phase:other": b"saving",
        "01000000:name:01": b"policy rank 0",
    }
    kv = watch.internal_kv
    monkeypatch.setattr(
        kv,
        "_internal_kv_list",
        lambda prefix, namespace: [key.encode() for key in notes if key.startswith(prefix)],
    )
    monkeypatch.setattr(kv, "_internal_kv_get", lambda key, namespace: notes.get(key))
    dead = {}
    monkeypatch.setattr(watch.state, "actors", lambda **_: dead)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    return dead


def crashed(number, class_name="actors.OurPolicy"):
    return {
        "ActorID": number,
        "ActorClassName": class_name,
        "Pid": 7,
        "EndTime": 1,
        "DeathCause": CRASHED,
    }


@pytest.mark.parametrize(
    ("number", "class_name", "name"),
    [
        ("01", "actors.OurPolicy", "policy rank 0"),
        ("04", "actors.OurPolicy", "a policy rank"),  # before the trainer has begun
        ("02", "trainer.ShrinkageTrainer", "the trainer"),
        ("03", "RayWorkerWrapper", "a vLLM worker"),
        ("09", "agent.<locals>.Tool", None),  # is the agent's own affair
    ],
)
def test_the_runs_own_actors_may_not_die(run, number, class_name, name):
    run[number] = crashed(number, class_name)
    expected = f"{name} (process 7) died while saving and training" if name else None
    assert watch.Watch().find_death() == expected


def test_the_main_thread_that_waits_is_interrupted_by_a_death(run):
    before = signal.getsignal(watch.DEATH_SIGNAL)
    threads = threading.active_count()
    with (
        pytest.raises(ProcessDied, match=r"^policy rank 0 \(process 7\) died while"),
        watch.watched(),
    ):
        run["01"] = crashed("01")
        time.sleep(20)
    with watch.watched():  # nothing is left of it
        run.clear()
    assert signal.getsignal(watch.DEATH_SIGNAL) == before
    assert threading.active_count() == threads


def test_without_a_death_an_interrupt_is_the_users(run):
    with pytest.raises(KeyboardInterrupt), watch.watched():
        raise KeyboardInterrupt


def test_a_ray_that_does_not_answer_ends_the_run(run, monkeypatch):
    def actors(**_):
        raise RuntimeError("gone")

    monkeypatch.setattr(watch.state, "actors", actors)
    with pytest.raises(ProcessDied, match=r"Ray, which .* \(gone\), died"), watch.watched():
        time.sleep(20)


def test_an_error_is_answered_with_the_death_behind_it(run, monkeypatch):
    monkeypatch.setattr(watch, "SETTLE_SECONDS", 0.05)
    error = watch.ray.exceptions.RayActorError
    with pytest.raises(ProcessDied, match=r"^policy rank 0 \(process 7\)"), watch.watched():
        run["01"] = crashed("01")
        raise error(error_msg="an actor died")
    run.clear()
    with pytest.raises(ProcessDied, match=r"^policy rank 0 died while"), watch.watched():
        raise error(error_msg="the actor 01 is unavailable")  # which Ray has not noticed
    with pytest.raises(error, match="of an agent"), watch.watched():
        raise error(error_msg="that of an agent")
