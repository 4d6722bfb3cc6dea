"""`openrlhf-js lab PROGRAM ...`: how far baselines and gradients are from what they estimate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import model_validator

from openrlhf_js.common.console import progress, say, table
from openrlhf_js.common.settings import Field, Settings, choose, parse, run
from openrlhf_js.sampling.settings import DTYPES, SamplingSettings

if TYPE_CHECKING:  # torch is imported once the flags are right
    from openrlhf_js.lab.batches import BatchPlan
    from openrlhf_js.lab.pool import Samples
    from openrlhf_js.lab.results import LabResult
    from openrlhf_js.lab.score_pool import ScorePool
    from openrlhf_js.sampling.prompts import Form, Prompt, Row
    from openrlhf_js.stats.estimate import Floats

PROG = "openrlhf-js lab"
BASELINES = ("js", "js_grad", "bloo", "reinforce++", "dr_grpo", "remax")
PROMPTS = 128  # the paper's
OWN = "your own as FILE.py:NAME"
TASK_POOL = 1000  # problems that a task makes, of which some are drawn
WITHOUT_MODEL = {"out", "prompts_count", "responses", "device", "seed", "trust_remote_code"}


class LabSettings(SamplingSettings):
    """What is sampled, as in training: once, into OUT/samples, for every program of the lab.

    The same command resumes; more --responses or --prompts_count sample what is missing; another
    --reward grades again without sampling; and without --model the program takes what is there.
    """

    default_responses: ClassVar[int] = 128  # the paper's

    out: Path = Field(description="folder of samples and results")
    model: tuple[str, ...] = Field(
        (),
        description="policy: a folder or a hub id; for mse and gradient also checkpoints",
    )
    prompts: tuple[Path, ...] = Field(
        (), description="JSON, JSON lines, CSV or Parquet, as a run's; several are groups by name"
    )
    task: str | None = Field(None, description="a task of openrlhf_js, instead of --prompts")
    split: Literal["train", "test"] = Field("train", description="of --task")
    reward: Path | None = Field(
        None, description="file with reward_func; default: of --task, or of each row's datasource"
    )
    prompts_count: int | None = Field(
        None, ge=1, description=f"of each file, drawn by the seed (default {PROMPTS}, or all)"
    )
    responses: int | None = Field(
        None, ge=1, description="to each prompt (default 128, for gradients 256)"
    )
    input_key: str = Field("input", description="column of the prompt")
    label_key: str = Field("label", description="column of the label; '' for none")
    group_key: str = Field("datasource", description="column of the data source")
    apply_chat_template: bool = Field(False, description="implied by --task")
    input_template: str | None = Field(None, description="such as 'User: {}\\nAssistant: '")

    @model_validator(mode="after")
    def _consistent(self) -> LabSettings:
        if self.prompts and self.task:
            raise ValueError("give --prompts or --task, not both")
        if bool(self.model) != bool(self.prompts or self.task):
            raise ValueError("--model and --prompts (or --task) need each other")
        if len(self.model) > 1 and not isinstance(self, MseSettings | GradientSettings):
            raise ValueError("only lab mse and lab gradient take several --model")
        if len({path.stem for path in self.prompts}) < len(self.prompts):
            raise ValueError("two --prompts files have the same name, which is that of their group")
        if not self.model:
            self._refuse_sampling_flags()
        if self.input_template is not None and "{}" not in self.input_template:
            raise ValueError("--input_template needs a {} where the prompt goes")
        return self

    def _refuse_sampling_flags(self) -> None:
        for name, field in LabSettings.model_fields.items():
            if name not in WITHOUT_MODEL and getattr(self, name) != field.default:
                raise ValueError(f"--{name} needs --model: without it, samples are taken as is")


class ValueSettings(LabSettings):
    """Each prompt's value: the mean reward of many responses, with its standard error."""


class BatchSettings(LabSettings):
    """The batches that are drawn from the samples."""

    m: tuple[int, ...] = Field((2, 4, 8), description="responses to each prompt of a batch")
    batch_prompts: int | None = Field(None, ge=2, description="of a batch (default half of all)")
    batches: int = Field(2000, ge=2, description="for each m")


