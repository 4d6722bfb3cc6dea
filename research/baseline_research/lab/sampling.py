"""The samples that a lab program asks for: loads the stored ones and samples the missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from answer_graders.programs.model_folders import model_fingerprint, model_folder
from baseline_research.lab.grading import TASKS_GRADER, file_grader
from baseline_research.lab.pool import Samples, fill, open_samples
from baseline_research.lab.settings import PROMPTS, RESPONSES, LabSettings
from paired_eval.sampling.models import model_files
from paired_eval.sampling.prompts import (
    Form,
    Prompt,
    Row,
    asked,
    check_lengths,
    drawn,
    read_prompt_rows,
)


def sampled(settings: LabSettings) -> Samples:
    """The samples below --out, after sampling the missing ones if a model is given."""
    prompts = settings.prompts_count
    responses = settings.responses
    if settings.model:
        responses = responses or RESPONSES
        prompts = _sample(settings, responses)
    pool = open_samples(settings.out, prompts)
    present_prompts, present_responses = pool.rewards.shape
    prompts = prompts or present_prompts
    responses = responses or present_responses
    if prompts > present_prompts or responses > present_responses:
        raise ValueError(
            f"{settings.out} has {present_prompts} prompts with {present_responses} responses "
            f"each, not {prompts} with {responses}: add the flags that sampled them, to sample more"
        )
    return pool.at(range(prompts), responses)


def _sample(settings: LabSettings, responses: int) -> int:
    """Samples what --out lacks, and returns the number of prompts."""
    grader = file_grader(settings.reward) if settings.reward else TASKS_GRADER
    rows = {path.stem: read_prompt_rows(path) for path in settings.prompts}
    form = Form(
        input_key=settings.input_key,
        label_key=settings.label_key or None,
        apply_chat_template=settings.apply_chat_template,
        input_template=settings.input_template,
    )
    trust = settings.trust_remote_code
    files = model_files(model_folder(settings.model[0], trust), trust)
    wanted = _prompts(settings, rows, form, files.tokenizer)
    check_lengths(wanted, settings.max_new_tokens, files.context)
    identity = {
        "model_sha256": model_fingerprint(files.folder),
        "prompts": " ".join(map(str, settings.prompts)),
        **asdict(form),
    }
    fill(settings.out, settings, files, identity, wanted, responses, grader)
    return len(wanted)


def _prompts(
    settings: LabSettings, rows: Mapping[str, Sequence[Row]], form: Form, tokenizer: Any
) -> list[Prompt]:
    """Draws prompts from the rows of each source, one from each in turn."""
    prompts = []
    for source, source_rows in rows.items():
        chosen = drawn(source_rows, settings.prompts_count, PROMPTS, settings.seed)
        source_prompts = asked(chosen, form, tokenizer)
        if len(rows) > 1:
            source_prompts = [prompt._replace(group=source) for prompt in source_prompts]
        prompts.append(source_prompts)
    turns = zip_longest(*prompts)  # a smaller count is always a prefix of a larger one
    return [prompt for turn in turns for prompt in turn if prompt is not None]
