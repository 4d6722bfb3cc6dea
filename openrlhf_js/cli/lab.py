"""`openrlhf-js lab PROGRAM ...`: how far baselines and gradients are from what they estimate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from openrlhf_js.common.console import progress, say, table
from openrlhf_js.common.settings import Field, Settings, choose, parse, run
from openrlhf_js.sampling.settings import DTYPES, SamplingSettings

if TYPE_CHECKING:  # torch is imported once the flags are right
    from openrlhf_js.lab.policy_gradient import ScoreSum
    from openrlhf_js.lab.pool import Samples
    from openrlhf_js.lab.results import LabResult
    from openrlhf_js.sampling.prompts import Row

PROG = "openrlhf-js lab"
BASELINES = ("js", "js_plus", "bloo", "reinforce++", "dr_grpo", "remax")
PROMPTS = 128  # the paper's
PAST = "--out of an earlier checkpoint with the same prompts; js_memory knows m rewards from there"
TASK_POOL = 1000  # problems that a task makes, of which some are drawn


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
            kept = {"out", "prompts_count", "responses", "device", "seed", "trust_remote_code"}
            for name, field in LabSettings.model_fields.items():
                if name not in kept and getattr(self, name) != field.default:
                    raise ValueError(f"--{name} needs --model: without it, samples are taken as is")
        if self.input_template is not None and "{}" not in self.input_template:
            raise ValueError("--input_template needs a {} where the prompt goes")
        return self


class ValueSettings(LabSettings):
    """Each prompt's value: the mean reward of many responses, with its standard error."""


class MseSettings(LabSettings):
    """How far every baseline is from the true value, on responses of a model.

    Small batches are drawn from many responses; a prompt's value is the mean of those that are not
    in the batch, and the squared error of that mean is subtracted.
    """

    past: Path | None = Field(None, description=PAST)
    m: tuple[int, ...] = Field((2, 4, 8), description="responses to each prompt of a batch")
    batch_prompts: int | None = Field(None, ge=1, description="of a batch (default 64, or all)")
    batches: int = Field(1000, ge=1, description="for each m")


class BatchSettings(LabSettings):
    """The small batches of the programs that take gradients, and the passes."""

    default_responses: ClassVar[int] = 256

    m: tuple[int, ...] = Field((2, 4, 8), description="responses to each prompt of a batch")
    batch_prompts: int | None = Field(None, ge=2, description="of a batch (default half of all)")
    batches: int = Field(20, ge=2, description="for each m")
    gradient_dtype: Literal["bf16", "fp16", "float32"] = Field(
        "float32", description="of the model; sums are float32 at least"
    )
    max_tokens: int = Field(8192, ge=1, description="of a pass; less takes less memory")


class GradientSettings(BatchSettings):
    """How far the policy gradients of small batches are from a precise one, by baseline.

    Some responses of the pool make the precise gradient G; batches are drawn from the others. What
    is computed is kept in OUT/gradients. Distance: the mean of ||g - G||^2 without the error of G;
    plain distance: with it, as in the paper. Reductions are against rloo, paired by batch. dr_grpo
    has rloo's gradient times (m - 1)/m: its shorter steps are nearer, but biased.
    """

    past: Path | None = Field(None, description=PAST)
    baselines: tuple[str, ...] = Field(
        (),
        description=f"compared with rloo (default {' '.join(BASELINES)}; with --past js_memory)",
    )


class SweepSettings(BatchSettings):
    """The distance to the true gradient for every lambda from 0 (rloo) to 1 (bloo).

    And where js and js_plus are. Least distance: the lambda with the least mean distance; its
    reduction is measured on each batch with the lambda that is best for the others.
    """


class HeterogeneitySettings(BatchSettings):
    """The sweep for each group of prompts by itself, and for a mix with equal shares of all.

    Groups are those of --group_key, or several --prompts files.
    """

    m: tuple[int, ...] = Field((4,), description="responses to each prompt of a batch")


