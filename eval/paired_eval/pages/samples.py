"""The page of pass@k's samples: every problem with a square for each response, and its text.

One file that opens offline. It holds a row for each problem and, separately, the texts, which a
browser reads only when they are shown: a page of thousands of problems opens at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders.programs.console import progress
from answer_graders.programs.files import atomic_write
from answer_graders.programs.store import read_store
from answer_graders.thinking import after_thinking
from paired_eval.pages.pages import embedded, render, script_of
from paired_eval.pages.passk import PasskRun, Table
from paired_eval.pages.text import beginning
from paired_eval.passk.evaluate import UNGRADED
from paired_eval.passk.grading import NOT_VOTING
from paired_eval.passk.summary import FILE as RESULTS
from paired_eval.sampling.complete import ITEMS, Sample

FILE = "samples.html"
LONGEST_TEXT = 20_000  # characters of a response; a longer one loses its middle
LONGEST_PAGE = 64_000_000  # characters of all responses: if they are many, each loses more
SHORTEST_TEXT = 400
PROMPT_CHARACTERS = 160  # of a row
GOLD_CHARACTERS = 80

Item = Mapping[str, Any]  # of samples/NAME.items.jsonl: what was asked


class ResponseKind(NamedTuple):
    """A kind of response: the class of its square, its sign and its meaning."""

    name: str
    sign: str
    meaning: str


RIGHT = ResponseKind("right", "\N{CHECK MARK}", "right")
WRONG = ResponseKind("wrong", "\N{MULTIPLICATION SIGN}", "wrong")
NO_ANSWER = ResponseKind("none", "\N{EN DASH}", "no readable answer")
CUT_OFF = ResponseKind("cut", "\N{HORIZONTAL ELLIPSIS}", "cut off")
NOT_GRADED = ResponseKind("ungraded", "?", "not graded, counts as not right")
MASKED = ResponseKind("masked", "\N{EMPTY SET}", "masked: refused, in no figure")
KINDS = (RIGHT, WRONG, NO_ANSWER, CUT_OFF, NOT_GRADED, MASKED)


class ShownResponse(NamedTuple):
    """A response as the page shows it; no text is longer than the page allows."""

    kind: ResponseKind
    status: str
    tokens: int | None
    answer: str  # as it was extracted
    graded: str  # the part of the text that was graded
    thinking: str  # the part that was not
    refusal: str  # the endpoint's words


class LegendRow(NamedTuple):
    """A kind of responses, and how many of them each run has."""

    kind: ResponseKind
    counts: list[int]


def write(runs: Sequence[PasskRun], figures: Table, path: Path) -> bool:
    """Writes the page about one run, or several on the same problems, with a table of figures.

    Returns False, and writes nothing, where the samples are no longer beside the results.
    """
    files = [run.samples_file(task) for run in runs for task in run.results["tasks"]]
    if not all(file.is_file() and file.with_suffix(ITEMS).is_file() for file in files):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(page(runs, figures).encode(errors="replace"))
    return True


def page(runs: Sequence[PasskRun], figures: Table) -> str:
    """The page's HTML."""
    tasks = list(runs[0].results["tasks"])
    counts: list[Counter[ResponseKind]] = [Counter() for _ in runs]
    rows = []
    texts = []
    for number, task in enumerate(tasks):
        for item, groups in _problems(runs, task):
            for count, group in zip(counts, groups, strict=True):
                count.update(response.kind for response in group)
            rows.append(_row(number, item, groups))
            texts.append(embedded(_texts(item, groups)))
    data = {
        "runs": [run.label for run in runs],
        "tasks": tasks,
        "kinds": {kind.name: [kind.sign, kind.meaning] for kind in KINDS},
        "problems": rows,
    }
    return render(
        "samples.html",
        title=f"Samples of {_names(runs)}",
        runs=runs,
        tasks=tasks,
        figures=figures,
        legend=_legend(counts),
        data=embedded(data),
        texts=texts,
        longest=_longest_text(runs),
        script=script_of("samples.js"),
    )


def _names(runs: Sequence[PasskRun]) -> str:
    if len(runs) == 1:
        return str(runs[0].results["model"])
    return " and ".join(run.label for run in runs)


def _legend(counts: Sequence[Counter[ResponseKind]]) -> list[LegendRow]:
    """The kinds that occur, with their numbers."""
    rows = [LegendRow(kind, [count[kind] for count in counts]) for kind in KINDS]
    return [row for row in rows if any(row.counts)]


