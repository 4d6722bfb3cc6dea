"""Which ends of which actors are deaths. The deaths themselves are in `integration`."""

from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
from ray.core.generated.common_pb2 import ActorDeathCause
from ray.exceptions import RayActorError, RayTaskError

from openrlhf_js.plugin import watch
from openrlhf_js.plugin.upstream import ProcessDied

CRASHED = ActorDeathCause(actor_died_error_context={"reason": "WORKER_DIED"})


@pytest.mark.parametrize("reason", ["OWNER_DIED", "RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED"])
def test_an_actor_that_was_let_go_is_no_death(reason):
    death = ActorDeathCause(actor_died_error_context={"reason": reason})
    assert watch._cause(death) is None


def test_an_actor_that_leaves_by_itself_is_no_death():
    message = (
        "its worker process has died. Worker exit type: INTENDED_USER_EXIT Worker exit detail: x"
    )
    context = {"reason": "WORKER_DIED", "error_message": message}
    assert watch._cause(ActorDeathCause(actor_died_error_context=context)) is None


def test_an_error_in_a_constructor_is_upstreams_to_raise():
    assert watch._cause(ActorDeathCause(creation_task_failure_context={})) is None


def test_a_death_says_what_ray_knows_of_it():
    lost = ActorDeathCause(actor_died_error_context={"reason": "NODE_DIED"})
    assert watch._cause(CRASHED) == ""
    assert "node was lost" in watch._cause(lost)
    assert "memory" in watch._cause(ActorDeathCause(oom_context={}))


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


@pytest.fixture
def check_of_dead_actor(watched, monkeypatch):
    """Checks a run in whose Ray one actor has crashed."""

    def check(number: str, class_name: str) -> None:
        dead = {
            "ActorID": number,
            "ActorClassName": class_name,
            "Pid": 7,
            "EndTime": 1,
            "DeathCause": CRASHED,
        }
        monkeypatch.setattr(watch.state, "actors", lambda **_: {number: dead})
        watched.check()

    return check


@pytest.mark.parametrize(
    ("number", "class_name", "name"),
    [
        ("01", "actors.OurPolicy", "policy rank 0"),
        ("02", "trainer.ShrinkageTrainer", "the trainer"),
        ("03", "RayWorkerWrapper", "a vLLM worker"),
    ],
)
def test_the_runs_own_actors_may_not_die(check_of_dead_actor, number, class_name, name):
    with pytest.raises(ProcessDied) as error:
        check_of_dead_actor(number, class_name)
    assert str(error.value) == f"{name} (process 7) died while saving and training"


@pytest.mark.parametrize("class_name", ["Tool", "agent.<locals>.Tool"])
def test_an_actor_of_an_agent_is_its_own_affair(check_of_dead_actor, class_name):
    check_of_dead_actor("09", class_name)


@pytest.mark.parametrize(("number", "is_ours"), [("01", True), ("09", False)])
def test_an_actor_of_the_run_that_does_not_answer_is_named(watched, number, is_ours):
    cause = RayActorError(actor_id=number, error_msg="The actor is unavailable")
    error = RayTaskError("fit", "traceback", cause)
    says = "policy rank 0 does not answer any more while saving"
    with pytest.raises(ProcessDied, match=says) if is_ours else nullcontext():
        watched.check_answer(error)