class SimulateSettings(Settings):
    """How far every baseline is from the true value where values are made up, without a model.

    Values: beta:A,B; two_point:LOW,HIGH,SHARE; normal:MEAN,STD (with --noise).
    """

    out: Path = Field(description="folder of results")
    values: str = Field("beta:0.5,0.5", description="of the prompts, see above")
    noise: float | None = Field(
        None, gt=0, description="std of Gaussian rewards; default: 1 with the value as probability"
    )
    prompts_count: int = Field(64, ge=2, description="in a batch")
    m: tuple[int, ...] = Field((2, 4, 8), description="responses to each prompt")
    visits: int = Field(
        0, ge=0, description="earlier ones to each prompt, with m responses each, for js_memory"
    )
    rounds: int = Field(4000, ge=2, description="batches for each m")
    seed: int = Field(0, ge=0, description="of the draws")


PROGRAMS: dict[str, type[Settings]] = {
    "value": ValueSettings,
    "mse": MseSettings,
    "gradient": GradientSettings,
    "sweep": SweepSettings,
    "heterogeneity": HeterogeneitySettings,
    "simulate": SimulateSettings,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in PROGRAMS:
        summaries = {each: (kind.__doc__ or "").splitlines()[0] for each, kind in PROGRAMS.items()}
        return choose(PROG, {each: ("", text) for each, text in summaries.items()}, [name])
    prog = f"{PROG} {name}"
    settings: Any = parse(PROGRAMS[name], prog, rest)
    from torch import OutOfMemoryError

    from openrlhf_js.lab.pool import RewardFailed

    smaller = "Give a smaller --batch_size, or --max_tokens for gradients"
    failures: Any = {
        RewardFailed: lambda error: f"{error}\nResponses are kept; the same command resumes",
        OutOfMemoryError: lambda error: f"{error}\n{smaller}; the same command resumes",
    }
    work = lambda: finish(name, settings, analyse(settings))  # noqa: E731
    return run(prog, work, name != "simulate", failures)


def analyse(settings: Any) -> LabResult:
    """Samples what is missing, and analyses it."""
    from openrlhf_js.lab import gradient, mse, results, shrinkage, simulate

    if isinstance(settings, SimulateSettings):
        made, n, m = simulate.parse(settings.values), settings.prompts_count, settings.m
        if settings.noise:
            made = simulate.gaussian_rewards(made, settings.noise)
        rest = settings.rounds, settings.seed, settings.visits
        return simulate.simulate(made, n, sorted(set(m)), *rest)
    if len(settings.model) > 1:
        return results.along_training(settings, analyse)
    pool = sampled(settings)
    if isinstance(settings, ValueSettings):
        return mse.values_of(pool)
    m = tuple(sorted(set(settings.m)))
    if isinstance(settings, MseSettings):
        n = settings.batch_prompts or min(64, len(pool.rewards))
        return mse.mse(pool, n, m, settings.batches, settings.seed)
    mixed = isinstance(settings, HeterogeneitySettings)
    sets = shrinkage.sets(pool.groups) if mixed else {"all prompts": range(len(pool.prompts))}
    n = settings.batch_prompts or max(2, min(map(len, sets.values())) // 2)
    plan = gradient.BatchPlan(settings.batches, n, m, settings.seed)
    batches = {name: gradient.SmallBatches(pool.at(rows), plan) for name, rows in sets.items()}
    names: tuple[str, ...] = shrinkage.SWEPT
    if isinstance(settings, GradientSettings):
        memory = () if pool.past is None else ("js_memory",)
        names = ("rloo", *(settings.baselines or (*BASELINES, *memory)))
        gradient.check_names(names, pool)
    scores = _scores(settings, pool)
    found = {
        name: gradient.measure(scores, each, names, settings.out, f"gradients of {name}")
        for name, each in batches.items()
    }
    if mixed:
        return shrinkage.heterogeneity(batches, found)
    compare = gradient.compare if isinstance(settings, GradientSettings) else shrinkage.sweep
    return compare(batches["all prompts"], found["all prompts"])


def finish(name: str, settings: Any, result: LabResult) -> None:
    """Writes JSON, arrays and picture, and prints table, files and finding."""
    from openrlhf_js.lab.results import save
    from openrlhf_js.report import lab

    path = save(settings.out, name, result, settings.manifest())
    picture = lab.picture(path)
    table(lab.table({"rows": result.rows, **result.notes}))
    for estimator, why in result.notes.get("left_out", {}).items():
        say(f"{estimator} is left out: it {why}.")
    for each in (path, path.with_suffix(".npz"), picture):
        say(str(each))
    say(f"\n{result.finding}")


def sampled(settings: LabSettings) -> Samples:
    """The samples that the settings ask for: those there, after sampling what is missing."""
    from openrlhf_js.lab.pool import open_samples

    prompts, responses = settings.prompts_count, settings.responses
    if settings.model:
        responses = responses or settings.default_responses
        prompts = _sample(settings, settings.model[0], responses)
    pool = open_samples(settings.out, prompts)
    there = pool.rewards.shape
    prompts, responses = prompts or there[0], responses or there[1]
    if prompts > there[0] or responses > there[1]:
        raise ValueError(
            f"{settings.out} has {there[0]} prompts with {there[1]} responses each, not {prompts} "
            f"with {responses}: add the flags that sampled them, to sample more"
        )
    found = pool.at(range(prompts), responses)
    past = getattr(settings, "past", None)
    return found if past is None else found.after(open_samples(past))


def _sample(settings: LabSettings, model: str, responses: int) -> int:
    """Samples what --out lacks, and returns the number of prompts."""
    from openrlhf_js.lab.pool import file_grader, fill, task_grader
    from openrlhf_js.sampling.models import model_files, model_fingerprint, model_folder
    from openrlhf_js.sampling.prompts import Form, asked, check_lengths, drawn, rows_of

    reward, task = settings.reward, settings.task
    grader = file_grader(reward) if reward else task_grader(task)
    if task:
        files, name = {task: _task_rows(settings, task)}, f"task {task}, {settings.split}"
    else:
        files = {path.stem: rows_of(path) for path in settings.prompts}
        name = " ".join(map(str, settings.prompts))
    keys = settings.input_key, settings.label_key or None, settings.group_key
    form = Form(*keys, settings.apply_chat_template or task is not None, settings.input_template)
    trust = settings.trust_remote_code
    of_model = model_files(model_folder(model, trust), trust)
    groups = []
    for stem, rows in files.items():
        chosen = drawn(rows, settings.prompts_count, PROMPTS, settings.seed)
        own = asked(chosen, form, of_model.tokenizer)
        groups.append([each._replace(group=stem) if len(files) > 1 else each for each in own])
    # From each file in turn, so that fewer prompts are always the first of more.
    wanted = [each for turn in zip_longest(*groups) for each in turn if each is not None]
    check_lengths(wanted, settings.max_new_tokens, of_model.context)
    source = {"model_sha256": model_fingerprint(of_model.folder), "prompts": name}
    source |= form.__dict__
    fill(settings.out, settings, of_model, source, wanted, responses, grader)
    return len(wanted)


def _task_rows(settings: LabSettings, name: str) -> list[Row]:
    from openrlhf_js.tasks import TASKS
    from openrlhf_js.tasks.base import Generated
    from openrlhf_js.tasks.prompt_files import items, options_of, row

    task = TASKS[name]
    made = isinstance(task, Generated)
    count = max(TASK_POOL, settings.prompts_count or 0) if made else None
    with progress(f"building {name}") as bar:
        found = items(task, settings.split, count, settings.seed, options_of(task), bar.update)
        return [row(task, each) for each in found]


def _scores(settings: BatchSettings, pool: Samples) -> ScoreSum:
    """The model that was sampled, ready to sum up gradients."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from openrlhf_js.lab.policy_gradient import ScoreSum
    from openrlhf_js.sampling.models import model_fingerprint, model_folder

    known = pool.settings
    if known["top_p"] != 1:
        raise ValueError("log-probabilities are of all tokens: sample with --top_p 1, not less")
    trust = settings.trust_remote_code
    folder = Path(known["model"])
    if model_fingerprint(folder) != known["model_sha256"]:
        raise ValueError(f"{folder} is not the model that was sampled; give another --out")
    model_folder(folder, trust)
    logging.disable_progress_bar()
    dtype = getattr(torch, DTYPES[settings.gradient_dtype])
    load = AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=dtype, trust_remote_code=trust).to(settings.device_name)
    return ScoreSum(model, known["temperature"], settings.max_tokens)


if __name__ == "__main__":
    sys.exit(main())
