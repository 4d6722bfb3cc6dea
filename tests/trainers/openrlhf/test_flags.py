"""Upstream's parser, our flags in it, and what answers a mistake."""

import math
import re
import subprocess
import sys
import textwrap

import pytest

from openrlhf_js.estimators.catalogue import ADDED, OPENRLHF
from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.flags import parser
from openrlhf_js.trainers.openrlhf.flags.parser import changed, settings_text, upstream_parser
from openrlhf_js.trainers.openrlhf.reward_training import reward_parser
from openrlhf_js.trainers.openrlhf.upstream import BadInput, UpstreamMismatch

PARSER = upstream_parser()
flags.add_flags(PARSER)
DEFAULTS = vars(PARSER.parse_args([]))


def parse(line: str) -> dict:
    return vars(PARSER.parse_args(line.split()))


def test_the_estimator_has_a_short_name():
    assert parse("--advantage_estimator js") == parse("--algo.advantage.estimator js")


@pytest.mark.parametrize("old", [*parser.NEW_WORDS, "zero_stage", "rollout_batch_size"])
def test_an_old_name_is_answered_with_the_new_one(old, capsys):
    new = parser.NEW_WORDS.get(old) or {"zero_stage": "ds.zero_stage"}.get(
        old, "rollout.batch_size"
    )
    with pytest.raises(SystemExit):
        parse(f"--{old} 1")
    assert f"unknown flag --{old}, did you mean --{new}?" in capsys.readouterr().err


@pytest.mark.parametrize("program", [PARSER, reward_parser()], ids=["train", "rm"])
def test_every_default_is_in_its_range(program):
    names = {name for names in flags.RANGES.values() for name in names.split()}
    ranged = {action.dest: action for action in (*PARSER._actions, *reward_parser()._actions)}
    assert names <= {*ranged}
    for action in program._actions:
        default = action.default
        values = default if isinstance(default, list | tuple) else [default]
        for value in values if isinstance(action.type, flags.Number) else ():
            assert value is None or action.type(str(value)) == value


@pytest.mark.parametrize(
    "line, said",
    [
        ("--n_sample_per_prompt 3", "did you mean --eval.n_samples_per_prompt or --rollout.n"),
        ("--ref_num_nodes 1", "did you mean --ref.num_nodes?"),
        ("--train.sed=3", "did you mean --train.seed"),
        ("--zzzzzz", "unknown flag --zzzzzz\n"),
        ("--train.seed=3 4", "unexpected value '4'"),
        ("--train.seed x", "invalid int value: 'x'"),
        ("--algo.advantage.estimator js_memory", "js_memory is js_grad since 0.4"),
        ("--pretrai m", "unknown flag --pretrai\n"),  # no abbreviations
        ("--algo.advantage.estimator=jsgrad", "'jsgrad' (did you mean 'js_grad'?); choose"),
    ],
)
def test_what_is_not_understood_is_one_line_and_status_2(line, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(line)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in error
    assert error.count("\n") == 1


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
    "actor.adam.lr: fast": "actor.adam.lr: must be a finite number, at least 0, got fast",
    "actor.adam: {betas: [0.9]}": "actor.adam.betas: expected 2 arguments",
    "algo: {advantage: {estimater: js}}": "unknown setting algo.advantage.estimater, did you mean "
    "algo.advantage.estimator",
    "js.device: gpo": "'auto', 'cpu', 'gpu') (did you mean 'gpu'?)",
    "vllm.enforce_eager: on": "vllm.enforce_eager: takes true or false, got on",
    "train.seed: 0x10": "train.seed: invalid int value: '0x10'",
    "js.max_steps: false": "js.max_steps: takes text or numbers, got False",
    "ckpt.path: [a, b]": "ckpt.path: takes one value, got ['a', 'b']",
    "rollout.batch_size: 4\nrollout: {batch_size: 8}": "rollout.batch_size is given twice",
    "logger.wandb.key: (hidden)": "logger.wandb.key is not kept in a file: give --logger.wandb.key",
    "- js": "must have the names of flags",
    "a: [": "cannot be read as YAML",
    "actor.adam: {lr: 1}\nactor.adam: {lr: 2}": "actor.adam is given twice",
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


def test_upstreams_checks_nest_the_arguments_and_what_they_refuse_is_bad_input():
    line = "--algo.advantage.estimator js --reward.remote_url a,b --rollout.batch_size 16"
    args = parser.validate_upstream(PARSER.parse_args(line.split()))
    assert args.algo.advantage.estimator == "js"
    assert args.reward.remote_url == ["a", "b"]
    assert args.rollout.vllm_generate_batch_size == 16
    line = "--algo.advantage.estimator rloo --reward.remote_url a"
    with pytest.raises(BadInput, match="n_samples_per_prompt > 1"):
        parser.validate_upstream(PARSER.parse_args(line.split()))


def test_the_example_of_the_help_is_understood(tmp_path):
    example = textwrap.dedent(flags.DESCRIPTION.split("\n\n")[3])
    flat = vars(PARSER.parse_args([write(tmp_path / "run.yaml", example)]))
    assert (flat["algo.advantage.estimator"], flat["actor.adam.lr"]) == ("js_grad", 5e-6)
    assert all(f"{name}:" in PARSER.format_help() for name in ADDED)


# --- upstream's source ----------------------------------------------------------------------

SOURCE = parser.source_path().read_text()


def test_nothing_heavy_is_imported():
    code = (
        "import sys;"
        "from openrlhf_js.trainers.openrlhf import flags;"
        "from openrlhf_js.trainers.openrlhf.flags import parser;"
        "flags.add_flags(parser.upstream_parser());"
        "sys.exit(' '.join({'torch', 'ray', 'vllm', 'deepspeed', 'transformers'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    "old, new, missing",
    [
        ('if __name__ == "__main__":', "def main():", "__main__"),
        ("args = parser.parse_args()", "args = parser.parse_known_args()[0]", "parse_args"),
        ("    train(args)\n", "    train(args, None)\n", r"train\(args\)"),
        ("args = hierarchize(args)", "pass", "hierarchize"),
    ],
)
def test_a_source_of_another_shape_is_refused(old, new, missing, tmp_path):
    doctored = SOURCE.replace(old, new)
    assert doctored != SOURCE
    path = tmp_path / "train_ppo_ray.py"
    path.write_text(doctored)
    with pytest.raises(UpstreamMismatch, match=rf"{missing}.* is missing.*0\.11\.2"):
        parser.read_program(path)
