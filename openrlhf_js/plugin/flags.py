"""The command line of a training run: upstream's flags, ours beside them, older spellings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from openrlhf_js.plugin.errors import BadInput, UpstreamMismatch
from openrlhf_js.plugin.old_flags import (
    CORRECTION_SCHEMES,
    CORRECTION_SWITCHES,
    CORRECTION_TYPES,
    POLICY,
    Spellings,
)
from openrlhf_js.plugin.upstream import WORKS_WITH

# Ours, beside upstream's own. What each is, in the words of --help.
ESTIMATORS: dict[str, str] = {
    "js": "the shrinkage baseline: the mean of the prompt's other responses, drawn towards the "
    "mean of the other prompts as far as their noise calls for",
    "js_plus": "js with estimates corrected for noise, and guarded where a batch has few prompts",
    "js1": "the naive form of js, whose baseline sees the response it is subtracted from (biased)",
    "js_fixed": "js with the shrinkage that --js.shrinkage gives",
    "bloo": "the mean reward of all other prompts (js with shrinkage 1)",
    "remax": "the reward of one extra greedy response per prompt",
}

DESCRIPTION = """\
Trains a language model by reinforcement learning with OpenRLHF, and the shrinkage baseline:

  openrlhf-js train --algo.advantage.estimator js \\
      --actor.model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \\
      --data.prompt_dataset prompts.jsonl --data.input_key prompt --data.label_key answer \\
      --reward.remote_url reward.py --rollout.n_samples_per_prompt 4 \\
      --vllm.num_engines 1 --actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 \\
      --train.colocate_all

