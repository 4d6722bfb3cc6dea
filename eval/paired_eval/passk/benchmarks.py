"""Benchmarks: YAML definitions and prompt files, and the items that they ask."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import model_validator

from answer_graders.programs import as_typed
from answer_graders.programs.console import progress, say
from answer_graders.programs.files import ROW_FORMATS, read_yaml
from answer_graders.programs.settings import Field, Settings, SettingsError
from answer_graders.prompt_files import Example, example, read, row
from answer_graders.prompt_files import items as problems_of
from answer_graders.tasks import TASKS
from answer_graders.tasks import benchmarks as task_benchmarks

UID_DIGITS = 16


class Benchmark(Settings):
    """Which items are asked, and how responses are sampled: the keys of a YAML file."""

    name: str
    task: str = Field("", description="whose problems are asked; or `file`")
    split: str = "test"
    count: int | None = Field(None, ge=1, description="of the problems; default: all")
    seed: int = Field(0, ge=0, description="of the problems")
    options: dict[str, Any] = Field({}, description="as `openrlhf-js data build TASK` takes them")
    file: Path | None = Field(None, description="of prompts, relative to the YAML file")
    samples: int = Field(16, ge=1, description="k, to each item")
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(2048, ge=1)

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Benchmark:
        """ValueError unless it has either a task's problems or a file's."""
        if bool(self.task) == bool(self.file):
            raise ValueError("name either a task or a file of prompts")
        if self.task and self.task not in TASKS:
            raise ValueError(f"no task {self.task!r}; there are {', '.join(sorted(TASKS))}")
        return self


class Asked(NamedTuple):
    """A benchmark with its items by uid, a hash of their content.

    `recorded` is the number of responses of each item, if they are recorded; else {}.
    """

    benchmark: Benchmark
    items: dict[str, Example]
    recorded: Mapping[str, int] = {}

    def draws(self, uid: str) -> range:
        """The draw numbers of an item's responses."""
        return range(self.recorded.get(uid, self.benchmark.samples))


def named_benchmark(name: str) -> Benchmark:
    """A task's own benchmark."""
    task, record = task_benchmarks()[name]
    return Benchmark(name=name, task=task.name, **dataclasses.asdict(record))


def name_of(task: str) -> str:
    """The name of a benchmark in results and files."""
    path = Path(task)
    is_file = path.suffix in (".yaml", ".yml", *ROW_FORMATS)
    return re.sub(r"[^\w.-]", "_", path.stem if is_file else task)


def read_benchmark(path: Path) -> Benchmark:
    """The benchmark of a YAML file, named after it."""
    values = {"name": name_of(path.name), **read_yaml(path)}
    if "file" in values:
        values["file"] = path.parent / str(values["file"])
    try:
        return Benchmark(**values)
    except (TypeError, SettingsError) as error:
        raise ValueError(f"{path}: {error}") from None


def asked_of(
    tasks: Sequence[str],
    out: Path,
    overrides: Mapping[str, Any],
    sources: Mapping[str, str],
    limit: int | None = None,
) -> list[Asked]:
    """The benchmarks that --tasks names, each with its (first `limit`) items.

    `overrides` replace fields of `Benchmark`; `sources` are, by benchmark, files or folders to use
    instead of the hub. If a data set has figures, `images/` is written to `out`.
    """
    benchmarks = [_benchmark(task).model_copy(update=dict(overrides)) for task in tasks]
    names = [benchmark.name for benchmark in benchmarks]
    if len(set(names)) < len(names):
        raise ValueError(f"--tasks names a benchmark twice: {', '.join(names)}; rename a file")
    unknown = sorted(sources.keys() - set(names))
    if unknown:
        raise ValueError(f"--source is for {unknown[0]}, which --tasks does not name")
    asked = []
    for benchmark in benchmarks:
        if benchmark.file:
            items = items_of_file(benchmark.file)
        else:
            items = _built(benchmark, sources.get(benchmark.name), out)
        items_by_uid = {uid_of(item): item for item in items}  # a file may repeat a problem
        first_items = dict(list(items_by_uid.items())[:limit])
        questions = {json.dumps([item.messages, item.images]) for item in first_items.values()}
        again = len(first_items) - len(questions)
        if again:
            say(f"{benchmark.name}: {again:,} items ask a question again with another gold answer")
        asked.append(Asked(benchmark, first_items))
    return asked


def _benchmark(task: str) -> Benchmark:
    """The benchmark of one of --tasks."""
    path = Path(task)
    if task in task_benchmarks():
        return named_benchmark(task)
    if path.suffix in (".yaml", ".yml"):
        return read_benchmark(path)
    if path.suffix in ROW_FORMATS:
        fields: dict[str, Any] = {"name": name_of(task), "file": path}
        return Benchmark(**fields)
    raise ValueError(
        f"no benchmark {task!r}; there are {', '.join(sorted(task_benchmarks()))}, YAML files, and "
        f"files of prompts ({', '.join(ROW_FORMATS)}) from `{as_typed('openrlhf-js data build')}`"
    )


def items_of_file(path: Path) -> list[Example]:
    """The items of a prompt file, as `openrlhf-js data build` writes it."""
    items = []
    for line in read(path):
        try:
            if isinstance(line.example, ValueError):
                raise line.example
            items.append(_gradable(line.example))
        except ValueError as error:
            raise ValueError(f"{line.place}: {error}") from None
    if not items:
        build = as_typed("openrlhf-js data build")
        raise ValueError(f"{path} holds no item: build it with `{build}`")
    return items


def _built(benchmark: Benchmark, source: str | None, out: Path) -> list[Example]:
    """The items of a task, as `openrlhf-js data build` makes them."""
    task = TASKS[benchmark.task]
    defaults = task.defaults()
    options = {**defaults, **_given_options(benchmark, source, allowed=defaults)}
    if "images_dir" in defaults and "images_dir" not in benchmark.options:
        options["images_dir"] = str(out / "images")
    with progress(f"building {benchmark.name}") as bar:
        problems = problems_of(
            task, benchmark.split, benchmark.count, benchmark.seed, options, bar.update
        )
        return [_gradable(example(row(task, problem))) for problem in problems]


def _given_options(
    benchmark: Benchmark, source: str | None, allowed: Mapping[str, Any]
) -> dict[str, Any]:
    """The options that a definition and --source give, with tuples for lists."""
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in benchmark.options.items()
    }
    if source is not None:
        options["source"] = source
    unknown = sorted(options.keys() - allowed.keys())
    if unknown:
        raise ValueError(f"{benchmark.name}: {benchmark.task} takes no option {unknown[0]!r}")
    return options


def _gradable(item: Example) -> Example:
    """The item; ValueError if its label cannot be graded against."""
    item.task.check_label(item.label)
    return item


def uid_of(item: Example) -> str:
    """A hash of an item's question, gold answer and datasource."""
    image_names = [Path(image).name for image in item.images]  # hashes of their content
    content = json.dumps([item.messages, item.label, item.datasource, image_names])
    return hashlib.sha256(content.encode()).hexdigest()[:UID_DIGITS]
