"""How long a run is, as the learning rate's schedule has it."""

from types import SimpleNamespace

import pytest

from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser, validate_upstream
from openrlhf_js.trainers.openrlhf.schedule import Schedule
from openrlhf_js.trainers.openrlhf.trainer import optimizer_steps, refuse_prompts
from openrlhf_js.trainers.openrlhf.upstream import BadInput

GSM8K = 7473
PARSER = upstream_parser()
flags.add_flags(PARSER)
GIVEN = {
    "algo.advantage.estimator": "js",
    "reward.remote_url": "r.py",
    "rollout.batch_size": 64,
    "rollout.n_samples_per_prompt": 4,
    "train.batch_size": 256,
}


def arguments(**changes):
    words = []
    for name, value in {**GIVEN, **changes}.items():
        words.append(f"--{name.replace('__', '.')}={value}" if value != "" else f"--{name}")
    return PARSER.parse_args(words)


@pytest.mark.parametrize(
    ("changes", "rollouts", "updates", "oldest"),
    [
        ({}, 116, 1, 0),
        ({"train.num_episodes": 3}, 348, 1, 0),
        ({"train.num_episodes": 3, "js.max_steps": 200}, 200, 1, 0),
        ({"train.max_epochs": 3}, 116, 3, 2),
        ({"rollout.batch_size": 1024, "train.batch_size": 128}, 7, 32, 31),
        ({"rollout.vllm_generate_batch_size": 192}, 116, 1, 2),
        ({"rollout.vllm_generate_batch_size": 96}, 116, 1, 1),
        ({"train.async_enable": "", "train.async_queue_size": 2}, 116, 1, 2),
    ],
)
def test_a_run_has_as_many_rollouts_as_fill_and_updates_of_each(changes, rollouts, updates, oldest):
    assert Schedule.of(GSM8K, vars(arguments(**changes)).__getitem__) == (rollouts, updates, oldest)


def trainer(prompts, **changes):
    """A trainer with as many prompts, and upstream's nested arguments."""
    args = arguments(**changes)
    dataset = type("Prompts", (), {"problem": None, "__len__": lambda self: prompts})()
    loader = SimpleNamespace(dataset=dataset)
    args = validate_upstream(args)
    return SimpleNamespace(args=args, prompts_dataloader=loader, eval_dataloader=None)


def test_the_learning_rate_ends_with_the_last_update():
    assert optimizer_steps(trainer(21, **{"rollout.batch_size": 8, "train.batch_size": 32})) == 2
    assert optimizer_steps(trainer(GSM8K, **{"train.num_episodes": 2})) == 232


def test_the_trainer_says_what_is_left_out_and_refuses_what_fills_no_rollout(capsys):
    refuse_prompts(trainer(128))
    assert capsys.readouterr().out == ""
    refuse_prompts(trainer(GSM8K))
    assert (
        "49 of 7,473 prompts, other ones in each episode, are left out" in capsys.readouterr().out
    )
    with pytest.raises(BadInput, match="there are 63 prompts, fewer than one rollout"):
        refuse_prompts(trainer(63))
