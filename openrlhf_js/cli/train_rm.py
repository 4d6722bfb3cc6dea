"""Train a reward model on preferences with OpenRLHF.

Takes every flag of OpenRLHF's program of the same name, and checks every pair before a model is
loaded.
"""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Any

from rich.console import Console

from openrlhf_js.cli import preference_report
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import complain, say
from openrlhf_js.plugin import flags, preference_data, reward_preflight, reward_training, run
from openrlhf_js.plugin.errors import BadInput, UpstreamMismatch
from openrlhf_js.plugin.old_flags import REWARD_MODEL
from openrlhf_js.plugin.parser import validate_upstream
from openrlhf_js.plugin.resolved import flag_values
from openrlhf_js.plugin.reward_flags import PROGRAM, reward_parser


def main(argv: list[str] | None = None) -> int:
    """Runs a training from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad input, 130 interrupted.
    """
    flat: dict[str, Any] = {}
    try:
        parser = reward_parser()
        given = flags.translate(sys.argv[1:] if argv is None else argv, REWARD_MODEL)
        args = parser.parse_args(given)
        flat = vars(args)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        if reward_training.is_first():
            reward_preflight.check(flat)
        device = run.prepare_device(flat["js.device"])
        if reward_training.is_first():
            try:
                _check_data(flat)
            except preference_data.NotReachable as error:
                if not flat["js.dry_run"]:
                    raise
                complain(f"{error}; so the pairs were not checked", 0)
        checked = validate_upstream(args, PROGRAM)
        if flat["js.dry_run"]:
            if reward_training.is_first():
                print("\n".join(flag_values(args, parser)))
            return 0
        reward_training.train(checked, device)
        return 0
    except BadInput as error:
        return complain(error, 2)
    except UpstreamMismatch as error:
        return complain(error, 1)
    except KeyboardInterrupt:
        pass  # said below, once upstream's progress bars are gone with its frames
    except Exception:
        traceback.print_exc()
        return 1
    return complain(f"interrupted{_way_on(flat)}", 130)


def _check_data(flat: dict[str, Any]) -> None:
    """Shows what is in the preference data; BadInput if it is not to be trained on."""
    console, errors = Console(), Console(stderr=True)
    train, evaluation = preference_data.sources(flat)
    making = preference_data.making(flat, reward_training.load_tokenizer(flat))
    sizes = [source.size_bytes for source in train + evaluation]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    done = rows = 0
    with Bar("checking preferences", total, errors) as bar:

        def progress(pairs: int, size_bytes: int) -> None:
            nonlocal done, rows
            done, rows = done + size_bytes, rows + pairs
            bar.update(done, rows)

        try:
            found, held_out = preference_data.check_data(flat, train, evaluation, making, progress)
        except BadInput:
            raise
        except (OSError, ValueError) as error:
            raise BadInput(str(error)) from error
    problems = []
    for flag, report in (("data.dataset", found.report), ("eval.dataset", held_out)):
        if report.tallies:
            preference_report.show(console, report, flat["data.max_len"])
        if kinds := report.stopping(flat["js.allow"]):
            problems.append(f"--{flag}: {preference_report.refusal(report, kinds)}")
    problems = problems or reward_preflight.pair_problems(flat, found.pairs)
    if problems:
        raise BadInput("\n".join(problems))
    for notice in reward_preflight.notices(flat, found.pairs):
        say(console, f"openrlhf_js: {notice}")


def _way_on(flat: dict[str, Any]) -> str:
    """How to go on after an interruption."""
    tag = reward_preflight.last_checkpoint(flat) if flat else None
    if tag is None:
        return "; nothing was saved (--ckpt.save_steps saves as it goes)" if flat else ""
    return f"; --ckpt.load_enable goes on from {tag} in {flat['ckpt.path']}"


if __name__ == "__main__":
    sys.exit(main())
