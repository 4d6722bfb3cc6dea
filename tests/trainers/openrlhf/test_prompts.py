"""The data set of a run: prompts that fit, and labels that reach the grader as they are."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import ray.cloudpickle
from kit import upstream_args

from answer_graders.rewards import reward_function
from openrlhf_js.trainers.openrlhf.prompts import CheckedPrompts
from openrlhf_js.trainers.openrlhf.records import Label
from openrlhf_js.trainers.openrlhf.rewards import Answer, RewardServers
from openrlhf_js.trainers.openrlhf.rollout import CheckedExecutor


def data_of(rows, tokenizer=None, task="", **settings):
    """Our data set of rows, in a run whose reward file grades `task`."""
    args = upstream_args(**{"data__label_key": "label", **settings})
    args.js.task = task
    if tokenizer is None:
        args.train.agent_func_path = "agent"  # prompts are not measured
    strategy = SimpleNamespace(args=args, is_rank_0=lambda: False)
    return CheckedPrompts(rows, tokenizer=tokenizer, strategy=strategy)


ROWS = [
    {"input": "a", "label": "gold", "datasource": "maze/easy"},
    {"input": "b", "label": 5, "datasource": "maze"},
    {"input": "c", "label": "gold", "datasource": None},
    {"input": "d", "label": "gold"},
]


def test_a_label_has_the_datasource_of_its_row_through_upstreams_loader_and_its_draw():
    from openrlhf.trainer.ppo_utils.samples_generator import _collect_prompt_batch
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = data_of(ROWS)
    loader = StatefulDataLoader(data, 1, collate_fn=data.collate_fn, num_workers=0)
    prompts, labels, _, _ = _collect_prompt_batch(iter(loader), 9)
    assert prompts == ["a", "b", "c", "d"]
    assert labels == [
        Label("gold", "maze/easy"),
        Label(5, "maze"),
        Label("gold", ""),  # a null in the file is none
        Label("gold", "default"),  # upstream's word for a row without one
    ]


def count_words(text, **_):
    """A tokenizer of which each word is one token."""
    return SimpleNamespace(input_ids=[one.split() for one in text])


LONG = [{"input": "word " * count, "label": f"{count}"} for count in (5, 1, 7, 2)]
ROOM_FOR_4 = {"data__max_len": 8, "rollout__max_new_tokens": 4}


def test_long_prompts_are_refused_or_dropped_with_all_that_belongs_to_them(capsys):
    problem = data_of(LONG, count_words, **ROOM_FOR_4).problem
    said = "longer than 4 tokens (--data.max_len 8, less 4 for the response): 2 of 4, up"
    assert said in problem
    assert "to 7 in row 3; raise --data.max_len" in problem

    dropping = {"js__on_long_prompt": "drop"}
    data = data_of(LONG, count_words, **ROOM_FOR_4, **dropping)
    assert data.problem is None
    assert [data[i][1:3] for i in range(len(data))] == [
        ("word ", Label("1", "default")),
        ("word word ", Label("2", "default")),
    ]
    assert "left out prompts longer than 4 tokens" in capsys.readouterr().out
    # a prompt may leave one token without --rollout.max_new_tokens
    assert data_of(LONG[2:3], count_words, data__max_len=8, **dropping).problem is None
    none = data_of(LONG[2:3], count_words, data__max_len=7, **dropping)
    assert "no prompt is left" in none.problem


def test_other_prompts_that_do_not_fit_are_refused_unless_they_are_not_what_the_model_reads():
    rows = [{"input": "word", "label": "1"}, {"input": " ", "label": "1"}]
    assert data_of(rows, count_words).problem == "row 2 is an empty prompt: leave it out"
    assert data_of(rows, count_words, train__agent_func_path="agent.py").problem is None
    # upstream sees to those with images
    processor = SimpleNamespace(tokenizer=count_words, image_processor=None)
    rows = [{**LONG[0], "images": ["a.png"]}, {**LONG[0], "images": None}]
    problem = data_of(rows, processor, data__max_len=5).problem
    assert "1 of 2, up to 5 in row 2" in problem


# --- labels of data sets on a hub, which a run sees late ------------------------------------------


def labelled(labels, task=""):
    """The data set of rows with these labels."""
    rows = [{"input": "2 + 2?", "label": label, "datasource": "math/a"} for label in labels]
    return data_of(rows, task=task, reward__remote_url=["reward.py"])


@pytest.mark.parametrize("label", [None, 0.5, True, ["4"], {"answer": 4}])
def test_labels_that_a_task_of_ours_cannot_read_are_refused_with_their_row(label):
    assert labelled(["4", label], "math").problem.startswith("row 2: a label must be text")
    data = labelled([4, "4", 5], "math")
    assert data.problem is None
    values = [data[row][2].value for row in range(3)]
    rewards = reward_function("math")(["\\boxed{4}"] * 3, [""] * 3, values)["rewards"]
    assert rewards.tolist() == [1, 1, 0]


@pytest.mark.parametrize("served", [False, True])
def test_labels_of_every_kind_reach_the_users_own_reward(served, tmp_path, monkeypatch):
    labels = [["4"], None, {"answer": {"is": [4, 1.5]}}, 4, "4", 1.5, True, []]
    data = labelled(labels)
    assert data.problem is None
    sent = [data[row][2] for row in range(len(labels))]
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(sent))
    received = []

    async def answer(servers, content):
        received.extend(json.loads(json.dumps(content))["labels"])
        return Answer(reward=1.0, score=1.0, logs={})

    async def grade():
        path = tmp_path / "reward.py"
        path.write_text("seen = []\ndef reward_func(q, p, l): seen.extend(l); return {}\n")
        remote = RewardServers(["http://a/r"], timeout_seconds=1)
        executor = CheckedExecutor([str(path)], remote)
        how = "http" if served else "func"
        for label in sent:
            await getattr(executor, f"_fetch_rewards_via_{how}")(["q"], ["p"], [label])
        received.extend(executor.reward_func.__globals__["seen"])

    monkeypatch.setattr(RewardServers, "_ask", answer)
    asyncio.run(grade())
    assert json.dumps(received) == json.dumps(labels)
