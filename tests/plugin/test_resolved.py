"""A dry run shows every flag, says which were set, and keeps secrets."""

from __future__ import annotations

import argparse

from openrlhf_js.plugin.resolved import flag_values


def test_every_flag_has_its_line():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train.seed", type=int, default=42)
    parser.add_argument("--reward.clip_range", type=float, nargs=2, default=(-10, 10))
    parser.add_argument("--actor.adam.betas", type=float, nargs=2, default=(0.9, 0.95))
    parser.add_argument("--logger.wandb.key")
    given = "--reward.clip_range -10 10 --actor.adam.betas 0.9 0.99 --logger.wandb.key secret"
    args = parser.parse_args(given.split())
    assert list(flag_values(args, parser)) == [
        "* --actor.adam.betas 0.9 0.99",
        "* --logger.wandb.key (hidden)",
        "  --reward.clip_range -10.0 10.0",
        "  --train.seed 42",
    ]
