"""Upstream's parser, our flags in it, and what answers a mistake."""

import math
import pickle
import re

import pytest
import torch
from transformers import get_scheduler

from openrlhf_js.estimators.catalogue import ADDED, OPENRLHF
from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.flags import parser
from openrlhf_js.trainers.openrlhf.flags.parser import (
    changed,
    settings_text,
    upstream_parser,
    validate_upstream,
)
from openrlhf_js.trainers.openrlhf.upstream import BadInput, UpstreamMismatch

PARSER = upstream_parser()
flags.add_flags(PARSER)
DEFAULTS = vars(PARSER.parse_args([]))


def parse(line: str) -> dict:
    return vars(PARSER.parse_args(line.split()))


def test_the_estimator_has_a_short_name():
    assert parse("--advantage_estimator js") == parse("--algo.advantage.estimator js")


@pytest.mark.parametrize(
    "line, said",
    [
        ("--ref_num_nodes 1", "--ref.num_nodes"),
        ("--zero_stage 1", "--ds.zero_stage"),  # an old name
        ("--train.sed=3", "--train.seed"),
        ("--train.seed=3 4", "'4'"),
        ("--train.seed x", "--train.seed"),
        ("--pretrai m", "--pretrai"),  # no abbreviations
        ("--train.seed -1", "at least 0"),
        ("--train.async_queue_size 0", "at least 1"),
        ("--ds.zero_stage 7", "at most 3"),
        ("--actor.dual_clip 0.5", "above 1"),
        ("--reward.stop_properly_penalty_coef 2", "at most 1"),
        ("--actor.lr_scheduler cosin", "cosine"),
        ("--critic.freezing_steps 3", "--critic.freezing_steps"),
    ],
)
def test_what_is_not_understood_is_named_in_one_line_with_status_2(line, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(line)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in error
    assert error.count("\n") == 1


def test_every_schedule_takes_what_upstream_gives_it():
    for name in flags.SCHEDULES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        specific = {"min_lr_rate": 0.1} if name.endswith("with_min_lr") else {}
        schedule = get_scheduler(name, optimizer, 2, 10, scheduler_specific_kwargs=specific)
        optimizer.step()
        schedule.step()


RUN = """
algo: {advantage: {estimator: js}}
actor: {model_name_or_path: m, adam: {lr: 5e-6, betas: [0.9, 0.98]}, muon.nesterov: false}
js.max_steps: 3
js.gradient_variance: true
rollout.stop: ["--- ", -q, 0.10, 12:30, 010, on, 2024-01-01 00:00:00]
logger.wandb: {run_name: 1e5, project: 0x1F}
data.input_template: 1_000
ckpt.max_mem: .inf
reward.clip_range: [-5, 5]
vllm.enforce_eager: true
train: {colocate_all: false, agent_func_path: null}
"""


def write(path, text):
    path.write_text(text)
    return str(path)


def test_a_file_has_flags_nested_or_with_dots_and_the_command_line_wins(tmp_path):
    path = write(tmp_path / "run.yaml", RUN)
    flat = vars(PARSER.parse_args([path, "--js.max_steps", "5"]))
    expected = {
        "algo.advantage.estimator": "js",
        "actor.adam.lr": 5e-6,
        "actor.adam.betas": [0.9, 0.98],
        "actor.muon.nesterov": False,
        "actor.model_name_or_path": "m",
        "js.max_steps": 5,
        "js.gradient_variance": 1,
        "rollout.stop": ["--- ", "-q", "0.10", "12:30", "010", "on", "2024-01-01 00:00:00"],
        "logger.wandb.run_name": "1e5",
        "logger.wandb.project": "0x1F",
        "data.input_template": "1_000",
        "ckpt.max_mem": math.inf,
        "reward.clip_range": [-5, 5],
        "vllm.enforce_eager": True,
        "train.colocate_all": False,
        "train.agent_func_path": None,
    }
    assert {name: flat[name] for name in expected} == expected
    assert {name: flat[name] for name in DEFAULTS.keys() - expected} == {
        name: DEFAULTS[name] for name in DEFAULTS.keys() - expected
    }


WRONG = {
    "actor.adam.lr: fast": "actor.adam.lr",
    "actor.adam: {betas: [0.9]}": "actor.adam.betas",
    "algo: {advantage: {estimater: js}}": "algo.advantage.estimator",
    "vllm.enforce_eager: on": "vllm.enforce_eager",
    "train.seed: 0x10": "train.seed",
    "ckpt.path: [a, b]": "ckpt.path",
    "rollout.batch_size: 4\nrollout: {batch_size: 8}": "rollout.batch_size",
    "logger.wandb.key: (hidden)": "--logger.wandb.key",
    "- js": "names of flags",
    "a: [": "YAML",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_what_is_wrong_in_a_file_is_one_line_with_its_name(text, said, tmp_path):
    path = write(tmp_path / "run.yml", text)
    with pytest.raises(BadInput) as caught:
        PARSER.parse_args([path])
    assert said in str(caught.value)
    assert str(caught.value).startswith(path)
    with pytest.raises(BadInput, match="No such file"):
        PARSER.parse_args([f"{path}.yaml"])


def test_a_key_is_handed_over_and_not_shown():
    nested = validate_upstream(PARSER.parse_args(["--logger.wandb.key", "s3cret"]))
    key = pickle.loads(pickle.dumps(nested)).logger.wandb.key
    assert key == "s3cret" and "s3cret" not in repr(nested)
    assert validate_upstream(PARSER.parse_args([])).logger.wandb.key is None


def test_the_settings_of_a_run_are_a_file_that_sets_the_same(tmp_path):
    line = (
        "--algo.advantage.estimator js --actor.adam.betas .9 .99 --ckpt.max_mem inf --train.seed 7"
    )
    line += " --ds.lora.target_modules q k --rollout.stop 1e-6 é 0.10 on --logger.wandb.key s3cret"
    flat = parse(line)
    text = settings_text(flat, PARSER)
    was_set, _, defaults = text.partition("# defaults")
    assert "\nactor.adam.betas:\n- 0.9\n- 0.99\n" in was_set and "s3cret" not in text
    assert "\nactor.adam.lr: 1.0e-06\n" in defaults
    path = write(tmp_path / "run.yaml", f"{text}\nrecord: {{outcome: done}}\n")
    again = vars(PARSER.parse_args([path, "--logger.wandb.key", "s3cret"]))
    assert {name: value for name, value in again.items() if changed(name, value, PARSER)} == {
        name: value for name, value in flat.items() if changed(name, value, PARSER)
    }


def test_an_estimator_is_upstreams_or_one_of_ours(capsys):
    known = upstream_parser()._option_string_actions["--algo.advantage.estimator"].choices
    assert {*known} == {*OPENRLHF}
    for asked, live in {"reinforce": "reinforce", "grpo": "group_norm", "dbb": "dbb"}.items():
        assert parse(f"--advantage_estimator {asked}")["algo.advantage.estimator"] == live
    with pytest.raises(SystemExit):
        parse("--advantage_estimator jss")
    error = capsys.readouterr().err
    assert {*known, *ADDED} <= {*re.findall(r"[\w+]+", error)}


# --- upstream's source ----------------------------------------------------------------------


def test_a_source_of_another_shape_is_refused(tmp_path):
    path = tmp_path / "train_ppo_ray.py"
    path.write_text(parser.source_path().read_text().replace("    train(args)\n", ""))
    with pytest.raises(UpstreamMismatch, match=r"0\.11\.2"):
        parser.read_program(path)
