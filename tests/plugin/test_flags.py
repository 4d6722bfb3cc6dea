"""Older spellings against both released packages' flags, and our own beside upstream's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from openrlhf_js import estimators
from openrlhf_js.plugin import flags
from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.old_flags import (
    CORRECTION_SWITCHES,
    CORRECTION_TYPES,
    IDLE_FLAGS,
    OLD_FLAGS,
    REMOVED_FLAGS,
)
from openrlhf_js.plugin.parser import upstream_parser

RELEASED = json.loads(Path(__file__).with_name("flags_0_10_1.json").read_text())
UNCHANGED = {"local_rank", "use_ms"}
RULES = {*CORRECTION_SWITCHES, *CORRECTION_TYPES}


PARSER = upstream_parser()
flags.add_flags(PARSER)
DEFAULTS = vars(PARSER.parse_args([]))
UPSTREAM = {flag.removeprefix("--") for flag in upstream_parser()._option_string_actions}


def parse(line: str) -> dict:
    return vars(PARSER.parse_args(flags.translate(line.split())))


def example(fact: dict) -> list[str]:
    """Values that the released 0.10.1 accepted for a flag, none of them its default."""
    if fact["kind"] == "switch":
        return []
    one = {"int": "7", "float": "-0.125", "str": "some/thing"}[fact["kind"]]
    one = fact["choices"][-1] if "choices" in fact else one
    return [one] * {2: 2, "*": 3}.get(fact.get("nargs"), 1)


def test_every_flag_of_0_10_1_has_an_answer():
    answered = {*OLD_FLAGS, *IDLE_FLAGS, *REMOVED_FLAGS, *RULES} | (UNCHANGED & UPSTREAM)
    assert set(RELEASED) - answered == set()


def test_no_flag_has_two_answers():
    tables = [OLD_FLAGS, IDLE_FLAGS, REMOVED_FLAGS, RULES]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_an_old_name_is_never_todays_name():
    assert not UPSTREAM & {*OLD_FLAGS, *IDLE_FLAGS, *REMOVED_FLAGS, *RULES}


@pytest.mark.parametrize("old", OLD_FLAGS)
def test_old_flag_sets_its_successor(old, capsys):
    values = example(RELEASED[old])
    args = vars(PARSER.parse_args(flags.translate([f"--{old}", *values])))
    for new in OLD_FLAGS[old].split():
        direct = vars(PARSER.parse_args([f"--{new}", *values]))
        assert args[new] == direct[new] != DEFAULTS[new]
    changed = {name for name in args if args[name] != DEFAULTS[name]}
    assert changed == set(OLD_FLAGS[old].split())
    assert capsys.readouterr().err.count("\n") == 1


def test_no_two_old_flags_set_the_same_one():
    successors = " ".join(OLD_FLAGS.values()).split()
    assert len(successors) == len(set(successors))


@pytest.mark.parametrize("old", [name for name in OLD_FLAGS if "default" in RELEASED[name]])
def test_the_successor_has_the_default_of_the_old_flag(old):
    expected = RELEASED[old]["default"]
    for new in OLD_FLAGS[old].split():
        default = DEFAULTS[new]
        assert (list(default) if isinstance(default, tuple) else default) == expected


@pytest.mark.parametrize("line", [*IDLE_FLAGS.values(), *REMOVED_FLAGS.values()])
def test_successors_named_in_messages_exist(line):
    assert set(re.findall(r"--([\w.]+)", line)) <= UPSTREAM


@pytest.mark.parametrize("old", [name for name, fact in RELEASED.items() if "nargs" not in fact])
def test_equals_form(old):
    fact = RELEASED[old]
    if fact["kind"] == "switch" or old not in OLD_FLAGS:
        return
    (value,) = example(fact)
    expected = [f"--{new}={value}" for new in OLD_FLAGS[old].split()]
    assert flags.translate([f"--{old}={value}"]) == expected


def test_a_value_with_an_equals_sign_stays_whole():
    assert flags.translate(["--wandb_run_name=a=b"]) == ["--logger.wandb.run_name=a=b"]


def test_todays_flags_pass_unchanged_and_without_a_notice(capsys):
    line = "--actor.max_norm -1 --reward.clip_range -2 .5 --train.seed=3 --use_ms -h --ckpt.path="
    assert flags.translate(line.split()) == line.split()
    assert capsys.readouterr().err == ""


def test_one_flag_that_became_two():
    args = parse("--max_norm 0.5 --ref_reward_offload --adam_betas 0.8 0.99")
    assert args["actor.max_norm"] == args["critic.max_norm"] == 0.5
    assert args["ref.offload"] and args["reward.offload"]
    assert args["actor.adam.betas"] == args["critic.adam.betas"] == [0.8, 0.99]


@pytest.mark.parametrize("switch", CORRECTION_SWITCHES)
@pytest.mark.parametrize("kind", CORRECTION_TYPES)
@pytest.mark.parametrize(
    "scheme, level, mode",
    [("tis", "token", "clip"), ("icepop", "token", "mask"), ("seq-mask-tis", "seq", "mask")],
)
def test_correction_scheme_became_level_and_mode(switch, kind, scheme, level, mode):
    args = parse(f"--{kind} {scheme} --{switch}")
    assert args["algo.advantage.is_correction_level"] == level
    assert args["algo.advantage.is_correction_mode"] == mode


def test_correction_without_a_scheme_is_tis_and_without_the_switch_is_off():
    assert parse("--enable_vllm_is_correction")["algo.advantage.is_correction_mode"] == "clip"
    off = parse("--vllm_is_correction_type icepop")
    assert off["algo.advantage.is_correction_level"] == "off"


def test_correction_with_an_unknown_scheme():
    with pytest.raises(BadInput, match="tis, icepop, seq-mask-tis, got 'tiss'"):
        parse("--enable_vllm_is_correction --vllm_is_correction_type tiss")


def test_idle_flag_is_left_out_with_a_notice(capsys):
    assert flags.translate(["--bf16", "--flash_attn", "--train.seed", "1"]) == ["--train.seed", "1"]
    assert "--bf16 left out" in capsys.readouterr().err


def test_an_idle_switch_does_not_swallow_what_follows():
    assert flags.translate(["--perf", "-h"]) == ["-h"]


def test_all_removed_flags_are_named_at_once():
    with pytest.raises(BadInput) as caught:
        flags.translate(["--prompt_max_len", "8", "--pretrain", "m", "--generate_max_len", "9"])
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines] == ["--prompt_max_len", "--generate_max_len"]


@pytest.mark.parametrize(
    "line",
    [
        "--pretrain a --actor.model_name_or_path b",
        "--actor.model_name_or_path=b --pretrain a",
        "--max_norm 1 --critic.max_norm 2",
        "--reward_clip_range -1 1 --reward.clip_range -1 2",
        "--enable_vllm_is_correction --algo.advantage.is_correction_mode mask",
    ],
)
def test_old_and_new_spelling_that_disagree(line):
    with pytest.raises(BadInput, match="the same flag with different values"):
        flags.translate(line.split())


def test_old_and_new_spelling_that_agree():
    assert parse("--pretrain a --actor.model_name_or_path=a")["actor.model_name_or_path"] == "a"


@pytest.mark.parametrize(
    "line, said",
    [
        ("--n_sample_per_prompt 3", "did you mean --rollout.n_samples_per_prompt"),
        ("--train.sed=3", "did you mean --train.seed"),
        ("--zzzzzz", "unknown flag --zzzzzz\n"),
        ("stray", "unexpected value 'stray'"),
        ("--train.seed 3 4", "unexpected value '4'"),
        ("--train.seed=3 4", "unexpected value '4'"),
        ("--train.seed x", "invalid int value: 'x'"),
        ("--pretrai m", "unknown flag --pretrai,"),  # no abbreviations
        ("--actor.model m", "unknown flag --actor.model,"),
    ],
)
def test_what_is_not_understood_is_one_line_and_status_2(line, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(line)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in error and error.count("\n") == 1


def test_unknown_estimator_lists_them_all(capsys):
    with pytest.raises(SystemExit):
        parse("--advantage_estimator jss")
    error = capsys.readouterr().err
    known = upstream_parser()._option_string_actions["--algo.advantage.estimator"].choices
    assert {*known, *flags.ESTIMATORS} <= {*re.findall(r"\w+", error)}


@pytest.mark.parametrize("name", flags.ESTIMATORS)
def test_our_estimators_exist_and_can_be_chosen(name):
    assert name in estimators.ESTIMATORS
    assert parse(f"--advantage_estimator {name}")["algo.advantage.estimator"] == name


def test_our_flags_have_defaults():
    args = parse("")
    ours = {name.removeprefix("js."): args[name] for name in args if name.startswith("js.")}
    assert ours["shrinkage"] is None
    assert (ours["on_bad_reward"], ours["device"]) == ("stop", "auto")


def test_help_starts_with_an_example_and_ends_with_our_group():
    text = PARSER.format_help()
    first, last = text.split("options:")[0], text.split("\nopenrlhf_js:\n")[1]
    assert "openrlhf-js train --algo.advantage.estimator js" in first and "0.10.1" in first
    assert set(re.findall(r"^  --([\w.]+)", last, re.M)) == {
        name for name in parse("") if name.startswith("js.")
    }
    estimator = text.split("--algo.advantage.estimator")[-1]
    assert all(f"{name}:" in estimator for name in flags.ESTIMATORS)


def test_the_example_of_the_help_is_understood(capsys):
    command = flags.DESCRIPTION.split("openrlhf-js train", 1)[1].split("\n\n")[0]
    assert parse(command.replace("\\\n", " "))["algo.advantage.estimator"] == "js"
    assert capsys.readouterr().err == ""
