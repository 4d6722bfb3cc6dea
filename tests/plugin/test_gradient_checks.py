from __future__ import annotations

import pytest

from openrlhf_js.plugin.flags import add_flags
from openrlhf_js.plugin.gradient_checks import gradient_problems
from openrlhf_js.plugin.parser import upstream_parser

# 8 prompts of 4 responses, of which 16 make an optimizer step
SIZES = "--rollout.batch_size 8 --rollout.n_samples_per_prompt 4 --train.batch_size 16"


def problems(flags: str, prompts: int | None = None) -> list[str]:
    parser = upstream_parser()
    add_flags(parser)
    given = f"{SIZES} --train.micro_batch_size 4 --ref.num_gpus_per_node 1 {flags}"
    return list(gradient_problems(vars(parser.parse_args(given.split())), prompts))


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--js.gradient_variance",
        "--js.gradient_variance 10 --ds.zero_stage 3",
        "--js.gradient_variance --train.dynamic_batch_enable --train.micro_batch_size 16",
        "--js.gradient_variance --js.group_micro_batches --actor.num_gpus_per_node 2",
        # what only the measurement cannot have
        "--ds.param_dtype fp16 --actor.optim muon --train.micro_batch_size 16",
    ],
)
def test_what_works_is_let_through(flags):
    assert problems(f"--actor.num_gpus_per_node 1 {flags}") == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--js.gradient_variance -1", "must be at least 0, got -1"),
        ("--js.gradient_variance --ds.param_dtype fp16", "a scale that changes: use bf16"),
        ("--js.gradient_variance --actor.optim muon", "that of Muon's update: use adam"),
        ("--js.gradient_variance --ds.deepcompile", "before they can be seen: leave it out"),
        ("--js.gradient_variance --ds.tensor_parallel_size 2", "gradient of a whole parameter"),
        ("--js.gradient_variance --ds.ring_attn_size 2", "gradient of a whole micro-batch"),
        (
            "--js.gradient_variance --train.micro_batch_size 16",
            "--train.batch_size 16 / --train.micro_batch_size 16 is 1: use a smaller",
        ),
        (
            "--js.group_micro_batches --train.dynamic_batch_enable",
            "which forms micro-batches by length: leave out one of the two",
        ),
        (
            "--js.group_micro_batches --train.micro_batch_size 6",
            "multiple of --rollout.n_samples_per_prompt 4, got 6: use 8",
        ),
        (
            "--js.group_micro_batches --actor.num_gpus_per_node 3",
            "shared evenly by the 3 ranks of the actor, got one of 8",
        ),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(flags, said):
    (line,) = problems(f"--actor.num_gpus_per_node 1 {flags}")
    assert said in line and "\n" not in line


def test_an_episodes_last_rollout_is_looked_at_too():
    flags = "--js.group_micro_batches --actor.num_gpus_per_node 2"
    assert problems(flags, prompts=24) == []
    (line,) = problems(flags, prompts=25)
    assert "got one of 1: change --rollout.batch_size or --data.max_samples" in line
