"""The command line of a reward model's training: upstream's flags and ours beside them."""

from __future__ import annotations

import argparse

from openrlhf_js.plugin.flags import add_run_flags
from openrlhf_js.plugin.old_flags import REWARD_MODEL
from openrlhf_js.plugin.parser import upstream_parser
from openrlhf_js.reward_model.findings import ALLOWABLE, KINDS

PROGRAM = "train_rm"  # of `openrlhf.cli`

DESCRIPTION = """\
Trains a reward model on preferences with OpenRLHF, after a look at every pair:

  openrlhf-js rm train --model.model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \\
      --data.dataset preferences.jsonl --data.apply_chat_template --data.max_len 2048 \\
      --train.batch_size 64 --ckpt.output_dir reward_model

On several GPUs, through DeepSpeed's launcher, with the same flags:

  deepspeed --module openrlhf_js.cli.train_rm --model.model_name_or_path ...

Each line of a preference file has a chosen and a rejected side: two conversations that differ in
their last message, or two texts, whose prompt may stand under a key of its own (--data.prompt_key).
The flat names of OpenRLHF up to 0.10.1 (--pretrain, --dataset, ...) work too. The flags that this
program adds to OpenRLHF's stand at the end, under "openrlhf_js".
"""


def reward_parser() -> argparse.ArgumentParser:
    """Upstream's parser with our flags in a group of their own.

    Raises:
        UpstreamMismatch: the installed OpenRLHF is none that we know.
    """
    parser = upstream_parser(PROGRAM, REWARD_MODEL)
    parser.prog = "openrlhf-js rm train"
    parser.usage = "%(prog)s [flags]"
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kinds = "; ".join(
        f"{name}: {KINDS[name].text}"
        + (f" (up to {KINDS[name].share:.0%} pass anyway)" if KINDS[name].share else "")
        for name in ALLOWABLE
    ).replace("%", "%%")
    group = parser.add_argument_group("openrlhf_js")
    group.add_argument(
        "--js.allow",
        nargs="+",
        choices=ALLOWABLE,
        default=[],
        metavar="KIND",
        help=f"train although there are problems of these kinds: {kinds}",
    )
    add_run_flags(group, where="to train", cpu="DeepSpeed")
    return parser