The flat names of OpenRLHF up to 0.10.1 (--pretrain, --advantage_estimator, ...) work too. The flags
that this program adds to OpenRLHF's stand at the end, under "openrlhf_js".
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds our estimators to upstream's choices, and our flags in a group of their own.

    Args:
        parser: upstream's; changed in place.

    Raises:
        UpstreamMismatch: the parser has no --algo.advantage.estimator.
    """
    estimator = parser._option_string_actions.get("--algo.advantage.estimator")
    if estimator is None or estimator.choices is None:
        raise UpstreamMismatch(
            "upstream's parser has no choices for --algo.advantage.estimator; "
            f"openrlhf_js works with {WORKS_WITH}"
        )
    ours = {name: text for name, text in ESTIMATORS.items() if name not in estimator.choices}
    estimator.choices = [*estimator.choices, *ours]
    described = "; ".join(f"{name}: {text}" for name, text in ours.items())
    estimator.help = f"{estimator.help}. Added by openrlhf_js: {described}"

    parser.prog = "openrlhf-js train"
    parser.usage = "%(prog)s [flags]"
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    group = parser.add_argument_group("openrlhf_js")
    group.add_argument(
        "--js.shrinkage",
        type=float,
        metavar="FLOAT",
        help="the shrinkage of js_fixed, from 0 (each prompt's own mean, as rloo) to 1 (the mean "
        "of all other prompts, as bloo); the other estimators find theirs in every batch",
    )
    group.add_argument(
        "--js.half_life",
        type=float,
        metavar="STEPS",
        help="js_plus finds its shrinkage in earlier steps, too, where one counts half after so "
        "many; 50 serves most runs, 20 those whose data changes often. It helps where a rollout "
        "has few prompts; saved with checkpoints (default: today's batch alone)",
    )
    group.add_argument(
        "--js.on_bad_reward",
        choices=["stop", "mask"],
        default="stop",
        help="what a missing, infinite or NaN reward does: stop ends the run with the prompt and "
        "the grader's error; mask leaves that response out of every mean, lets it teach nothing, "
        "and counts it; an evaluation that meets one logs NaN (default: %(default)s)",
    )
    group.add_argument(
        "--js.reward_timeout_seconds",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long a response waits for its reward where --reward.remote_url names servers; "
        "meanwhile they are asked again and again, each request for a fifth of that at most. Then "
        "--js.on_bad_reward says what happens (default: %(default)s)",
    )
    group.add_argument(
        "--js.reward_weights",
        metavar="NAME=NUMBER,...",
        help="the reward is the sum of several models' rewards with these weights, where "
        "--reward.remote_url gives names to its addresses: NAME=http://...,NAME=http://...; "
        "addresses with the same name, or all without any, are servers of one model",
    )
    group.add_argument(
        "--js.save_batches",
        metavar="DIR",
        help="write each rollout batch's tokens and rewards and the advantages that go to training "
        "into DIR, one .npz a step",
    )
    group.add_argument(
        "--js.gradient_variance",
        type=int,
        nargs="?",
        const=1,
        default=0,
        metavar="N",
        help="log the variance of the policy gradient, its squared norm, signal-to-noise ratio and "
        "noise scale, every N optimizer steps (every one if no N is given; 0 is off, the default)",
    )
    group.add_argument(
        "--js.group_micro_batches",
        action="store_true",
        help="keep all responses to a prompt in one micro-batch of the training, so that "
        "micro-batches are independent; --train.micro_batch_size must be a multiple of "
        "--rollout.n_samples_per_prompt",
    )
    add_run_flags(group, where="the stack runs", cpu="Ray, DeepSpeed and vLLM")


def add_run_flags(group: argparse._ArgumentGroup, where: str, cpu: str) -> None:
    """The flags that every program has: whether to run, and on what."""
    group.add_argument(
        "--js.dry_run",
        action="store_true",
        help="print what every flag is, check all that is checked before a training, and end",
    )
    group.add_argument(
        "--js.device",
        choices=["auto", "cpu", "gpu"],
        default="auto",
        help=f"where {where}: auto takes the GPU when there is one; cpu runs {cpu} without any "
        "GPU, for small models (default: %(default)s)",
    )


class _Option(NamedTuple):
    """One flag of a command line with the values that follow it."""

    flag: str  # without the dashes; "" for what stands before the first flag
    values: tuple[str, ...]
    joined: bool  # written as --flag=value

    def tokens(self) -> list[str]:
        if self.joined:
            return [f"--{self.flag}={self.values[0]}"]
        return [f"--{self.flag}", *self.values] if self.flag else list(self.values)


def _options(argv: Sequence[str]) -> list[_Option]:
    options = [_Option("", (), False)]
    for token in argv:
        if token.startswith("--") and len(token) > 2:
            name, equals, value = token[2:].partition("=")
            options.append(_Option(name, (value,) if equals else (), bool(equals)))
        else:  # a value, a negative number among them
            last = options[-1]
            if last.joined:  # not a value of that flag; the parser will complain about it
                options.append(_Option("", (token,), False))
            else:
                options[-1] = last._replace(values=(*last.values, token))
    return options


def translate(argv: Sequence[str], spellings: Spellings = POLICY) -> list[str]:
    """The command line with every older spelling replaced by today's; one notice on stderr.

    Args:
        argv: as a user or an older script writes it, without the program's name.
        spellings: the older ones of the program.

    Returns:
        What upstream's parser understands. Flags that are not older spellings pass unchanged.

    Raises:
        BadInput: a removed flag, or an old and a new spelling that say different things.
    """
    options = _options(argv)
    given = {option.flag: option for option in options}
    scheme, problems = _correction_scheme(given)
    kept: list[_Option] = []
    notices: list[str] = []
    for option in options:
        flag = option.flag
        if flag in spellings.removed:
            problems.append(f"--{flag} {spellings.removed[flag]}")
            continue
        if flag in spellings.idle:
            notices.append(f"--{flag} left out ({spellings.idle[flag]})")
            replaced = [option._replace(flag="")] if option.values else []
        elif flag in CORRECTION_SWITCHES:
            replaced = scheme
        elif flag in CORRECTION_TYPES:
            replaced = []
            if not scheme:
                notices.append(f"--{flag} left out (the correction is not switched on)")
        elif flag in spellings.renamed:
            replaced = [option._replace(flag=new) for new in spellings.renamed[flag].split()]
        else:
            kept.append(option)
            continue
        for new in replaced:
            same = given.get(new.flag)
            if new.flag and same is not None and same.values != new.values:
                problems.append(
                    f"--{flag} and --{new.flag} are the same flag with different values: "
                    f"{' '.join(new.values)} and {' '.join(same.values)}; keep one"
                )
        if any(new.flag for new in replaced):
            notices.append(f"--{flag} -> {' '.join(f'--{new.flag}' for new in replaced)}")
        kept.extend(replaced)
    if problems:
        raise BadInput("\n".join(problems))
    if notices:
        print(f"openrlhf_js: older flags: {', '.join(notices)}", file=sys.stderr)
    return [token for option in kept for token in option.tokens()]


def _correction_scheme(given: dict[str, _Option]) -> tuple[list[_Option], list[str]]:
    """The level and mode that stand for the older switch and scheme, and what is wrong in them."""
    if not any(switch in given for switch in CORRECTION_SWITCHES):
        return [], []
    named = [given[flag] for flag in CORRECTION_TYPES if flag in given]
    name = " ".join(named[-1].values) if named else "tis"
    if name not in CORRECTION_SCHEMES:
        allowed = ", ".join(CORRECTION_SCHEMES)
        return [], [f"--{named[-1].flag} takes one of {allowed}, got {name!r}"]
    level, mode = CORRECTION_SCHEMES[name]
    return [
        _Option("algo.advantage.is_correction_level", (level,), False),
        _Option("algo.advantage.is_correction_mode", (mode,), False),
    ], []
