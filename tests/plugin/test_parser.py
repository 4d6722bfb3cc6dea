"""Upstream's main block, read without being imported."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys

import pytest

from openrlhf_js.plugin import flags, parser
from openrlhf_js.plugin.errors import BadInput, UpstreamMismatch

SOURCE = parser.source_path().read_text()


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from openrlhf_js.plugin import flags, parser;"
        "flags.add_flags(parser.upstream_parser());"
        "sys.exit(' '.join({'torch', 'ray', 'vllm', 'deepspeed', 'transformers'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""


def test_upstreams_own_defaults_and_actions_arrive():
    args = vars(parser.upstream_parser().parse_args(["--actor.muon.no_nesterov"]))
    assert args["rollout.batch_size"] == 1024
    assert args["actor.muon.nesterov"] is False and args["critic.muon.nesterov"] is True


def test_each_parser_is_its_own():
    flags.add_flags(parser.upstream_parser())
    choices = parser.upstream_parser()._option_string_actions["--algo.advantage.estimator"].choices
    assert choices is not None and "js" not in choices


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


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UpstreamMismatch, match="the file is missing"):
        parser.read_program(tmp_path / "train_ppo_ray.py")


@pytest.mark.parametrize(
    "old, new, missing",
    [
        ("parser = argparse.ArgumentParser()", "parser = new_thing(argparse)", "new_thing"),
        ("parser = argparse.ArgumentParser()", "parser = print", "parser"),
    ],
)
def test_a_block_that_builds_no_parser_is_refused(old, new, missing, tmp_path, monkeypatch):
    path = tmp_path / "train_ppo_ray.py"
    path.write_text(
        f'if __name__ == "__main__":\n    {new}\n    args = parser.parse_args()\n'
        "    args = hierarchize(args)\n    train(args)\n"
    )
    monkeypatch.setattr(parser, "source_path", lambda program: path)
    with pytest.raises(UpstreamMismatch, match=missing):
        parser.upstream_parser()


def test_openrlhf_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UpstreamMismatch, match=r"not installed.*0\.11\.2.*setup\.sh"):
        parser.source_path()


def test_an_estimator_flag_without_choices_is_refused():
    with pytest.raises(UpstreamMismatch, match="no choices"):
        flags.add_flags(argparse.ArgumentParser())


def validated(line: str):
    built = parser.upstream_parser()
    flags.add_flags(built)
    return parser.validate_upstream(built.parse_args(line.split()))


def test_upstreams_checks_nest_the_arguments_and_fill_them_in():
    line = "--algo.advantage.estimator js --reward.remote_url a,b --js.on_bad_reward mask "
    args = validated(line + "--rollout.batch_size 16")
    assert args.algo.advantage.estimator == "js"
    assert args.reward.remote_url == ["a", "b"]
    assert args.rollout.vllm_generate_batch_size == 16
    assert args.critic.model_name_or_path is None
    assert args.js.on_bad_reward == "mask"


def test_what_upstream_refuses_is_bad_input():
    with pytest.raises(BadInput, match="n_samples_per_prompt > 1"):
        validated("--algo.advantage.estimator rloo --reward.remote_url a")
