"""Make a small preference set whose truth is known, with prompts and a policy to go with it.

A response has a true score, and of two the better one is chosen as often as Bradley and Terry say.
So it is known how many labels a perfect reward model foresees, and how good responses truly become
when a policy is trained with the reward model. Everything is small enough for two CPU cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.progress import Bar

PROGRAM = "python -m openrlhf_js.cli.tiny_preferences"
EPILOG = """\
what it writes into the folder:
  train.jsonl, held_out.jsonl              pairs: prompt, chosen, rejected, and their true scores
  prompts.jsonl, prompts_held_out.jsonl    prompts for the policy
  policy/                                  a model that echoes its prompt, but often slips

then, for example:
  openrlhf-js rm train --model.model_name_or_path DIR/policy --data.dataset DIR/train.jsonl \\
      --data.prompt_key prompt --data.max_len 16 --train.batch_size 64 \\
      --train.micro_batch_size 64 --adam.lr 1e-3 --ds.zero_stage 0 \\
      --ds.attn_implementation sdpa --ckpt.output_dir DIR/rm
  openrlhf-js rm eval DIR/held_out.jsonl --model DIR/rm --prompt-key prompt
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line, and returns its exit status; wrong flags exit 2."""
    parser = Parser(prog=PROGRAM, description=__doc__, epilog=EPILOG)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default %(default)s)")
    parser.add_argument(
        "--pairs", type=int, default=64_000, metavar="N", help="to train on (default %(default)s)"
    )
    parser.add_argument(
        "--held-out", type=int, default=4_000, metavar="N", help="pairs (default %(default)s)"
    )
    args = parser.parse_args(argv)
    for name in ("pairs", "held_out"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}; give 1 or more")

    from openrlhf_js.tiny.preference_run import prepare  # needs torch
    from openrlhf_js.tiny.preferences import TASK, accuracy_of_truth
    from openrlhf_js.tiny.quickstart import prepare_libraries

    prepare_libraries()
    errors = Console(stderr=True)
    try:
        with Bar("imitating", TASK.warm_start_steps, errors) as bar:
            prepare(
                args.out,
                seed=args.seed,
                train=args.pairs,
                held_out=args.held_out,
                on_step=lambda step, loss: bar.update(step, step),
            )
    except OSError as error:
        message = f"{PROGRAM}: {error.filename or args.out}: {error.strerror or error}"
        errors.print(Text(message), soft_wrap=True)
        return 2
    share = accuracy_of_truth(args.out / "held_out.jsonl")
    said = f"{args.out}: the true scores foresee {share:.1%} of the held-out labels"
    Console().print(Text(said), soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
