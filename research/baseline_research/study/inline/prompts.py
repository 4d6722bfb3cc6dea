"""A run's initial model, its training prompts, and the prompts that it is evaluated on.

All of them depend only on the task and the seed, not on the estimator.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from answer_graders.programs.files import atomic_write
from baseline_research.study.design import StudySettings
from baseline_research.study.inline.rollout import (
    greedy_reward,
    pass_rates,
    right_probabilities,
    right_responses,
    valid_tokens,
)
from baseline_research.study.runs import Run
from baseline_research.tiny import model
from baseline_research.tiny.policy import TinyPolicy, load
from baseline_research.tiny.record import SOLVED, UNSOLVABLE, Problem, TinySplit
from baseline_research.tiny.tasks import TASKS, sample_items

SCREENED = 1500  # prompts, of which the mix `alike` takes the middle third
SCREENING_SAMPLES = 16
SCREENING_SEED = 0
IMITATION_BATCH = 12  # prompts, for a pretrained model
IMITATION_LEARNING_RATE = 5e-5
KINDS_OF_MIXED = 3  # in turn: as drawn, solved, unsolvable


def warm_start(
    task: str, settings: StudySettings, on_step: Callable[[int], None] = lambda step: None
) -> Path:
    """The folder of the model that all runs of a task start from; makes it if missing."""
    folder = settings.start_of(task)
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    if settings.model is None:
        model.warm_start(
            unfinished,
            TASKS[task],
            _split(task, settings).train,
            seed=settings.start_seed,
            width=settings.width,
            layers=settings.layers,
            on_step=lambda step, loss: on_step(step),
        )
    else:
        _imitate_right_responses(unfinished, settings.model.absolute(), task, settings, on_step)
    unfinished.rename(folder)
    return folder


def _imitate_right_responses(
    folder: Path,
    model_folder: Path,
    task: str,
    settings: StudySettings,
    on_step: Callable[[int], None],
) -> None:
    """Writes a folder with a pretrained model that has imitated right responses for some steps.

    Before that, it answers small questions in sentences, none of which is an exact answer. A few
    steps teach the format and hardly more. Weights and gradients are float32.
    """
    policy = policy_in(model_folder, settings)
    rng = random.Random(settings.start_seed)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=IMITATION_LEARNING_RATE, weight_decay=0, fused=True
    )
    for step in range(1, TASKS[task].warm_start_steps + 1):
        items = sample_items(_split(task, settings).train, IMITATION_BATCH, rng)
        problems = _problems_of(task, items)
        responses = right_responses(policy, TASKS[task], problems)
        valid = valid_tokens(policy, responses)
        prompts = policy.prompts([problem.prompt for problem in problems])
        loss = -(policy.log_probs(prompts, responses) * valid).sum() / valid.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        on_step(step)
    # In float32: otherwise many steps of 1e-5 pass before a weight changes in a bfloat16 pass.
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def policy_in(folder: Path, settings: StudySettings) -> TinyPolicy:
    """The policy in a folder, set up as the study's runs use it."""
    device = settings.device_name
    if settings.model is None:
        return load(folder, device=device)
    return load(folder, chat=True, dtype=getattr(torch, settings.dtype_name), device=device)


def alike(task: str, settings: StudySettings) -> list[str]:
    """The middle third of the training prompts by pass rate under the warm start."""
    path = settings.start_of(task) / "alike.txt"
    if not path.is_file():
        prompts = _screened(task, settings, policy_in(path.parent, settings))
        with atomic_write(path) as file:
            file.write("\n".join(prompts).encode())
    return path.read_text(encoding="utf-8").split("\n")


def _screened(task: str, settings: StudySettings, policy: TinyPolicy) -> list[str]:
    rng = random.Random(SCREENING_SEED)
    items = sample_items(_split(task, settings).train, SCREENED, rng)
    problems = _problems_of(task, items)
    rates = pass_rates(policy, TASKS[task], problems, SCREENING_SAMPLES)
    ranked = sorted(range(SCREENED), key=lambda place: rates[place])
    third = SCREENED // 3
    middle = ranked[third : 2 * third]
    return sorted({problems[place].prompt for place in middle})


