"""What `openrlhf-js data` shows."""

from __future__ import annotations

import shlex
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from openrlhf_js.cli.saying import say, visible
from openrlhf_js.data.chat_template import ChatTemplate
from openrlhf_js.data.check import Report
from openrlhf_js.data.reading import Example, size_of
from openrlhf_js.data.writing import manifest_path
from openrlhf_js.tasks.base import Task

KINDS = {  # of problems: what they are called, one and many
    "no row": "line that is no row",
    "graded wrongly": "answer that is graded wrongly",
    "no prompt": "prompt that cannot be made",
    "too long": "prompt that is too long",
    "image": "image that is missing or too many",
    "duplicate": "duplicate prompt",
    "overlap": "prompt that another file has too",
}


def built(console: Console, path: Path, task: Task, split: str, manifest: dict[str, Any]) -> None:
    """What was written, and how to go on."""
    by_source = ", ".join(
        f"{name} {count:,}" for name, count in manifest["rows_by_datasource"].items()
    )
    file = shlex.quote(str(path))
    use = ["--data.prompt_dataset", file] if split == "train" else ["--eval.dataset", file]
    flags = [
        " ".join(use),
        "--data.input_key input --data.label_key label --data.apply_chat_template",
        f"--reward.remote_url reward_models/{task.NAME}.py",
    ]
    if images := manifest["images_per_prompt"]:
        flags.append(f"--data.image_key images --data.max_images_per_prompt {images}")
    say(
        console,
        f"{_rows(manifest['rows'])}  {path}\n"
        f"by datasource: {by_source}\n"
        f"made from what {manifest_path(path)} says\n\n"
        f"Check it with your model's tokenizer:\n"
        f"  openrlhf-js data check {file} --tokenizer MODEL\n"
        f"{'Train on' if split == 'train' else 'Evaluate with'} it:\n"
        "  openrlhf-js train ... \\\n"
        + " \\\n".join(f"    {flag}" for flag in flags)
        + "\nSeveral files: commas between them, and reward_models/mixed.py if their tasks differ.",
    )


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def report(console: Console, found: Report, with_tokens: bool, with_overlap: bool) -> None:
    """A table by datasource, and the first problems of each kind."""
    columns = ["items", "gold\nright", "wrong\nrefused"]
    columns += ["tokens,\nmedian", "tokens,\nmost"] if with_tokens else []
    columns += ["repeated"] + (["overlap"] if with_overlap else [])
    table = Table("datasource", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.columns[0].overflow = "fold"
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, tally in sorted(found.tallies.items()):
        figures = [tally.items, tally.gold_right, tally.wrong_refused]
        if with_tokens:
            figures += [round(median(tally.tokens or [0])), max(tally.tokens, default=0)]
        figures += [tally.duplicates] + ([tally.overlap] if with_overlap else [])
        table.add_row(Text(visible(name)), *(f"{figure:,}" for figure in figures))
    if found.tallies:
        console.print(table)
        console.print()
    for kind, problems in found.problems.items():
        count = found.counts[kind]
        say(console, f"{count:,} x {KINDS[kind]}:", "bold")
        for problem in problems:
            say(console, f"  {problem}".replace("\n", "\\n"))
        if count > len(problems):
            say(console, f"  ... and {count - len(problems):,} more")
    if not found.counts:
        rows = sum(tally.items for tally in found.tallies.values())
        say(
            console, f"Nothing is wrong with {'this row' if rows == 1 else f'these {rows:,} rows'}."
        )


def example(console: Console, shown: Example, template: ChatTemplate | None) -> None:
    """An example as the model will see it, and how a right and a wrong answer score."""
    if template:
        _block(console, "prompt, as the chat template makes it", template.text(shown))
    else:
        for message in shown.messages:
            _block(console, message["role"], message["content"])
    for image in shown.images:
        try:
            width, height = size_of(image)
            say(console, f"image {image}: {width} x {height} pixels")
        except ValueError as error:
            say(console, str(error), "red")
    _block(console, "label", shown.label)
    for kind, response_to in (
        ("right", shown.task.right_response),
        ("wrong", shown.task.wrong_response),
    ):
        response = response_to(shown.label)
        score = shown.task.score(response, shown.label)
        title = f"a {kind} answer scores {score.value:g}: {score.status}, {score.detail}"
        _block(console, title, response)


def _block(console: Console, title: str, text: str) -> None:
    console.print(Text(visible(title).replace("\n", "\\n"), "bold"))
    for line in Text(visible(text)).wrap(console, max(20, console.width - 2)):
        console.print(Text(f"  {line.plain}".rstrip()), soft_wrap=True)
    console.print()


def heading(console: Console, path: Path, number: int, name: str) -> None:
    """A line across, with the place of an example."""
    console.print(Rule(Text(visible(f"{path}:{number}  {name}")), align="left"))