def _longest_text(runs: Sequence[PasskRun]) -> int:
    """How many characters of an answer, or of the thinking before it, the page has room for."""
    texts = 0
    for run in runs:
        for task in run.results["tasks"].values():
            texts += 2 * sum(task["per_item"]["answered"])
    return max(SHORTEST_TEXT, min(LONGEST_TEXT, LONGEST_PAGE // texts))


def _problems(
    runs: Sequence[PasskRun], task: str
) -> Iterator[tuple[Item, list[list[ShownResponse]]]]:
    """The problems of a task that the results of all runs count, with the responses of each run."""
    longest = _longest_text(runs)
    responses = [_responses(run, task, longest) for run in runs]
    for item in _items(runs[0], task):
        uid = item["uid"]
        if all(uid in of_run for of_run in responses):
            yield item, [of_run[uid] for of_run in responses]


def _items(run: PasskRun, task: str) -> list[Item]:
    file = run.samples_file(task).with_suffix(ITEMS)
    items = {}
    for line in file.read_bytes().split(b"\n"):
        if line:
            item = json.loads(line)
            items[item["uid"]] = item
    return [items[uid] for uid in run.results["tasks"][task]["per_item"]["uid"]]


def _responses(run: PasskRun, task: str, longest: int) -> dict[str, list[ShownResponse]]:
    """A run's responses to each problem that its results count, by uid.

    Each is cut as it is read, to save memory. ValueError if the store has fewer responses than the
    results count.
    """
    file = run.samples_file(task)
    responses = {}
    _, records = read_store(file)
    with progress(f"reading {file.name}", unit="responses") as bar:
        for record in records:
            sample = Sample.of(record)
            responses[sample.uid, sample.draw] = _response(sample, longest)
            bar.advance()
    results = run.results["tasks"][task]
    per_item = results["per_item"]
    by_uid = {}
    for uid, answered in zip(per_item["uid"], per_item["answered"], strict=True):
        keys = [(uid, draw) for draw in range(results["samples"])]
        shown = [responses[key] for key in keys if key in responses]
        if sum(response.kind != MASKED for response in shown) < answered:
            raise ValueError(
                f"{file} lacks responses that {run.folder / RESULTS} counts: the command that "
                "made these results makes them anew"
            )
        by_uid[uid] = shown
    return by_uid


def _response(sample: Sample, longest: int) -> ShownResponse:
    graded = after_thinking(sample.text)
    thoughts = sample.text[: len(sample.text) - len(graded)]
    return ShownResponse(
        kind=_kind(sample),
        status=sample.status,
        tokens=sample.tokens,
        answer=sample.answer or "",
        graded=_cut(graded.strip(), longest),
        thinking=_cut(sample.thinking + thoughts, longest),
        refusal=_cut(sample.refused or "", longest),
    )


def _kind(sample: Sample) -> ResponseKind:
    if sample.refused is not None:
        return MASKED
    if sample.status == "correct":
        return RIGHT
    if sample.status in UNGRADED:
        return NOT_GRADED
    if sample.finish_reason == "length":
        return CUT_OFF
    return NO_ANSWER if sample.status in NOT_VOTING else WRONG


def _cut(text: str, longest: int) -> str:
    """The text, or its start and end with a note between them of how much is left out."""
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    start = longest // 3
    note = f"\n\n[{left_out:,} characters are left out here]\n\n"
    return text[:start] + note + text[start + left_out :]


def _row(task: int, item: Item, groups: Sequence[Sequence[ShownResponse]]) -> dict[str, Any]:
    """What the page shows of a problem before it is opened."""
    return {
        "task": task,
        "prompt": beginning(item["messages"][-1]["content"], PROMPT_CHARACTERS),
        "gold": beginning(item["label"], GOLD_CHARACTERS),
        "kinds": [[response.kind.name for response in group] for group in groups],
        "statuses": [[response.status for response in group] for group in groups],
        "tokens": [[response.tokens for response in group] for group in groups],
    }


def _texts(item: Item, groups: Sequence[Sequence[ShownResponse]]) -> list[Any]:
    """What the page shows of an opened problem; a filter searches it, so fields have no names."""
    prompts = [message["content"] for message in item["messages"]]
    return [
        _cut("\n\n".join(prompts), LONGEST_TEXT),
        _cut(item["label"], LONGEST_TEXT),
        item["images"],
        [
            [
                [response.answer, response.graded, response.thinking, response.refusal]
                for response in group
            ]
            for group in groups
        ],
    ]