class MseSettings(BatchSettings):
    """How far every baseline is from the true value, on responses of a model.

    Small batches are drawn from many responses; a prompt's value is the mean of those that are not
    in the batch, and the squared error of that mean is subtracted.
    """

    baselines: tuple[str, ...] = Field(
        (), description=f"compared with rloo (default all that need nothing more); {OWN}"
    )


class ScoreSettings(BatchSettings):
    """What takes score gradients: one pass a response, whose sketch is kept in OUT/gradients."""

    default_responses: ClassVar[int] = 256

    gradient_dtype: Literal["bf16", "fp16", "float32"] = Field(
        "float32", description="of the model; sums are float32"
    )


class GradientSettings(ScoreSettings):
    """How far the policy gradients of batches are from the true one, by estimator.

    One pass a response takes its score gradient, and keeps a sketch of it in OUT/gradients; batches
    of any size and every estimator are sums of those. Distance: the mean of ||g - T||^2, T the
    true gradient of the batch's prompts; to all: of all prompts, as in the paper. Reductions are
    against rloo, paired by batch. Estimators that remember are judged in the second half of streams
    of --steps batches, and in the first batch. dr_grpo has rloo's gradient times (m - 1)/m: its
    shorter steps are nearer, but biased.
    """

    steps: int = Field(10, ge=1, description="batches in a stream, all of this one policy")
    baselines: tuple[str, ...] = Field(
        (),
        description=f"compared with rloo (default {' '.join(BASELINES)}), without the "
        f"scale that some divide by; {OWN}",
    )


class HeterogeneitySettings(ScoreSettings):
    """The distance to the true gradient for every lambda from 0 (rloo) to 1 (bloo).

    And where js is: for each group of prompts by itself (of --group_key, or a --prompts file), and
    for a mix with equal shares of all. Least distance: the lambda with the least mean distance; its
    reduction is measured on half of the responses with the lambda that is best for the other half.
    """

    m: tuple[int, ...] = Field((4,), description="responses to each prompt of a batch")


class SimulateSettings(Settings):
    """How far every baseline is from the true value where values are made up, without a model.

    A value is the probability of the reward 1. Values: beta:A,B; two_point:LOW,HIGH,SHARE.
    """

    out: Path = Field(description="folder of results")
    values: str = Field("beta:0.5,0.5", description="of the prompts, see above")
    prompts_count: int = Field(64, ge=2, description="in a batch")
    m: tuple[int, ...] = Field((2, 4, 8), description="responses to each prompt")
    all: bool = Field(
        False, description="every baseline, not only rloo, js, js_grad and the best constant"
    )
    rounds: int = Field(4000, ge=2, description="batches for each m")
    seed: int = Field(0, ge=0, description="of the draws")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    name = arguments[0]
    if name not in PROGRAMS:
        summaries = {}
        for known, program in PROGRAMS.items():
            summaries[known] = ("", (program.settings.__doc__ or "").splitlines()[0])
        return choose(PROG, summaries, [name])
    prog = f"{PROG} {name}"
    settings: Any = parse(PROGRAMS[name].settings, prog, arguments[1:])
    from torch import OutOfMemoryError

    from openrlhf_js.lab.grading import RewardFailed

    failures: Any = {
        RewardFailed: lambda error: f"{error}\nResponses are kept; the same command resumes",
        OutOfMemoryError: lambda error: (
            f"{error}\nGive a smaller --batch_size, or for gradients --gradient_dtype bf16; "
            "the same command resumes"
        ),
    }
    return run(prog, lambda: _run(name, settings), name != "simulate", failures)


def _run(name: str, settings: Any) -> None:
    """Analyses, prints the table, and writes JSON, arrays and picture."""
    result = _analyse(PROGRAMS[name].analyse, settings)
    from openrlhf_js.lab.results import save
    from openrlhf_js.report import lab

    path = save(settings.out, name, result, settings.manifest())
    table(lab.table(result.summary()))
    say(f"\n{result.caption}")
    for estimator, reason in result.notes.get("left_out", {}).items():
        say(f"{estimator} is left out: it {reason}.")
    for written in (path, path.with_suffix(".npz"), lab.picture(path)):
        say(str(written))


