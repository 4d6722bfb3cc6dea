"""Checks before a training run: flags and local files, all problems at once, no model loaded.

They find mistakes that upstream would report late, unclearly, or not at all, silently training
something else. Names on a hub and upstream's own validation are left to upstream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from openrlhf_js.trainers.openrlhf.checks.batch_sizes import batch_size_problems
from openrlhf_js.trainers.openrlhf.checks.estimator import (
    correction_problems,
    estimator_problems,
    gradient_problems,
)
from openrlhf_js.trainers.openrlhf.checks.lengths import (
    Lengths,
    check_lengths,
    load_tokenizer,
    prompt_of,
    prompts_left,
)
from openrlhf_js.trainers.openrlhf.checks.models import (
    MODELS,
    code_problems,
    lora_problems,
    model_problems,
)
from openrlhf_js.trainers.openrlhf.checks.prompts import DataSet, check_prompts
from openrlhf_js.trainers.openrlhf.checks.rewards import (
    grader_loading,
    is_our_task,
    label_problems,
    reward_problems,
)
from openrlhf_js.trainers.openrlhf.checks.start import earlier_run_problems, start_problems
from openrlhf_js.trainers.openrlhf.data_files import DATASOURCE
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.flags.parser import validate_upstream
from openrlhf_js.trainers.openrlhf.graders import Trial
from openrlhf_js.trainers.openrlhf.upstream import BadInput

NO_ESTIMATOR = (
    "--algo.advantage.estimator is missing: it says how advantages are computed. Take js_grad; "
    "--help lists the others (OpenRLHF by itself would take gae, which trains a critic)"
)

TWO_TEMPLATES = (
    "--data.input_template does nothing with --data.apply_chat_template: leave one of them out"
)


class Checked(NamedTuple):
    """What the checks have found out."""

    prompts: int | None
    """Prompts per episode; None if not yet known."""
    task: str
    """The task that the reward file or the agent says it grades; "" if it names none."""
    lengths: Mapping[str, list[Lengths | None]] = {}
    """The lengths of the prompts, as `check_lengths` returns them."""
    nested: Any = None
    """The arguments as upstream's `train` takes them."""


def check(args: argparse.Namespace, download: bool = False) -> Checked:
    """Raises BadInput with every problem of the flat arguments and their files, one per line.

    If the flags conflict, the prompts are not measured, which would take seconds.

    Args:
        args: the flags, as the parser returns them.
        download: whether tokenizers and columns may be fetched from a hub, as when a run starts.
    """
    flat: Flat = vars(args)
    nested: Any = None
    tokenizer = None
    lengths: Mapping[str, list[Lengths | None]] = {}
    with grader_loading(flat) as finish_grader:
        data_problems, data_sets, prompts = check_prompts(flat, download)
        of_flags = [*flag_problems(flat), *batch_size_problems(flat, prompts)]
        # an AttributeError or TypeError: a flag is missing, which is reported below
        with collecting(of_flags), suppress(AttributeError, TypeError):
            nested = validate_upstream(args)
        of_models = list(model_problems(flat))
        problems = [*of_flags, *of_models, *start_problems(flat)]
        problems += earlier_run_problems(flat)
        problems += data_problems
        if not of_flags and not of_models:
            with collecting(problems):
                of_code = code_problems(flat, MODELS, on_hub=True) if download else []
                if of_code:
                    raise BadInput("\n".join(of_code))
                tokenizer = load_tokenizer(flat, download)
            with collecting(problems):
                lengths = check_lengths(data_sets, flat, tokenizer)
                if prompts is None:
                    prompts = prompts_left(flat, lengths)
        grader = finish_grader(_trial(data_sets, flat, tokenizer))
    of_labels: list[str] = []
    if grader and is_our_task(grader.task):
        of_labels += label_problems(data_sets, flat, grader.task)
    problems += of_labels or reward_problems(flat, grader)
    if problems:
        raise BadInput("\n".join(dict.fromkeys(problems)))
    if nested is None:
        nested = validate_upstream(args)  # raises what was suppressed
    task = grader.task if grader else ""
    nested.js.task = task  # for the trainer, which sees the labels of data sets on a hub
    return Checked(prompts=prompts, task=task, lengths=lengths, nested=nested)


@contextmanager
def collecting(problems: list[str]) -> Iterator[None]:
    """Adds the problems of a BadInput to `problems`."""
    try:
        yield
    except BadInput as error:
        problems += str(error).splitlines()


def flag_problems(flat: Flat) -> Iterator[str]:
    """The problems of the flags themselves, whatever is in the files that they name."""
    if flat["algo.advantage.estimator"] is None:
        yield NO_ESTIMATOR
    else:
        yield from estimator_problems(flat)
    yield from gradient_problems(flat)
    yield from correction_problems(flat)
    yield from lora_problems(flat)
    if flat["ds.param_dtype"] != "bf16":
        yield (
            f"--ds.param_dtype {flat['ds.param_dtype']}: OpenRLHF's vLLM engines hold bfloat16 and "
            "take no other weights: leave it out"
        )
    if flat["data.input_template"] and flat["data.apply_chat_template"]:
        yield TWO_TEMPLATES
    max_len = flat["data.max_len"]
    max_new_tokens = flat["rollout.max_new_tokens"]
    if max_new_tokens is not None and max_new_tokens >= max_len:
        yield (
            f"--rollout.max_new_tokens {max_new_tokens} leaves no room in --data.max_len {max_len} "
            "for a prompt"
        )
    buffer = flat["reward.overlong_buffer_len"]
    if buffer is not None and buffer > (max_new_tokens or max_len):
        yield (
            f"--reward.overlong_buffer_len {buffer:g} is more than a response may have, "
            f"{max_new_tokens or max_len} tokens (--rollout.max_new_tokens, --data.max_len)"
        )


def _trial(data_sets: Sequence[DataSet], flat: Flat, tokenizer: Any) -> Trial | None:
    """A call of the reward function for the first row of the data, as a run would make it.

    Without the chat template or a row it shows less. An agent is not called.
    """
    if flat["train.agent_func_path"]:
        return None
    trained = [each.rows for each in data_sets if each.flag == "data.prompt_dataset"]
    row = next((rows[0] for rows in trained if rows is not None), None)
    prompt = None
    if row is not None:
        with suppress(Exception):  # of a chat template; `check_lengths` reports it
            prompt = prompt_of(row, flat, tokenizer)
    label = row[flat["data.label_key"]] if row and flat["data.label_key"] else ""
    datasource = row.get(DATASOURCE) if row else ""
    is_as_in_a_run = tokenizer is not None or not flat["data.apply_chat_template"]
    return Trial(
        prompt=prompt or "",
        response=str(label),
        label=label,
        datasource=datasource if isinstance(datasource, str) else "",
        may_fail=not (prompt and is_as_in_a_run) or flat["js.on_bad_reward"] == "mask",
    )
