"""The flags that we add to upstream's, and the ranges of upstream's own."""

from __future__ import annotations

import argparse
import math
import operator
from dataclasses import dataclass
from typing import Any

from answer_graders.marks import name_marks
from openrlhf_js.estimators.catalogue import ADDED, OPENRLHF, in_training
from openrlhf_js.estimators.own import parse_own

DESCRIPTION = """\
Trains a language model by reinforcement learning with OpenRLHF and js_grad or another estimator:

  openrlhf-js train run.yaml --js.dry_run      checks all, shows the run on one screen
  openrlhf-js train run.yaml --js.max_steps 9  flags win over the file

run.yaml has flags, nested or with dots:

  algo.advantage.estimator: js_grad
  actor: {model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct, num_gpus_per_node: 1, adam.lr: 5e-6}
  data: {prompt_dataset: prompts.jsonl, input_key: prompt, label_key: answer}
  reward.remote_url: reward.py
  rollout.n_samples_per_prompt: 4
  vllm.num_engines: 1
  ref.num_gpus_per_node: 1
  train.colocate_all: true

A run leaves such a file with all its settings beside its log, openrlhf_js.yaml; that starts it
again, and with --ckpt.load_enable resumes it. The flags that this program adds to OpenRLHF's stand
at the end, under "openrlhf_js".
"""


Flat = dict[str, Any]  # the flags of a run: "rollout.batch_size" -> value

LOSSES = {  # --js.loss -> --actor.loss_agg_mode; the actors change its denominator
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "constant": "token-mean",
}


def means_over_tokens(args: argparse.Namespace) -> bool:
    """Whether the loss divides each response by its own number of tokens."""
    mode = LOSSES[args.js.loss] if args.js.loss else args.actor.loss_agg_mode
    return args.actor.policy_loss_type == "gspo" or mode == "seq-mean-token-mean"


LIMITS = {
    "at least": operator.ge,
    "above": operator.gt,
    "at most": operator.le,
    "below": operator.lt,
}


@dataclass(frozen=True)
class Number:
    """The type of a flag that takes numbers in a range, such as "at least 0 and below 1".

    No flag takes NaN. `special` is one allowed number outside the range, with its own meaning.
    `why` says why the others are refused.
    """

    range: str = ""
    kind: type[int] | type[float] = float
    special: float | None = None
    infinite: bool = False
    why: str = ""

    def __call__(self, text: str) -> float:
        """Parses the number; argparse prints the ArgumentTypeError with the name of the flag."""
        try:
            value = self.kind(text)
        except ValueError:
            value = math.nan
        if value == self.special or self._allows(value):
            return value
        words = ["a whole number" if self.kind is int else "a finite number", self.range]
        if self.infinite:
            words[0] = "a number"
        if self.special is not None:
            words.append(f"or {self.special:g}")
        why = f" ({self.why})" if self.why else ""
        allowed = ", ".join(filter(None, words))
        raise argparse.ArgumentTypeError(f"must be {allowed}, got {text}{why}")

    def _allows(self, value: float) -> bool:
        if math.isnan(value) or (math.isinf(value) and not self.infinite):
            return False
        for limit in self.range.split(" and ") if self.range else ():
            words, _, number = limit.rpartition(" ")
            if not LIMITS[words](value, float(number)):
                return False
        return True


