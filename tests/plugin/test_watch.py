"""Which ends of an actor are deaths. The deaths themselves are in `integration/test_watch.py`."""

import pytest
from ray.core.generated.common_pb2 import ActorDeathCause

from openrlhf_js.plugin import watch


@pytest.mark.parametrize("reason", ["OWNER_DIED", "RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED"])
def test_an_actor_that_was_let_go_is_no_death(reason):
    death = ActorDeathCause(actor_died_error_context={"reason": reason})
    assert watch._cause(death) is None


def test_an_actor_that_leaves_by_itself_is_no_death():
    said = "its worker process has died. Worker exit type: INTENDED_USER_EXIT Worker exit detail: x"
    context = {"reason": "WORKER_DIED", "error_message": said}
    assert watch._cause(ActorDeathCause(actor_died_error_context=context)) is None


def test_an_error_in_a_constructor_is_upstreams_to_raise():
    assert watch._cause(ActorDeathCause(creation_task_failure_context={})) is None


def test_a_death_says_what_ray_knows_of_it():
    killed = ActorDeathCause(actor_died_error_context={"reason": "WORKER_DIED"})
    lost = ActorDeathCause(actor_died_error_context={"reason": "NODE_DIED"})
    assert watch._cause(killed) == ""
    assert "node was lost" in watch._cause(lost)
    assert "memory" in watch._cause(ActorDeathCause(oom_context={}))