def _analyse(analyse: Callable[[Any], LabResult], settings: Any) -> LabResult:
    """The analysis of one model, or of every checkpoint in a folder of its name below --out."""
    if not isinstance(settings, LabSettings) or len(settings.model) < 2:
        return analyse(settings)
    from openrlhf_js.lab.results import over_training

    results = {}
    for model in settings.model:
        name = Path(model).name
        say(f"\n{name}", style="bold")
        checkpoint = {"model": (model,), "out": settings.out / name}
        results[name] = analyse(settings.model_copy(update=checkpoint))
    return over_training(results)


def values(settings: ValueSettings) -> LabResult:
    """`lab value`."""
    from openrlhf_js.lab.value import values_of

    return values_of(sampled(settings))


def errors(settings: MseSettings) -> LabResult:
    """`lab mse`."""
    from openrlhf_js.lab.batches import names_with_reference
    from openrlhf_js.lab.mse import mse

    names_with_reference(settings.baselines, reasons={})  # before any work
    pool = sampled(settings)
    return mse(pool, _plan(settings, pool.rewards), settings.baselines)


def gradients(settings: GradientSettings) -> LabResult:
    """`lab gradient`."""
    from openrlhf_js.lab.gradient import check_names, compare, measure

    chosen = settings.baselines or BASELINES
    check_names(chosen)  # before any work
    samples = sampled(settings)
    names = check_names(chosen, samples)
    plan = _plan(settings, samples.rewards, settings.steps)
    pool = _score_pool(settings, samples)
    return compare(measure(pool, plan, names), pool, plan)


def heterogeneity(settings: HeterogeneitySettings) -> LabResult:
    """`lab heterogeneity`."""
    from openrlhf_js.lab import heterogeneity
    from openrlhf_js.lab.gradient import measure

    samples = sampled(settings)
    sets = heterogeneity.sets([prompt.group for prompt in samples.prompts])
    smallest = min(sets.values(), key=len)
    plan = _plan(settings, samples.rewards[smallest])
    pool = _score_pool(settings, samples)
    measured = {}
    for name, rows in sets.items():
        title = f"batches of {name}"
        measured[name] = measure(pool.at(rows), plan, heterogeneity.SWEPT, title)
    return heterogeneity.heterogeneity(measured, plan)