# Upstream's flags that accept values with which a run trains something else, trains nothing, or
# fails late. Every other float flag takes any finite number.
RANGES: dict[Number, str] = {
    Number("at least 1", int): (
        "actor.num_nodes actor.num_gpus_per_node critic.num_nodes critic.num_gpus_per_node "
        "data.max_len data.max_samples ds.ring_attn_size ds.tensor_parallel_size "
        "eval.n_samples_per_prompt logger.logging_steps rollout.batch_size rollout.max_new_tokens "
        "rollout.micro_batch_size rollout.n_samples_per_prompt rollout.vllm_generate_batch_size "
        "train.async_queue_size train.batch_size train.max_epochs train.micro_batch_size "
        "train.num_episodes"
    ),
    Number("at least 0 and at most 3", int): "ds.zero_stage",
    Number("at least 0 and below 4294967296", int): "train.seed",
    Number(
        "at most -1", int, why="OpenRLHF would then train on the rollouts of all N steps at once"
    ): "critic.freezing_steps",
    Number("at least 1", int, special=-1): "ckpt.save_steps eval.steps",
    Number(
        "at least 2", int, why="the oldest is deleted before a new one is written"
    ): "ckpt.max_num",
    Number("above 0", infinite=True): "ckpt.max_mem",
    # below 0.01, vLLM samples at 0.01, and upstream would train at the flag's value
    Number(
        "at least 0.01 and at most 2",
        why="at 0, all responses to a prompt are equal and teach nothing; vLLM refuses above 2",
    ): "rollout.temperature",
    Number("at least 0 and at most 2", why="vLLM refuses above 2"): "eval.temperature",
    Number("above 0 and at most 1"): "rollout.top_p",
    Number("at least 0"): (
        "actor.adam.lr actor.adam.weight_decay actor.eps_clip actor.eps_clip_low_high "
        "actor.muon.lr adam.lr adam.weight_decay algo.kl.init_coef critic.adam.lr "
        "critic.adam.weight_decay critic.muon.lr"
    ),
    Number("above 0"): "actor.adam.eps adam.eps critic.adam.eps reward.overlong_buffer_len",
    Number("above 1"): "actor.dual_clip",
    Number("at most 1"): "reward.stop_properly_penalty_coef",
    Number("at least 0 and below 1"): "actor.adam.betas adam.betas critic.adam.betas",
    Number("at least 0 and at most 1"): (
        "actor.lr_warmup_ratio actor.min_lr_ratio algo.advantage.gamma algo.advantage.lambd "
        "critic.lr_warmup_ratio critic.min_lr_ratio lr_warmup_ratio min_lr_ratio train.ema_beta"
    ),
    Number(
        "at least 0", infinite=True
    ): "actor.max_norm critic.max_norm critic.value_clip max_norm",
    Number(infinite=True): (
        "algo.advantage.is_correction_threshold algo.dynamic_filtering_range reward.clip_range"
    ),
}

# The schedules of transformers that take no more than upstream gives them
SCHEDULES = (
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
)


def narrow(parser: argparse.ArgumentParser) -> None:
    """Restricts upstream's flags to their allowed values."""
    ranges = {name: number for number, names in RANGES.items() for name in names.split()}
    for action in parser._actions:
        if action.type is float:
            action.type = Number()
        action.type = ranges.get(action.dest, action.type)
        if action.dest.endswith("lr_scheduler"):
            action.choices = SCHEDULES


def thinking_mark(name: str) -> str:
    """A value of --js.thinking_mark, which takes effect in this process at once."""
    try:
        name_marks([name])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


FLAGS: dict[str, dict[str, Any]] = {
    "shrinkage": dict(
        type=Number("at least 0 and at most 1"),
        help="shrinkage of js_fixed, from 0 (each prompt's own mean, as rloo) to 1 (the mean "
        "of all other prompts, as bloo); the other estimators compute theirs in every batch",
    ),
    "loss": dict(
        choices=list(LOSSES),
        help="what the sum of all tokens' losses is divided by: token_mean, by the tokens of the "
        "batch; sequence_mean, each response by its own tokens; constant, by the responses x "
        "--rollout.max_new_tokens (--data.max_len without it), which alone leaves the gradient "
        "unbiased (default: as --actor.loss_agg_mode says, which is token_mean)",
    ),
    "max_steps": dict(
        type=Number("at least 0", int),
        default=0,
        metavar="N",
        help="stop after N training steps (rollouts), counted over all starts of a resumed run, or "
        "after --train.num_episodes if that is sooner; without --train.async_enable, N is "
        "evaluated, too (default: 0, no limit)",
    ),
    "on_long_prompt": dict(
        choices=["stop", "drop"],
        default="stop",
        help="what to do about prompts that leave no room in --data.max_len for "
        "--rollout.max_new_tokens, of which OpenRLHF would cut off the beginning: stop refuses "
        "the data set; drop leaves those prompts out of training and evaluation, and prints how "
        "many (default: %(default)s)",
    ),
    "on_bad_reward": dict(
        choices=["stop", "mask"],
        default="stop",
        help="what to do about a missing, infinite or NaN reward: stop ends the run with the "
        "prompt and the grader's error; mask leaves that response out of every mean and gives it "
        "no gradient, and counts it; an evaluation that meets one logs NaN (default: %(default)s)",
    ),
    "max_masked_share": dict(
        type=Number("at least 0 and at most 1"),
        default=0.5,
        help="share of masked responses, from 0 to 1, up to which a run with --js.on_bad_reward "
        "mask goes on; a step with more, or without any other, stops it with the grader's error "
        "(default: %(default)s)",
    ),
    "reward_timeout_seconds": dict(
        type=Number("above 0"),
        default=600.0,
        metavar="SECONDS",
        help="seconds that a response waits for its reward, from a file or from servers; a "
        "request to servers is retried until then, each for a fifth of that at most; then "
        "--js.on_bad_reward applies (default: %(default)s)",
    ),
    "thinking_mark": dict(
        nargs="+",
        type=thinking_mark,
        metavar="NAME",
        help="names of marks that stand around thoughts, which earn no reward, such as musing for "
        "<musing> ... </musing> (default: names that say thinking, as in <think> and "
        "<|START_THINKING|>, and those in the chat template)",
    ),
    "save_batches": dict(
        metavar="DIR",
        help="write each rollout batch's tokens, rewards and advantages into DIR, one .npz a step",
    ),
    "requeued": dict(
        action="store_true",
        help="resume the last checkpoint of this run, or begin again if it has none yet, for "
        "example when a scheduler reruns the command",
    ),
    "changed": dict(
        nargs="+",
        metavar="NAME",
        help="resume although these flags are not those of the checkpoint's run, such as "
        "actor.adam.lr: from here on it trains with the new ones (docs/operate.md)",
    ),
    "gradient_variance": dict(
        type=Number("at least 0", int),
        nargs="?",
        const=1,
        default=0,
        metavar="N",
        help="log the variance of the policy gradient, its squared norm and signal-to-noise ratio "
        "every N optimizer steps (every one if no N is given; 0 is off, the default)",
    ),
    "group_micro_batches": dict(
        action="store_true",
        help="keep all responses to a prompt in one micro-batch of the training, so that "
        "micro-batches are independent; --train.micro_batch_size must be a multiple of "
        "--rollout.n_samples_per_prompt",
    ),
}


