"""The graders as rewards of verifiers: `bash scripts/trainers.sh verifiers`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kit import pasted

vf = pytest.importorskip("verifiers.v1", reason="bash scripts/trainers.sh verifiers")

from verifiers.v1.task import TaskData  # noqa: E402
from verifiers.v1.trace import AgentInfo, TraceTask  # noqa: E402
from verifiers.v1.types import AssistantMessage, ToolMessage, UserMessage  # noqa: E402

from answer_graders.record import STATUSES  # noqa: E402
from answer_graders.trainers import TraceReward  # noqa: E402

RIGHT, WRONG = r"\boxed{\frac{1}{2}}", r"\boxed{2}"


class Question(TaskData):
    answer: Any
    source: Any = None


LINES = pasted("reward_models/README.md", "TraceReward")


class Graded(vf.Task[Question]):
    exec(LINES)


class Weighted(vf.Task[Question]):
    graded = vf.reward(TraceReward("math", label="answer"), weight=2.0)


class GradedBySource(vf.Task[Question]):
    @vf.reward
    async def short(self, trace: Any) -> float:
        return float(len(trace.last_reply) < 30)

    graded = vf.reward(TraceReward(label="answer", datasource="source"))


class Ungraded(vf.Task[Question]):
    pass


def scored(task: Any, *messages: Any) -> Any:
    """The trace of these messages after verifiers' own scoring."""
    data = TraceTask(type=type(task).__name__, data=task.data)
    agent = AgentInfo(config=vf.AgentConfig())
    nodes = [
        vf.MessageNode(message=message, sampled=message.role == "assistant") for message in messages
    ]
    trace = vf.Trace(task=data, agent=agent, nodes=nodes)
    asyncio.run(task.score(trace))
    return trace


def say(text: str | None, **more: Any) -> Any:
    return AssistantMessage(content=text, **more)


def test_a_task_takes_it_as_a_reward() -> None:
    """Under the name of the grader's task, with verifiers' weight, and the status as a metric."""
    asked = UserMessage(content="Half of one?")
    question = Question(answer="0.5")
    for reply, value, status in ((RIGHT, 1, "correct"), (WRONG, 0, "wrong"), ("?", 0, "no_answer")):
        trace = scored(Graded(question), asked, say(reply))
        assert trace.reward == value and list(trace.rewards) == ["math"]
        assert scored(Weighted(question), asked, say(reply)).reward == 2 * value
        found = dict.fromkeys((f"math/{name}" for name in STATUSES), 0.0)
        assert trace.metrics == found | {f"math/{status}": 1.0}


def test_the_last_reply_is_graded_without_its_thinking_and_tools() -> None:
    task = Graded(Question(answer="0.5"))
    tool = ToolMessage(tool_call_id="1", content=RIGHT)
    assert scored(task, say(RIGHT), tool, say(WRONG)).reward == 0
    assert scored(task, say(WRONG), tool, say(RIGHT)).reward == 1
    assert scored(task, say(WRONG), tool).reward == 0
    assert scored(task, say(None, reasoning_content=RIGHT)).reward == 0
    assert scored(task, say(f"<think>{RIGHT}")).reward == 0
    assert scored(task, UserMessage(content=RIGHT)).reward == 0


def test_each_row_is_graded_by_its_own_task() -> None:
    task = GradedBySource(Question(answer="7", source="gsm8k/main"))
    trace = scored(task, say("So she has 7 pens."))
    assert {name: reward.value for name, reward in trace.rewards.items()} == {
        "short": 1,
        "answer": 1,
    }


@pytest.mark.parametrize("place", ["file", "module"])
def test_a_configuration_plugs_it_in(tmp_path: Path, place: str, monkeypatch: Any) -> None:
    """As `--env.taskset.task.rewards.graded.fn graders.py:graded` does."""
    lines = LINES.replace('"math", ', '"math", prompt_end="<think>", ')
    (tmp_path / "graders.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    where = {"file": f"{tmp_path}/graders.py:graded", "module": "graders.graded"}[place]
    config = vf.TaskConfig.model_validate({"rewards": {"graded": {"fn": where, "weight": 0.5}}})
    task = Ungraded(Question(answer="0.5"), config)
    trace = scored(task, say(f"It is </think>{RIGHT}"))
    assert trace.reward == 0.5 and list(trace.rewards) == ["graded"]
    assert scored(task, say(RIGHT)).reward == 0


@pytest.mark.parametrize(
    ("kind", "row", "problem"),
    [
        (Graded, {"answer": None}, "a label must be text"),
        (Graded, {"answer": 0.5}, "a label must be text"),
        (GradedBySource, {"answer": "7"}, "its datasource must name a task"),
        (GradedBySource, {"answer": "7", "source": "openai/gsm8k"}, "no task grades"),
    ],
)
def test_what_cannot_be_graded_is_an_error(kind: Any, row: Any, problem: str) -> None:
    with pytest.raises(vf.TaskError, match=problem):
        scored(kind(Question(**row)), say("7"))
