"""`openrlhf-js data`: builds, checks and shows prompt files whose answers can be verified."""

from __future__ import annotations

import inspect
import shlex
import sys
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import tyro
from pydantic import create_model

from openrlhf_js.common.console import progress, say, table
from openrlhf_js.common.settings import Field, Settings, SettingsError, choose, parse, run
from openrlhf_js.sampling.models import PYTHON, model_folder
from openrlhf_js.sampling.settings import TRUSTED
from openrlhf_js.tasks import TASKS
from openrlhf_js.tasks.base import Generated, Loaded, Split, Wording
from openrlhf_js.tasks.check import ChatTemplate, check
from openrlhf_js.tasks.prompt_files import Example, items, options_of, read, write

PROG, CHECK, SHOW = "openrlhf-js data", "openrlhf-js data check", "openrlhf-js data show"
SHOWN = 3  # problems of a kind
COUNTS = {  # as many problems as the paper's
    "countdown": {"train": 20_000, "test": 200},
    "knights_knaves": {"train": 30_000, "test": 300},
    "maze": {"train": 20_000, "test": 200},
}
NUMBERS, PAIR, TEXT = tuple[int, ...], tuple[int, int], str | None
OPTIONS: dict[str, tuple[Any, str]] = {  # of the tasks
    "dataset": (
        TEXT,
        "default: dapo to train, math500 to test; also amc23, olympiadbench, or plain: your own "
        "--source with columns problem and answer, a file for each split",
    ),
    "images_dir": (TEXT, "folder of the figures (default: images, in --out)"),
    "largest": (int, "the largest number that may be given"),
    "lengths": (NUMBERS, "moves of the shortest way, equally many mazes of each"),
    "numbers": (NUMBERS, "how many numbers a problem has, equally many problems of each"),
    "people": (NUMBERS, "how many people, equally many puzzles of each; the paper: also 6 7 8"),
    "size": (int, "rows and columns, walls included"),
    "source": (TEXT, "hub id, its downloaded folder, or a file, which is taken whole"),
    "wording": (Wording, "of the prompts: our own, or the paper's"),
    "targets": (PAIR, "the smallest and the largest target"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs `build`, `check` or `show` and returns the exit status."""
    programs = {
        "build": (f"{__name__}:build", "write the problems of a task as JSON lines"),
        "check": (f"{__name__}:check_files", "grade gold answers, measure and compare prompts"),
        "show": (f"{__name__}:show", "print items as the model sees them, and how answers score"),
    }
    return choose(PROG, programs, sys.argv[1:] if argv is None else argv)


class BuildSettings(Settings):
    """Writes the problems of a task as JSON lines for training, and a manifest beside them."""

    out: Path = Field(description="folder of the file")
    count: int | None = Field(None, ge=1, description="default: all; of puzzles, as in the paper")
    seed: int = Field(0, description="of what is generated, or drawn where the data has more")
    name: str | None = Field(None, description="of the file (default: TASK-SPLIT)")
    force: bool = Field(False, description="replace an existing file")


def build(argv: list[str]) -> int:
    """`data build TASK`: the task's own options are flags too."""
    name = argv[0] if argv else "--help"
    if name not in TASKS:
        about = {each: (inspect.getdoc(TASKS[each]) or "").partition(".")[0] for each in TASKS}
        return choose(f"{PROG} build", {each: ("", text) for each, text in about.items()}, argv)
    task, prog = TASKS[name], f"{PROG} build {name}"
    return run(prog, lambda: _build(task, parse(_settings_of(task), prog, argv[1:])))


def _settings_of(task: Generated | Loaded) -> type[BuildSettings]:
    """The settings of a task: its splits, and its own options."""
    splits = get_args(Split) if isinstance(task, Generated) else task.SPLITS
    split = Field(description="part of the problems")
    fields: dict[str, Any] = {"split": (Literal[tuple(splits)], split)}
    for option, default in options_of(task).items():
        kind, text = OPTIONS[option]
        default = None if option == "images_dir" else default
        fields[option] = (kind, Field(default, description=text))
    return create_model(task.NAME, __base__=BuildSettings, __doc__=task.__doc__, **fields)


def _build(task: Generated | Loaded, settings: Any) -> None:
    own = {name: getattr(settings, name) for name in options_of(task)}
    path = settings.out / f"{settings.name or f'{task.NAME}-{settings.split}'}.jsonl"
    if path.exists() and not settings.force:
        raise SettingsError(f"{path} exists; --force replaces it, --name gives another")
    if "images_dir" in own:
        own["images_dir"] = own["images_dir"] or str(settings.out / "images")
    count, split, total = settings.count, settings.split, None
    if isinstance(task, Loaded):
        own = task.used(split, **own)
    elif not own.get("source"):
        count = total = count or COUNTS[task.NAME][split]
    parameters = {"task": task.NAME, "split": split, "count": count, "seed": settings.seed}
    settings.out.mkdir(parents=True, exist_ok=True)
    with progress(f"building {path.name}", total) as bar:
        found = items(task, split, count, settings.seed, own, bar.update)
        manifest = write(path, task, found, {**parameters, **own})
    if Path(source := own.get("source") or "").is_file():
        say(f"note: {source} is taken whole: build no other split from it", error=True)
    _built(path, task, split, manifest)


def _built(path: Path, task: Generated | Loaded, split: str, manifest: dict[str, Any]) -> None:
    """What was written, and what to do with it."""
    sources = (f"{name} {count:,}" for name, count in manifest["rows_by_datasource"].items())
    file, images = shlex.quote(str(path)), manifest["images_per_prompt"]
    figures = f" --data.image_key images --data.max_images_per_prompt {images}" if images else ""
    say(
        f"{manifest['rows']:,} rows  {path}\nby datasource: {', '.join(sources)}\n\n"
        f"  openrlhf-js data check {file} --tokenizer MODEL\n  openrlhf-js train ... \\\n"
        f"    {'--data.prompt_dataset' if split == 'train' else '--eval.dataset'} {file} \\\n"
        "    --data.input_key input --data.label_key label --data.apply_chat_template \\\n"
        f"    --reward.remote_url reward_models/{task.NAME}.py{figures}\n"
        "Several files: commas between them, and reward_models/mixed.py if their tasks differ."
    )


class ReadSettings(Settings):
    """What every program takes that reads prompt files."""

    tokenizer: str | None = Field(None, description="model folder or hub id with a chat template")
    input_key: str = Field("input", description="column of the prompt")
    label_key: str = Field("label", description="column of the label")
    trust_remote_code: bool = Field(False, description=TRUSTED)


def _template(settings: ReadSettings) -> ChatTemplate | None:
    name, trust = settings.tokenizer, settings.trust_remote_code
    if name is None:
        return None
    files = ["*.json", "*.jinja", "*.txt", "*.model", PYTHON]  # no weights
    return ChatTemplate(model_folder(name, trust, allow_patterns=files), trust)


class CheckSettings(ReadSettings):
    """Grades every gold answer and a wrong one; finds prompts that are too long or repeated.

    The exit status is 0 if nothing is wrong, 1 if problems are found, 2 if a file cannot be used.
    """

    files: tyro.conf.Positional[tuple[Path, ...]] = Field(description="checked as one data set")
    against: tuple[Path, ...] = Field((), description="files that may share no prompt with them")
    prompt_max_len: int = Field(1024, ge=1, description="tokens that a prompt may take")


def _check(settings: CheckSettings) -> int:
    every = [*settings.files, *settings.against]
    size = sum(path.stat().st_size for path in every)
    options: dict[str, Any] = {"max_tokens": settings.prompt_max_len}
    if template := _template(settings):
        options["count_tokens"] = template.tokens
    keys = settings.input_key, settings.label_key
    with progress("checking", size, "bytes") as bar:
        found = check(settings.files, settings.against, keys, progress=bar.update, **options)
    table(found.rows())
    for kind, problems in found.problems.items():
        say("\n  ".join([f"{len(problems):,} x {kind}, such as", *problems[:SHOWN]]))
    if not found.problems:
        say("Nothing is wrong.")
    return 1 if found.problems else 0


class ShowSettings(ReadSettings):
    """Prints items as the model will see them, and how a right and a wrong answer to them score."""

    file: tyro.conf.Positional[Path] = Field(description="a prompt file")
    count: int = Field(3, ge=1, description="how many items")


def _show(settings: ShowSettings) -> int:
    lines = read(settings.file, settings.input_key, settings.label_key)
    template = _template(settings)
    for line in islice(lines, settings.count):
        say(f"\n--- {line.place}", style="bold")
        if isinstance(line.example, ValueError):
            raise line.example
        _show_example(line.example, template)
    return 0


def _show_example(shown: Example, template: ChatTemplate | None) -> None:
    if template:
        _block("prompt, as the chat template makes it", template.text(shown))
    for message in [] if template else shown.messages:
        _block(message["role"], message["content"])
    for image in shown.images:
        say(f"image {image}")
    _block(f"label ({shown.datasource})", shown.label)
    for kind in ("right", "wrong"):
        response = getattr(shown.task, f"{kind}_response")(shown.label)
        score = shown.task.score(response, shown.label)
        _block(f"a {kind} answer scores {score.value:g}: {score.status}, {score.detail}", response)


def _block(title: str, text: str) -> None:
    say(title.replace("\n", "\\n"), style="bold")
    say("\n".join(f"  {line}" for line in text.splitlines()))


def check_files(argv: list[str]) -> int:
    """`data check`."""
    return run(CHECK, lambda: _check(parse(CheckSettings, CHECK, argv)))


def show(argv: list[str]) -> int:
    """`data show`."""
    return run(SHOW, lambda: _show(parse(ShowSettings, SHOW, argv)))


if __name__ == "__main__":
    sys.exit(main())
