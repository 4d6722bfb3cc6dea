"""`openrlhf-js eval passk`: grades a model's responses, and compares models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from answer_graders.marks import name_marks
from answer_graders.programs.console import say, table
from answer_graders.programs.files import make_folder, write_json
from answer_graders.programs.settings import Field, parse, run
from paired_eval.sampling.settings import (
    PromptForm,
    ServerSettings,
    ThinkingSettings,
    memory_failures,
)

if TYPE_CHECKING:
    from paired_eval.pages.passk import PasskRun
    from paired_eval.passk.benchmarks import Asked
    from paired_eval.sampling.sampler import Sampler

PASSK = "openrlhf-js eval passk"
OVERRIDES = ("samples", "temperature", "top_p", "max_new_tokens")
KEYS = ("input_key", "response_key", "label_key")  # flags of --responses alone
WITH_COMPARE = {"compare", "tasks", "out", "metric", "thinking_mark"}
WITH_RESPONSES = {"responses", "tasks", "out", "items", "metric", "thinking_mark", *KEYS}


class PasskSettings(ServerSettings, ThinkingSettings):
    """Samples k responses to every item of a benchmark and grades them: mean@k, pass@j up to k and
    majority vote, with intervals by item. Or grades responses that exist already, from any
    trainer's log. Or compares results with the first ones, paired by item.

      openrlhf-js eval passk --model ckpt/js --tasks math500 amc23 --out runs/js
      openrlhf-js eval passk --model http://localhost:8000/v1 --tasks geometry3k --out runs/vl
      openrlhf-js eval passk --compare runs/rloo runs/js
      openrlhf-js eval passk --compare runs/base runs/step20 runs/step40 --out runs/compared
      openrlhf-js eval passk --responses step20.jsonl step40.jsonl --tasks math --out runs/steps

    Leaves results.json, every response (samples/) and a page to look at them (samples.html) in
    --out. The same command resumes, and a larger --samples adds responses. Responses that another
    version of the graders graded are graded again.
    """

    model: str | None = Field(
        None,
        description="model to sample: folder, hub id, or address (http://host:8000/v1, with #NAME "
        "for one of many)",
    )
    compare: list[Path] = Field(
        [], description="folders of results A B ... to compare; differences are from A"
    )
    responses: list[Path] = Field(
        [],
        description="files of responses that exist already (JSON lines, CSV, Parquet), a row for "
        "each response, or for each prompt with a list; of several, differences are from the first",
    )
    tasks: list[str] = Field(
        [],
        description="benchmarks to ask: names, YAML files, or prompt files of `data build`; with "
        "--responses, the one task whose grader is used",
    )
    out: Path | None = Field(None, description="folder of samples and results")
    metric: str = Field(
        "mean", description="figure that is compared: mean, majority, or such as pass@4"
    )
    samples: int | None = Field(
        None, ge=1, description="number of responses to each item (default: the benchmark's)"
    )
    temperature: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="sampling temperature, 0 for greedy (default: the benchmark's)",
    )
    top_p: float | None = Field(
        None,
        gt=0,
        le=1,
        description="probability mass that is sampled from, up to 1 (default: the benchmark's)",
    )
    max_new_tokens: int | None = Field(
        None, ge=1, description="most tokens of a response (default: the benchmark's)"
    )
    items: int | None = Field(
        None, ge=1, description="ask only the first N items of each benchmark, for a trial"
    )
    prompt_form: PromptForm = Field(
        "auto",
        description="form of the prompts; chat: with the tokenizer's chat template; text: without; "
        "auto: chat if there is a template",
    )
    retry_failed: bool = Field(False, description="ask again what the model or server refused")
    source: list[str] = Field(
        [], description="file or folder of a benchmark's data, as NAME=PATH, instead of the hub"
    )
    input_key: str = Field("prompt", description="field of the prompt in --responses")
    response_key: str | None = Field(
        None,
        description="field of the response, or of the list of responses, in --responses (default: "
        "response or responses)",
    )
    label_key: str = Field("label", description="field of the label in --responses")

    @model_validator(mode="after")
    def _one_model_or_several(self) -> PasskSettings:
        if self.responses:
            self._check_responses()
            return self
        if bool(self.model) == bool(self.compare):
            raise ValueError("give --model MODEL, or --compare A B, or --responses FILE")
        for name in KEYS:
            if self._is_given(name):
                raise ValueError(f"--{name} is for --responses FILE, which is missing")
        if self.model and self._is_given("metric"):
            raise ValueError("--metric is for --compare and --responses: leave it out")
        if self.compare:
            self._check_only(WITH_COMPARE, "--compare", "these results exist already")
        if self.compare and not 2 <= len(self.compare) <= len(ascii_uppercase):
            raise ValueError("--compare takes 2 to 26 folders of results")
        if self.model and not (self.tasks and self.out):
            raise ValueError("--model needs --tasks and --out")
        return self

    def _check_responses(self) -> None:
        """ValueError for a flag that does not go with --responses, which needs no model."""
        self._check_only(WITH_RESPONSES, "--responses", "these responses exist already")
        if len(self.tasks) != 1 or not self.out:
            raise ValueError("--responses needs --out, and in --tasks the one task that grades")
        if len(self.responses) > len(ascii_uppercase):
            raise ValueError("--responses takes at most 26 files")

    def _check_only(self, allowed: Collection[str], flag: str, reason: str) -> None:
        """ValueError for a setting that does not go with a flag."""
        for name in type(self).model_fields:
            if name not in allowed and self._is_given(name):
                raise ValueError(f"--{name} does not go with {flag}: {reason}; leave one out")

    def _is_given(self, name: str) -> bool:
        """Whether a setting is not at its default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)


