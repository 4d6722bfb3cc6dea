"""The arguments of a run, as its own parser makes them: for benchmarks that run parts of it."""

from __future__ import annotations

import argparse


def run_arguments(flags: str) -> argparse.Namespace:
    """Upstream's nested arguments, with ours, at their defaults but for these flags."""
    from openrlhf.utils.config import hierarchize

    from openrlhf_js.plugin.flags import add_flags
    from openrlhf_js.plugin.flags.parser import upstream_parser

    parser = upstream_parser()
    add_flags(parser)
    return hierarchize(parser.parse_args(flags.split()))
