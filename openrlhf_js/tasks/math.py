r"""Mathematics: DAPO-17k to train on; MATH500, AIME and five others to test on; or your file.

The answer is in the last `\boxed{}` of a response, or without one in its last `<answer>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from openrlhf_js.tasks import base, hub
from openrlhf_js.tasks.answers import boxed_or_tagged
from openrlhf_js.tasks.base import Item, Message, Progress, Score
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.equivalence.labels import is_readable
from openrlhf_js.tasks.hub import Row, text

NAME = "math"
SPLITS: tuple[str, ...] = ("train", "test")

_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DOLLAR = re.compile(r"(?<!\\)\$")


class Layout(NamedTuple):
    """Where a data set is and how its rows become items."""

    hub_id: str | None
    config: str | None
    splits: Mapping[str, str]  # our split -> the data set's; a split that is not here is not there
    columns: tuple[str, ...]
    item: Callable[[Row], dict[str, Any]]  # "problem", "answer", and some "unit" and "tolerance"


def _plain(problem: str, answer: str) -> Callable[[Row], dict[str, Any]]:
    return lambda row: {"problem": text(row, problem), "answer": text(row, answer)}


def _numbered(problem: str, answer: str) -> Callable[[Row], dict[str, Any]]:
    """As `_plain`, where an answer may also be a number such as 27 or 27.0."""

    def item(row: Row) -> dict[str, Any]:
        gold = row[answer]
        if isinstance(gold, int | float | str):
            gold = str(gold).removesuffix(".0")
        return _plain(problem, answer)({**row, answer: gold})

    return item


def _olympiad(row: Row) -> dict[str, Any]:
    golds = [_DOLLAR.sub("", gold).strip() for gold in row["final_answer"]]
    extra = {"unit": row["unit"], "tolerance": row["error"]}
    return {
        "problem": text(row, "question"),
        "answer": golds if len(golds) > 1 or row["is_multiple_answer"] else golds[0],
        **{name: _DOLLAR.sub("", str(value)).strip() for name, value in extra.items() if value},
    }


_OLYMPIAD_COLUMNS = ("question", "final_answer", "is_multiple_answer", "unit", "error")
_TRAIN, _TEST = {"train": "train"}, {"test": "test"}

_DAPO = _plain("prompt", "solution")  # 17,917 distinct problems, as in the paper
_OWN = _plain("problem", "answer")

# fmt: off
DATASETS: dict[str, Layout] = {
    "dapo": Layout("open-r1/DAPO-Math-17k-Processed", "all", _TRAIN, ("prompt", "solution"), _DAPO),
    "math500": Layout("HuggingFaceH4/MATH-500", None, _TEST, ("problem", "answer"), _OWN),
    "amc23": Layout("math-ai/amc23", None, _TEST, ("question", "answer"),
                    _numbered("question", "answer")),
    "aime24": Layout("HuggingFaceH4/aime_2024", None, {"test": "train"}, ("problem", "answer"),
                     _numbered("problem", "answer")),
    "aime25": Layout("math-ai/aime25", None, _TEST, ("problem", "answer"),
                     _numbered("problem", "answer")),
    "hmmt_feb25": Layout("MathArena/hmmt_feb_2025", None, {"test": "train"}, ("problem", "answer"),
                         _numbered("problem", "answer")),
    "minerva": Layout("math-ai/minervamath", None, _TEST, ("question", "answer"),
                      _numbered("question", "answer")),
    "olympiadbench": Layout("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", {"test": "train"},
                            _OLYMPIAD_COLUMNS, _olympiad),
    "plain": Layout(None, None, {**_TRAIN, **_TEST}, ("problem", "answer"), _OWN),
}
# fmt: on


def load(
    split: str,
    source: str | None = None,
    dataset: str | None = None,
    *,
    progress: Progress = base.no_progress,
) -> Iterator[Item]:
    """The items of a data set, each problem once, in its order: `hub.distinct` says how.

    `dataset` is one of `DATASETS`, by default `dapo` to train and `math500` to test; `source` has
    its layout, by default its own hub id. An item has `problem`, `answer` (a list where several are
    asked for), `source` (the data set's name) and, from OlympiadBench, `unit` and `tolerance`.
    """
    options = used(split, source, dataset)
    place, name = options["source"], options["dataset"]
    layout = DATASETS[name]
    return hub.distinct(
        hub.rows(place, layout.splits[split], layout.columns, layout.config, progress),
        f"{name} ({place})",
        lambda row: {**layout.item(row), "source": name},
        lambda item: item["problem"],
        label,
    )


def used(split: str, source: str | None = None, dataset: str | None = None) -> dict[str, str]:
    """The options that `load` uses; ValueError if there is no such data set, split or source."""
    name = dataset or ("dapo" if split == "train" else "math500")
    layout = DATASETS.get(name)
    if layout is None or split not in layout.splits:
        offered = "; ".join(f"{each}: {', '.join(DATASETS[each].splits)}" for each in DATASETS)
        raise ValueError(f"no split {split!r} of dataset {name!r}; there are {offered}")
    place = source or layout.hub_id
    if place is None:
        raise ValueError(f"dataset {name!r} needs a source with {' and '.join(layout.columns)}")
    return {"source": place, "dataset": name}


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box; for several answers, all in one."""
    several = isinstance(item["answer"], list)
    wish = " Put all answers into one box, between commas." if several else ""
    return prompt_for(item["problem"], wish)


def prompt_for(problem: str, wish: str = "") -> list[Message]:
    r"""Messages that ask for step-by-step reasoning and an answer in `\boxed{}`."""
    ask = rf"Think it through step by step and give the final answer in \boxed{{}}.{wish}"
    return [
        {"role": "system", "content": r"Reason step by step and end with the answer in \boxed{}."},
        {"role": "user", "content": f"{problem}\n\n{ask}"},
    ]


def label(item: Item) -> str:
    """The gold answer as text; JSON with "answer" if there are several, a unit or a tolerance."""
    kept = {name: item[name] for name in ("answer", "unit", "tolerance") if name in item}
    alone = len(kept) == 1 and not isinstance(kept["answer"], list)
    made = kept["answer"] if alone else json.dumps(kept, ensure_ascii=False)
    grader.check_label(made)
    return made


def is_read(label: str) -> bool:
    """Whether our grammar reads every gold answer, so that other notations of it are recognised."""
    return is_readable(label)


answer_of = boxed_or_tagged


def score(response: str, label: str) -> Score:
    """Grades what `answer_of` finds."""
    return grader.grade(answer_of(response), label)


def right_response(label: str) -> str:
    """A response whose box holds the gold answer, or all of them."""
    return rf"The answer is \boxed{{{_gold(label)}}}."


def wrong_response(label: str) -> str:
    """A response whose box holds another number: the next one where the gold answer is whole."""
    gold = _gold(label)
    wrong = str(int(gold) + 1) if label == gold and _WHOLE.fullmatch(gold) else "-918273645.25"
    return rf"The answer is \boxed{{{wrong}}}."


def _gold(label: str) -> str:
    """The gold answer of a label, several of them between commas."""
    gold = json.loads(label)["answer"] if label.startswith('{"answer"') else label
    return gold if isinstance(gold, str) else ", ".join(gold)