def main(argv: list[str]) -> int:
    """Runs `openrlhf-js eval passk`.

    Returns 0 if done, 1 if the server or the disk fails, 2 for unusable input.
    """
    settings = parse(PasskSettings, PASSK, argv)
    return run(PASSK, lambda: _passk(settings), resumes=True, failures=memory_failures())


def _passk(settings: PasskSettings) -> None:
    name_marks(settings.thinking_mark)
    if settings.compare:
        compare(settings, settings.compare)
    elif settings.responses and settings.out:
        grade(settings, settings.out)
    elif settings.model and settings.out:
        evaluate(settings, settings.model, settings.out)


def compare(settings: PasskSettings, folders: Sequence[Path]) -> None:
    """Compares results item by item with those of the first folder."""
    from paired_eval.pages import passk as report
    from paired_eval.passk.compare import compare as compared

    if settings.out and settings.out.resolve() in [folder.resolve() for folder in folders]:
        raise ValueError(f"--out {settings.out} is one of the compared folders: give another")
    runs = _runs_of(settings, folders)
    say("")
    for one in runs:
        say(f"{one.label}: {one.results['model']} ({one.folder})")
    first, *others = runs
    comparisons = {}
    for other in others:
        comparisons[other.label] = compared(first.results, other.results, settings.metric)
    notes = correct_p(comparisons)
    differences = []
    for label, comparison in comparisons.items():
        differences += report.differences(comparison, label)
        notes.append(report.conclusion(comparison, label))
        notes += [f"{label}, {note}" for note in comparison["notes"]]
    _show([differences], notes)
    if settings.out:
        _write_comparisons(settings.out, comparisons)
        _write_page(settings.out, runs, differences)


def correct_p(comparisons: Mapping[str, Any]) -> list[str]:
    """Adds `p_holm`, by which the sentences go, to the last rows of several comparisons."""
    from paired_eval.stats import holm

    if len(comparisons) < 2:
        return []
    last_rows = [comparison["rows"][-1] for comparison in comparisons.values()]
    corrected = holm([row["p_value"] for row in last_rows])
    for row, p_value in zip(last_rows, corrected, strict=True):
        row["p_holm"] = p_value
    return [f"The sentences correct p by Holm's method: {len(comparisons)} comparisons."]