def training_problems(run: Run, settings: StudySettings) -> list[Problem]:
    """A run's prompts and labels in training order: passes over them, each in a new order.

    Problem i is of kind i % kinds, and so is position i of every pass: each batch has all kinds.
    """
    rng = random.Random(run.seed)
    problems = _drawn(run, settings, rng)
    if not settings.distinct:  # the whole run is one pass
        return problems
    count = run.prompts * settings.steps
    kinds = KINDS_OF_MIXED if run.mix == "mixed" else 1
    in_order: list[Problem] = []
    while len(in_order) < count:
        one_pass = list(problems)
        for kind in range(kinds):
            of_kind = problems[kind::kinds]
            one_pass[kind::kinds] = rng.sample(of_kind, len(of_kind))
        in_order += one_pass
    return in_order[:count]


def training_batches(run: Run, settings: StudySettings) -> list[list[Problem]]:
    """A run's prompts and labels, step by step."""
    problems = training_problems(run, settings)
    starts = range(0, len(problems), run.prompts)
    return [problems[start : start + run.prompts] for start in starts]


def _drawn(run: Run, settings: StudySettings, rng: random.Random) -> list[Problem]:
    """One pass over a run's problems: the distinct ones, or all if none repeats."""
    items_by_kind = _split(run.task, settings).train
    if run.mix == "alike":
        items_by_kind = [_alike_items(run.task, settings, items_by_kind)]
    count = settings.distinct or run.prompts * settings.steps
    items = sample_items(items_by_kind, count, rng)
    problems = _problems_of(run.task, items)
    return _mixed(problems) if run.mix == "mixed" else problems


def _alike_items(task: str, settings: StudySettings, items_by_kind: list[list[Any]]) -> list[Any]:
    """The items whose prompts are `alike`, of all kinds together."""
    prompts = set(alike(task, settings))
    return [item for item in chain(*items_by_kind) if TASKS[task].prompt(item) in prompts]


def held_out(task: str, settings: StudySettings) -> list[Problem]:
    """The prompts that pass@1 is measured on."""
    return _problems_of(task, _split(task, settings).held_out)


def held_out_pass1(task: str, settings: StudySettings, policy: TinyPolicy) -> float:
    """pass@1 on the held-out prompts, exact with 0 samples."""
    return fmean(held_out_rates(task, settings, policy))


def held_out_rates(task: str, settings: StudySettings, policy: TinyPolicy) -> list[float]:
    """The pass rate of each held-out prompt, exact with 0 samples."""
    problems = held_out(task, settings)
    if settings.samples == 0:
        return right_probabilities(policy, TASKS[task], problems)
    return pass_rates(policy, TASKS[task], problems, settings.samples)


def held_out_greedy(task: str, settings: StudySettings, policy: TinyPolicy) -> float:
    """The mean reward of the greedy responses to the held-out prompts."""
    return greedy_reward(policy, TASKS[task], held_out(task, settings))


def _problems_of(task: str, items: list[Any]) -> list[Problem]:
    return [TASKS[task].problem(item) for item in items]


def _mixed(problems: list[Problem]) -> list[Problem]:
    """The same problems, but of each three the second is always solved, the third unsolvable."""
    mixed = list(problems)
    for kind, label in ((1, SOLVED), (2, UNSOLVABLE)):
        for place in range(kind, len(problems), KINDS_OF_MIXED):
            mixed[place] = problems[place]._replace(label=label)
    return mixed


def _split(task: str, settings: StudySettings) -> TinySplit:
    return _made_split(task, settings.start_seed, settings.held_out)


@cache
def _made_split(task: str, seed: int, held_out: int) -> TinySplit:
    return TASKS[task].split(seed, held_out)