def estimator_name(name: str) -> str:
    """The name as a run uses it; a user's own file is not read until the checks."""
    own = parse_own(name)
    if own is not None:
        return own.spec
    try:
        return in_training(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def stop_string(text: str) -> str:
    """A value of --rollout.stop; vLLM would refuse an empty one at the first step."""
    if not text:
        raise argparse.ArgumentTypeError("must be text, got an empty string")
    return text


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds our estimators to the choices of upstream's parser, and our flags in a group."""
    estimator = parser._option_string_actions["--algo.advantage.estimator"]
    parser._option_string_actions["--advantage_estimator"] = estimator
    estimator.choices = None
    estimator.type = estimator_name
    estimator.metavar = "NAME"
    estimator.default = None  # upstream's default would train a critic unasked
    described = "; ".join(f"{name}: {record.summary}" for name, record in ADDED.items())
    estimator.help = (
        f"{estimator.help}. Of OpenRLHF: {', '.join(OPENRLHF)}. Added by openrlhf_js, with what "
        f"each subtracts from a reward: {described}. "
        "Or your own: FILE.py:NAME, a function from a batch to baselines (docs/baselines.md)"
    )
    group = our_group(parser, "openrlhf-js train", DESCRIPTION, "Ray, DeepSpeed and vLLM")
    for name, options in FLAGS.items():
        group.add_argument(f"--js.{name}", **options)
    group.add_argument(
        "--rollout.stop",
        nargs="+",
        type=stop_string,
        metavar="STRING",
        help="end a response after any of these strings, which stay part of it, in training and in "
        "evaluations (default: only at the model's own end, or at --rollout.max_new_tokens)",
    )
    group.add_argument(
        "--js.verbose",
        "--verbose",
        action="store_true",
        help="print all that Ray, vLLM, DeepSpeed and OpenRLHF print, not a bar and a file; "
        "with --js.dry_run, every setting",
    )


def our_group(
    parser: argparse.ArgumentParser, program: str, description: str, on_cpu: str
) -> argparse._ArgumentGroup:
    """Gives upstream's parser our name, and a group with the flags common to training programs."""
    parser.prog, parser.usage = program, "%(prog)s [FILE.yaml] [flags]"
    parser.description = description
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    group = parser.add_argument_group("openrlhf_js")
    group.add_argument(
        "--js.dry_run",
        action="store_true",
        help="run all checks, show what would be trained, and exit; with --verbose, every setting",
    )
    group.add_argument(
        "--js.device",
        choices=["auto", "cpu", "gpu"],
        default="auto",
        help=f"where to train: auto takes the GPU when there is one; cpu runs {on_cpu} without "
        "any GPU, for small models (default: %(default)s)",
    )
    group.add_argument(
        "--js.trust_remote_code",
        action="store_true",
        help="run the Python that a model's folder brings, as OpenRLHF by itself always does; read "
        "it first",
    )
    return group