def _runs_of(settings: PasskSettings, folders: Sequence[Path]) -> list[PasskRun]:
    """The results to compare, labelled A, B, ..."""
    from paired_eval.pages.passk import PasskRun
    from paired_eval.passk.benchmarks import name_of
    from paired_eval.passk.summary import read_results

    names = [name_of(task) for task in settings.tasks]
    return [
        PasskRun(label, folder, read_results(folder, names))
        for label, folder in zip(ascii_uppercase, folders, strict=False)
    ]


def _write_comparisons(out: Path, comparisons: Mapping[str, Any]) -> None:
    """Writes the comparisons, in the order of their labels, and their picture."""
    from paired_eval.pages import figures, style
    from paired_eval.pages import passk as report

    make_folder(out)
    write_json(out / "comparison.json", list(comparisons.values()))
    forest = report.forest(list(comparisons.items()))
    picture = figures.picture([forest], widths=[figures.PANEL_WIDTH])
    say(str(style.save_png(picture, out / "comparison.png")))


def evaluate(settings: PasskSettings, model: str, out: Path) -> None:
    """Samples a model's missing responses, then writes and shows the results."""
    from paired_eval.passk import benchmarks
    from paired_eval.sampling.sampler import sampler_of

    overrides = settings.model_dump(include=set(OVERRIDES), exclude_none=True)
    sources = {}
    for source in settings.source:
        name, _, path = source.partition("=")
        sources[name] = path
    make_folder(out)
    asked = benchmarks.asked_of(settings.tasks, out, overrides, sources, settings.items)
    names = [f"{one.benchmark.name} ({len(one.items):,} items)" for one in asked]
    say(", ".join(names), error=True)
    sampler = sampler_of(settings, model, settings.prompt_form)
    _complete_and_show(settings, sampler, asked, out)


def grade(settings: PasskSettings, out: Path) -> None:
    """Grades recorded responses; several files go into the folders A, B, ... and are compared."""
    from paired_eval.passk.responses import Keys, read_responses

    keys = Keys(settings.input_key, settings.response_key, settings.label_key)
    (task,) = settings.tasks
    make_folder(out)
    read = [read_responses(path, task, keys, settings.items) for path in settings.responses]
    folders = [out]
    if len(read) > 1:
        folders = [out / label for label, _ in zip(ascii_uppercase, read, strict=False)]
    for folder, (asked, sampler) in zip(folders, read, strict=True):
        responses = sum(asked.recorded.values())
        say(f"{sampler.name}: {len(asked.items):,} items, {responses:,} responses", error=True)
        _complete_and_show(settings, sampler, [asked], folder)
    if len(read) > 1:
        compare(settings, folders)


def _complete_and_show(
    settings: PasskSettings, sampler: Sampler, asked: Sequence[Asked], out: Path
) -> None:
    """Samples and grades what is missing in a folder, then writes and shows its results."""
    from paired_eval.pages import passk as report
    from paired_eval.passk.evaluate import evaluate as results_of
    from paired_eval.passk.evaluate import results_of_others
    from paired_eval.passk.summary import FILE

    results = results_of(sampler, asked, out, settings.seed, settings.retry_failed)
    own = {one.benchmark.name for one in asked}
    others = results_of_others(out, sampler)  # another run may have left its own meanwhile
    results["tasks"] |= {name: task for name, task in others.items() if name not in own}
    write_json(out / FILE, results)
    scores = report.scores(results)
    say(f"\n{results['model']}")
    _show([scores, report.passes(results), report.details(results)], report.notes(results))
    say(str(out / FILE))
    _write_page(out, [report.PasskRun("", out, results)], scores)


def _write_page(out: Path, runs: Sequence[PasskRun], figures: list[dict[str, Any]]) -> None:
    """Writes the page of samples."""
    from paired_eval.pages import samples

    path = out / samples.FILE
    if samples.write(runs, figures, path):
        say(str(path))
    else:
        folders = " and ".join(str(run.folder) for run in runs)
        say(f"no page of samples: samples/ is no longer in {folders}", error=True)


def _show(tables: Sequence[list[dict[str, Any]]], notes: Sequence[str]) -> None:
    for rows in tables:
        table(rows)
        say("")
    say("\n".join(notes))
