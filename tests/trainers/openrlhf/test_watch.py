"""Which ends of which actors are deaths. The deaths themselves are in `integration`."""

from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

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
def watched(monkeypatch):
    """A run whose actor "01" is named "policy rank 0"."""
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    monkeypatch.setattr(watch.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(watch.ray, "nodes", lambda: ["the only node"])
    notes = {b"trainer": b"training", b"generator": b"", b"other": b"saving"}
    kv = watch.internal_kv
    monkeypatch.setattr(kv, "_internal_kv_list", lambda prefix, namespace: list(notes))
    monkeypatch.setattr(kv, "_internal_kv_get", lambda key, namespace: notes.get(key))
    upstream_program = ModuleType("train_ppo_ray")
    upstream_program.RayActorGroup = None
    upstream_program.create_vllm_engines = None
    watched = watch.Watch(upstream_program)
    watched.names["01"] = "policy rank 0"
    return watched


@pytest.mark.parametrize(
    ("number", "class_name", "name"),
    [
        ("01", "actors.OurPolicy", "policy rank 0"),
        ("02", "trainer.ShrinkageTrainer", "the trainer"),
        ("03", "RayWorkerWrapper", "a vLLM worker"),
        ("09", "agent.<locals>.Tool", None),  # is the agent's own affair
    ],
)
def test_the_runs_own_actors_may_not_die(watched, monkeypatch, number, class_name, name):
    dead = {
        "ActorID": number,
        "ActorClassName": class_name,
        "Pid": 7,
        "EndTime": 1,
        "DeathCause": CRASHED,
    }
    monkeypatch.setattr(watch.state, "actors", lambda **_: {number: dead})
    with pytest.raises(ProcessDied) if name else nullcontext() as error:
        watched.check()
    if name:
        assert str(error.value) == f"{name} (process 7) died while saving and training"
