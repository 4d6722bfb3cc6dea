"""Train a policy with OpenRLHF and a shrinkage baseline.

Takes every flag of OpenRLHF's program of the same name, and the estimators js, js_plus, js1,
bloo, js_fixed and remax.
"""

from __future__ import annotations

import sys
import traceback

from openrlhf_js.cli.saying import complain
from openrlhf_js.plugin import flags, preflight
from openrlhf_js.plugin.errors import BadInput, BadReward, UpstreamMismatch
from openrlhf_js.plugin.parser import upstream_parser, validate_upstream
from openrlhf_js.plugin.resolved import flag_values
from openrlhf_js.plugin.run_record import recorded


def main(argv: list[str] | None = None) -> int:
    """Runs a training from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad input, 130 interrupted.
    """
    try:
        parser = upstream_parser()
        flags.add_flags(parser)
        args = parser.parse_args(flags.translate(sys.argv[1:] if argv is None else argv))
        preflight.check(args)

        from openrlhf_js.plugin import run

        device = run.prepare_device(vars(args)["js.device"])
        checked = validate_upstream(args)
        if vars(args)["js.dry_run"]:
            print("\n".join(flag_values(args, parser)))
            return 0
        with recorded(args, parser):
            run.train(checked, device)
    except BadInput as error:
        return complain(error, 2)
    except UpstreamMismatch as error:
        return complain(error, 1)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except Exception as error:
        if bad := _bad_reward(error):
            return complain(bad, 1)
        traceback.print_exc()
        return 1
    return 0


def _bad_reward(error: BaseException | None) -> BadReward | None:
    """The BadReward at the root of what Ray handed from actor to actor, if there is one."""
    while error is not None and not isinstance(error, BadReward):
        error = getattr(error, "cause", None) or error.__cause__
    return error


if __name__ == "__main__":
    sys.exit(main())
