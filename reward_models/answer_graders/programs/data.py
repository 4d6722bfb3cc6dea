"""`openrlhf-js data`: builds and checks prompt files whose answers can be verified."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import create_model

from answer_graders.programs import as_typed
from answer_graders.programs.console import progress, say, table
from answer_graders.programs.files import make_folder
from answer_graders.programs.settings import (
    NO_HINT,
    Field,
    Settings,
    SettingsError,
    choose,
    program,
)
from answer_graders.prompt_files import check, items, write
from answer_graders.record import GeneratedProblems, Task
from answer_graders.tasks import GRADERS, TASKS

PROG = "openrlhf-js data"
PROGRAMS = {
    "build": (f"{__name__}:build", "write the problems of a task as JSON lines"),
    "check": (f"{__name__}:check_files", "grade gold answers, find broken rows and repeats"),
}
SHOWN = 3  # problems of each kind


def main(argv: list[str] | None = None) -> int:
    """Runs `build` or `check` and returns the exit status."""
    return choose(PROG, PROGRAMS, sys.argv[1:] if argv is None else argv)


class BuildSettings(Settings):
    """Writes the problems of a task as JSON lines for training, and a manifest beside them."""

    out: Path = Field(description="folder that the file is written to")
    count: int | None = Field(
        None,
        ge=1,
        description="number of problems (default: all; of generated puzzles, the paper's number)",
    )
    seed: int = Field(
        0,
        description="random seed for generating problems, or for drawing --count of them from more",
    )
    name: str | None = Field(
        None, description="name of the file, without its ending (default: TASK-SPLIT)"
    )
    force: bool = Field(False, description="replace a file that exists")


def build(argv: list[str]) -> int:
    """`data build TASK`: the task's own options are flags too."""
    name = argv[0] if argv else "--help"
    if name not in TASKS:
        summaries = {task.name: ("", task.summary) for task in TASKS.values()}
        return choose(f"{PROG} build", summaries, argv, noun="task")
    task = TASKS[name]
    return program(f"{PROG} build {name}", task_settings(task), partial(_build, task), argv[1:])


def task_settings(task: Task) -> type[BuildSettings]:
    """The settings of a task: those of every task, its splits, and its own options."""
    problems = task.problems
    fields: dict[str, Any] = {
        "split": (Literal[problems.splits], Field(description="split of the problems"))
    }
    defaults = task.defaults()
    for name, option in problems.options.items():
        fields[name] = (option.type, Field(defaults[name], description=option.description))
    help_text = f"{task.summary}.\n\nA response is right if {task.right_if}."
    return create_model(task.name, __base__=BuildSettings, __doc__=help_text, **fields)


def _build(task: Task, settings: Any) -> None:
    path = settings.out / f"{settings.name or f'{task.name}-{settings.split}'}.jsonl"
    if path.exists() and not settings.force:
        raise SettingsError(f"{path} exists; --force replaces it, --name gives another")
    problems = task.problems
    options = {name: getattr(settings, name) for name in problems.options}
    if "images_dir" in task.defaults():
        options["images_dir"] = str(settings.out / "images")
    count = settings.count
    if isinstance(problems, GeneratedProblems):
        count = count or problems.default_counts[settings.split]
    make_folder(settings.out)
    with progress(f"building {path.name}", count) as bar:
        built = items(task, settings.split, count, settings.seed, options, bar.update)
        parameters = {
            "task": task.name,
            "split": settings.split,
            "count": count,
            "seed": settings.seed,
            **options,
        }
        manifest = write(path, task, built, parameters)
    source = options.get("source")
    if source and Path(source).is_file():
        say(f"note: {source} is taken whole: build no other split from it", error=True)
    _say_what_was_built(path, task, settings.split, manifest)


def _say_what_was_built(path: Path, task: Task, split: str, manifest: dict[str, Any]) -> None:
    """Prints what was written, and the commands that check it and train on it."""
    counts = [f"{name} {count:,}" for name, count in manifest["rows_by_datasource"].items()]
    file = shlex.quote(str(path))
    dataset_flag = "--data.prompt_dataset" if split == "train" else "--eval.dataset"
    reward = f"--reward.remote_url {shlex.quote(str(_reward_file(task.reward_file)))}"
    images = manifest["images_per_prompt"]
    if images:
        reward += f" --data.image_key images --data.max_images_per_prompt {images}"
    say(
        f"{manifest['rows']:,} rows  {path}\nby datasource: {', '.join(counts)}\n\n"
        f"  {as_typed(PROG)} check {file}\n  openrlhf-js train ... \\\n"
        f"    {dataset_flag} {file} \\\n"
        "    --data.input_key input --data.label_key label --data.apply_chat_template \\\n"
        f"    {reward}\n"
        f"Several files: commas between them, and {_reward_file('mixed.py')} if their tasks differ."
    )


def _reward_file(name: str) -> Path:
    """A reward file: the one in reward_models/ here, or else the package's."""
    path = Path("reward_models", name)
    return path if path.is_file() else GRADERS / name


class CheckSettings(Settings):
    """Grades every gold answer and a wrong one; finds broken rows and repeated prompts.

    The exit status is 0 if nothing is wrong, 1 if problems are found, 2 if a file cannot be used.
    """

    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], NO_HINT] = Field(
        description="prompt files, which are checked as one data set"
    )
    against: tuple[Path, ...] = Field(
        (), description="prompt files that must not share a prompt with these"
    )
    input_key: str = Field("input", description="column of the rows that holds the prompt")
    label_key: str = Field("label", description="column of the rows that holds the label")


def _check(settings: CheckSettings) -> int:
    with progress("checking") as bar:
        checked = check(
            settings.files,
            settings.against,
            input_key=settings.input_key,
            label_key=settings.label_key,
            progress=bar.update,
        )
    counts = sorted(checked.rows_by_datasource.items())
    table([{"datasource": datasource, "rows": count} for datasource, count in counts])
    for kind, problems in checked.problems.items():
        say(f"{len(problems):,} x {kind}, such as")
        for problem in problems[:SHOWN]:
            say(f"  {problem}")
    if checked.problems:
        return 1
    if not counts:
        raise ValueError(f"{', '.join(map(str, settings.files))}: no row to check")
    say("Nothing is wrong.")
    return 0


check_files = partial(program, f"{PROG} check", CheckSettings, _check)


if __name__ == "__main__":
    sys.exit(main())
