"""Labels of data sets on a hub, which a run sees late: whole numbers are text, others refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.cloudpickle
from kit import upstream_args

from openrlhf_js.estimators.memory import key_of
from openrlhf_js.plugin.checks import rewards as label_checks
from openrlhf_js.plugin.experience import SourcedPrompts
from openrlhf_js.plugin.memory import keys_of
from openrlhf_js.plugin.rewards import Answer, RemoteRewards, RewardServers, RewardSource
from openrlhf_js.plugin.rollout import RememberingExecutor
from openrlhf_js.plugin.run.user_file import UserFile
from openrlhf_js.sampling.prompts import sourced
from openrlhf_js.tasks.rewards import reward_by_datasource, reward_function

ROOT = Path(__file__).parents[2]


def prompts(labels: list[Any], reward_file: Path) -> SourcedPrompts:
    """The data set of a run that is rewarded by a file."""
    rows = [{"input": "2 + 2?", "label": label, "datasource": "math/a"} for label in labels]
    args = upstream_args(data__label_key="label", reward__remote_url=[str(reward_file)])
    args.train.agent_func_path = "agent"  # prompts are not measured, which takes a tokenizer
    strategy = SimpleNamespace(args=args, is_rank_0=lambda: False)
    return SourcedPrompts(rows, tokenizer=None, strategy=strategy)


@pytest.fixture
def math_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is rewarded by a file of the task `math`."""
    monkeypatch.setattr(label_checks, "grader_of", lambda **_: UserFile(None, "math"))


@pytest.mark.usefixtures("math_grades")
def test_whole_numbers_are_graded_as_their_decimal_text() -> None:
    data_set = prompts([4, "4", 5], ROOT / "reward_models/math.py")
    assert data_set.problem is None
    labels = [data_set[row][2] for row in range(3)]
    labels = ray.cloudpickle.loads(ray.cloudpickle.dumps(labels))
    assert labels == [4, "4", 5]  # a reward function of the user's sees what the file holds
    responses = ["\\boxed{4}"] * 3
    for grade in (reward_function("math"), reward_by_datasource):
        assert grade(responses, [""] * 3, labels)["rewards"].tolist() == [1, 1, 0]


@pytest.mark.usefixtures("math_grades")
@pytest.mark.parametrize("label", [None, 0.5, True, ["4"], {"answer": 4}])
def test_other_labels_are_refused_with_their_row(label: Any) -> None:
    data_set = prompts(["4", 4, label], ROOT / "reward_models/math.py")
    assert data_set.problem == (
        f'row 3: a label must be text, as in "42", or a whole number, got {type(label).__name__}: '
        f"{label!r}; write it as text, or leave the row out"
    )


def test_whose_file_it_is_is_found_out_by_loading_it(tmp_path: Path) -> None:
    """A reward function of the user's may take any labels."""
    ours = upstream_args(reward__remote_url=[str(ROOT / "reward_models/math.py")])
    assert label_checks.grades_with_our_task(ours)
    own_file = tmp_path / "reward.py"
    own_file.write_text("def reward_func(queries, prompts, labels): ...\n")
    for addresses in ([str(own_file)], ["http://localhost:1/r"]):
        own = upstream_args(reward__remote_url=addresses)
        assert not label_checks.grades_with_our_task(own)


@pytest.mark.parametrize("served", [False, True])
def test_labels_of_every_kind_reach_the_users_own_reward(
    served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_checks, "grader_of", lambda **_: UserFile(None, ""))
    labels = [["4"], None, {"answer": {"is": [4, 1.5]}}, 4, "4", 1.5, True, []]
    data_set = prompts(labels, Path("reward.py"))
    assert data_set.problem is None
    sent = [data_set[row][2] for row in range(len(labels))]
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(sent))
    received = []

    async def answer(servers: RewardServers, content: dict[str, Any]) -> Answer:
        received.extend(json.loads(json.dumps(content))["labels"])
        return Answer(reward=1.0, score=1.0, logs={})

    async def grade() -> None:
        remote = RemoteRewards([RewardSource("", 1.0, ("http://a/r",))], timeout_seconds=1)
        path = tmp_path / "reward.py"
        path.write_text("seen = []\ndef reward_func(q, p, l): seen.extend(l); return {}\n")
        executor = RememberingExecutor([str(path)])
        for label in sent:
            if served:
                await remote.grade("q", "p", label)
            else:
                await executor._fetch_rewards_via_func(["q"], ["p"], [label])
        received.extend(executor.reward_func.__globals__["seen"])

    monkeypatch.setattr(RewardServers, "ask", answer)
    asyncio.run(grade())
    assert json.dumps(received) == json.dumps(labels)


def test_a_number_and_its_text_are_one_prompt_to_a_memory() -> None:
    """Since pass@k, whose samples warm it, keeps labels as text."""
    number = sourced(4, "math")
    text = sourced("4", "math")
    assert json.dumps([number, text]) == '[4, "4"]'
    keys = keys_of(["2 + 2?"] * 2, [number, text])
    assert keys.tolist() == [key_of("2 + 2?", "4", "math")] * 2
