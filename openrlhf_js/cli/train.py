"""Trains a policy with OpenRLHF and a shrinkage baseline.

Takes every flag of OpenRLHF's `train_ppo_ray`, and the estimators js, js_plus, js1, bloo, js_fixed
and remax.
"""

from __future__ import annotations

import sys
import traceback

from openrlhf_js.common.console import say
from openrlhf_js.plugin import checks, flags
from openrlhf_js.plugin.parser import flag_values, upstream_parser, validate_upstream
from openrlhf_js.plugin.upstream import BadInput, BadReward, UpstreamMismatch


def main(argv: list[str] | None = None) -> int:
    """Runs a training; its exit status is 0 done, 1 failed, 2 bad input, 130 interrupted."""
    try:
        parser = upstream_parser()
        flags.add_flags(parser)
        args = parser.parse_args(argv)
        checks.check(args)

        from openrlhf_js.plugin import run

        device = run.prepare_device(vars(args)["js.device"])
        checked = validate_upstream(args)
        if vars(args)["js.dry_run"]:
            print("\n".join(flag_values(args, parser)))
            return 0
        with run.recorded(args, parser):
            run.train(checked, device)
    except BadInput as error:
        return _complain(error, 2)
    except UpstreamMismatch as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:
        if bad := _bad_reward(error):
            return _complain(bad, 1)
        traceback.print_exc()
        return 1
    return 0


def _complain(message: object, status: int) -> int:
    for line in str(message).splitlines():
        say(f"openrlhf_js: {line}", error=True)
    return status


def _bad_reward(error: BaseException | None) -> BadReward | None:
    """The BadReward at the root of what Ray handed from actor to actor, if there is one."""
    while error is not None and not isinstance(error, BadReward):
        error = getattr(error, "cause", None) or error.__cause__
    return error


if __name__ == "__main__":
    sys.exit(main())