def _plan(settings: BatchSettings, rewards: Floats, steps: int = 1) -> BatchPlan:
    """The batches of a pool with rewards (N, M). Raises ValueError where it is too small."""
    from openrlhf_js.lab.batches import BatchPlan

    prompts, responses = rewards.shape
    plan = BatchPlan(
        batches=settings.batches,
        prompts=settings.batch_prompts or max(2, prompts // 2),
        responses=tuple(sorted(set(settings.m))),
        steps=steps,
        seed=settings.seed,
    )
    plan.check(prompts, responses)
    return plan


def simulated(settings: SimulateSettings) -> LabResult:
    """`lab simulate`."""
    from openrlhf_js.lab import simulate

    return simulate.simulate(
        simulate.parse(settings.values),
        settings.prompts_count,
        sorted(set(settings.m)),
        rounds=settings.rounds,
        seed=settings.seed,
        everything=settings.all,
    )


def sampled(settings: LabSettings) -> Samples:
    """The samples that the settings ask for: those there, after sampling what is missing."""
    from openrlhf_js.lab.pool import open_samples

    prompts = settings.prompts_count
    responses = settings.responses
    if settings.model:
        responses = responses or settings.default_responses
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
    from openrlhf_js.common.model_folders import model_folder
    from openrlhf_js.lab.grading import file_grader, task_grader
    from openrlhf_js.lab.pool import fill
    from openrlhf_js.sampling.models import model_files, model_fingerprint
    from openrlhf_js.sampling.prompts import Form, check_lengths, read_prompt_rows

    grader = file_grader(settings.reward) if settings.reward else task_grader(settings.task)
    if settings.task:
        rows = {settings.task: _task_rows(settings, settings.task)}
        source = f"task {settings.task}, {settings.split}"
    else:
        rows = {path.stem: read_prompt_rows(path) for path in settings.prompts}
        source = " ".join(map(str, settings.prompts))
    form = Form(
        input_key=settings.input_key,
        label_key=settings.label_key or None,
        group_key=settings.group_key,
        apply_chat_template=settings.apply_chat_template or settings.task is not None,
        input_template=settings.input_template,
    )
    trust = settings.trust_remote_code
    files = model_files(model_folder(settings.model[0], trust), trust)
    wanted = _prompts(settings, rows, form, files.tokenizer)
    check_lengths(wanted, settings.max_new_tokens, files.context)
    identity = {
        "model_sha256": model_fingerprint(files.folder),
        "prompts": source,
        **asdict(form),
    }
    fill(settings.out, settings, files, identity, wanted, responses, grader)
    return len(wanted)


def _prompts(
    settings: LabSettings, rows: Mapping[str, Sequence[Row]], form: Form, tokenizer: Any
) -> list[Prompt]:
    """Prompts drawn from the rows of each source, one from each in turn."""
    from openrlhf_js.sampling.prompts import asked, drawn

    prompts = []
    for source, source_rows in rows.items():
        chosen = drawn(source_rows, settings.prompts_count, PROMPTS, settings.seed)
        source_prompts = asked(chosen, form, tokenizer)
        if len(rows) > 1:
            source_prompts = [prompt._replace(group=source) for prompt in source_prompts]
        prompts.append(source_prompts)
    turns = zip_longest(*prompts)  # so that fewer prompts are always the first of more
    return [prompt for turn in turns for prompt in turn if prompt is not None]


def _task_rows(settings: LabSettings, name: str) -> list[Row]:
    from openrlhf_js.tasks import TASKS
    from openrlhf_js.tasks.prompt_files import items, row
    from openrlhf_js.tasks.record import GeneratedProblems

    if name not in TASKS:
        raise ValueError(
            f"--task {name} has no problems of its own; choose from {', '.join(TASKS)}"
        )
    task = TASKS[name]
    count = None
    if isinstance(task.problems, GeneratedProblems):
        count = max(TASK_POOL, settings.prompts_count or 0)
    with progress(f"building {name}") as bar:
        problems = items(task, settings.split, count, settings.seed, task.defaults(), bar.update)
        return [row(task, problem) for problem in problems]


def _score_pool(settings: ScoreSettings, samples: Samples) -> ScorePool:
    """The score gradients of all samples, by the model that was sampled."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from openrlhf_js.common.model_folders import model_folder
    from openrlhf_js.lab.score_pool import score_pool
    from openrlhf_js.lab.scores import ScoreSketcher
    from openrlhf_js.sampling.models import model_fingerprint

    if samples.settings["top_p"] != 1:
        raise ValueError("log-probabilities are of all tokens: sample with --top_p 1, not less")
    trust = settings.trust_remote_code
    folder = Path(samples.settings["model"])
    if model_fingerprint(folder) != samples.settings["model_sha256"]:
        raise ValueError(f"{folder} is not the model that was sampled; give another --out")
    model_folder(folder, trust)
    logging.disable_progress_bar()
    dtype = getattr(torch, DTYPES[settings.gradient_dtype])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=trust)
    model = model.to(settings.device_name)
    sketcher = ScoreSketcher(model, samples.settings["temperature"])
    return score_pool(sketcher, samples, settings.out)


class Program(NamedTuple):
    """A program's flags, and its analysis."""

    settings: type[Settings]
    analyse: Callable[[Any], LabResult]


PROGRAMS: dict[str, Program] = {
    "value": Program(ValueSettings, values),
    "mse": Program(MseSettings, errors),
    "gradient": Program(GradientSettings, gradients),
    "heterogeneity": Program(HeterogeneitySettings, heterogeneity),
    "simulate": Program(SimulateSettings, simulated),
}


if __name__ == "__main__":
    sys.exit(main())
