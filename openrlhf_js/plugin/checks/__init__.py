"""Checks before a training run: flags and local files, all problems at once, no model loaded.

Checked are mistakes that upstream would answer late, unclearly, or by silently training something
else. Names on a hub, and what upstream's own validation says, are left to upstream.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from openrlhf_js.plugin.checks.batch_sizes import batch_size_problems
from openrlhf_js.plugin.checks.estimator import estimator_problems, gradient_problems
from openrlhf_js.plugin.checks.models import model_problems
from openrlhf_js.plugin.checks.prompts import check_prompts
from openrlhf_js.plugin.checks.rewards import (
    grader_of,
    is_our_task,
    label_problems,
    reward_problems,
)
from openrlhf_js.plugin.checks.start import earlier_run_problems, start_problems
from openrlhf_js.plugin.flags import Flat
from openrlhf_js.plugin.upstream import BadInput

NO_ESTIMATOR = (
    "--algo.advantage.estimator is missing: what judges a response. Take js_grad, or --help shows "
    "the others (OpenRLHF by itself would take gae, which trains a critic)"
)


class Checked(NamedTuple):
    """What the checks have found out."""

    prompts: int | None
    """Of an episode; None where they are not known yet."""
    task: str
    """What the reward file or the agent says that it grades; "" for nothing."""


def check(args: argparse.Namespace) -> Checked:
    """Raises BadInput with every problem of the flat arguments and their files, one per line."""
    flat: Flat = vars(args)
    if flat["algo.advantage.estimator"] is None:
        raise BadInput(NO_ESTIMATOR)
    grader = grader_of(
        agent=flat["train.agent_func_path"],
        addresses=(flat["reward.remote_url"] or "").split(","),
        device=flat["js.device"],
        limit_seconds=flat["js.reward_timeout_seconds"],
    )
    problems = list(estimator_problems(flat))
    problems += model_problems(flat)
    problems += reward_problems(flat, grader)
    problems += start_problems(flat)
    problems += earlier_run_problems(flat)
    prompt_problems, prompts = check_prompts(flat)
    problems += prompt_problems
    problems += batch_size_problems(flat, prompts)
    if grader and not prompt_problems and is_our_task(grader.task):
        problems += label_problems(flat, grader.task)
    problems += gradient_problems(flat)
    if problems:
        raise BadInput("\n".join(problems))
    return Checked(prompts=prompts, task=grader.task if grader else "")
