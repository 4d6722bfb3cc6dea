r"""Mathematics: DAPO-17k to train on; MATH500, AMC23 and OlympiadBench to test on; or your file.

The answer is what the last `\boxed{}` of a response holds. Training and test problems come from
different data sets; `openrlhf-js data check --against` finds those that are in both all the same.
A file of your own is divided into the two by the text of its problems.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.tasks import hub
from openrlhf_js.tasks.answers import last_boxed
from openrlhf_js.tasks.base import Item, Message, Score
from openrlhf_js.tasks.draws import split_of
from openrlhf_js.tasks.equivalence import grader

NAME = "math"
SPLITS = ("train", "test")

_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DOLLAR = re.compile(r"(?<!\\)\$")
# The instructions around each problem of the raw DAPO data: a paragraph before it and one after it.
_DAPO_WRAPPED = re.compile(r'[^\n]*\$Answer[^\n]*\n\n(.*)\n\n[^\n]*"Answer:"[^\n]*', re.DOTALL)


class Layout(NamedTuple):
    """Where a data set is and how its rows become items.

    Attributes:
        hub_id: on the hub; None if it has no place there.
        config: the hub's configuration, if it has several.
        splits: our split -> the data set's; a split that is not here does not exist.
        columns: what is read of a row.
        item: a row -> "problem", "answer" and, where there are, "unit" and "tolerance".
        problems: how many different ones to expect, if that is known; 17,917 is the paper's count.
    """

    hub_id: str | None
    config: str | None
    splits: Mapping[str, str]
    columns: tuple[str, ...]
    item: Callable[[hub.Row], dict[str, Any]]
    problems: int | None


def load(split: str, source: str | None = None, dataset: str | None = None) -> Iterator[Item]:
    """The items of a data set, each problem once, in its order: `hub.distinct` says how.

    Args:
        split: `train` or `test`.
        source: a file, folder or hub id in the layout of `dataset`, as `hub.rows` takes them; by
            default the data set's own hub id.
        dataset: one of `DATASETS`; by default `dapo` to train and `math500` to test. `plain` is
            data of your own, with columns `problem` and `answer`. A single file of it is divided by
            the text of each problem, so that none is in both splits; a folder has its own splits.

    Returns:
        Items of `problem`, `answer`, `source` (the data set's name) and, where OlympiadBench has
        them, `unit` and `tolerance`; a list of answers where all of them are asked for.

    Raises:
        ValueError: there is no such data set or split, or the source is not of its layout.
    """
    options = used(split, source, dataset)
    place, name = options["source"], options["dataset"]
    layout = DATASETS[name]
    found = hub.distinct(
        _rows(place, layout.splits[split], name),
        f"{name} ({place})",
        lambda row: {**layout.item(row), "source": name},
        lambda item: item["problem"],
        _label,
        layout.problems,
    )
    divided = name == "plain" and Path(place).expanduser().is_file()
    return _part(found, split, place) if divided else found


def used(split: str, source: str | None = None, dataset: str | None = None) -> dict[str, str]:
    """The options that `load` uses: those given, and its choice where none is.

    Raises:
        ValueError: there is no such data set or split, or it needs a source.
    """
    name = dataset or ("dapo" if split == "train" else "math500")
    layout = DATASETS.get(name)
    if layout is None or split not in layout.splits:
        offered = "; ".join(f"{each}: {', '.join(DATASETS[each].splits)}" for each in DATASETS)
        raise ValueError(f"no split {split!r} of dataset {name!r}; there are {offered}")
    place = source or layout.hub_id
    if place is None:
        raise ValueError(
            f"dataset {name!r} needs a source: a file with {' and '.join(layout.columns)}"
        )
    return {"source": place, "dataset": name}


def _part(found: Iterator[Item], split: str, place: str) -> Iterator[Item]:
    """The problems of a file that its text puts into the split."""
    number = taken = 0
    for item in found:
        number += 1
        if split_of(f"{NAME} {hub.canonical(item['problem'])}") == split:
            taken += 1
            yield item
    own = "a folder with train.jsonl and test.jsonl keeps its own splits"
    if number and not taken:
        raise ValueError(f"{place} has no problem in its {split} part, of {number:,}; {own}")
    warnings.warn(
        f"{place}: its {split} part, {taken:,} of {number:,} problems; {own}", stacklevel=2
    )


def _rows(place: str, split: str, name: str) -> Iterator[hub.Row]:
    try:
        yield from hub.rows(place, split, DATASETS[name].columns, DATASETS[name].config)
    except hub.MissingColumns as error:
        layouts = "; ".join(f"{each}: {', '.join(DATASETS[each].columns)}" for each in DATASETS)
        raise ValueError(
            f"{error}. It was read as dataset {name!r}; the layouts are {layouts}"
        ) from None


def _dapo_raw(row: hub.Row) -> dict[str, Any]:
    try:
        (message,) = row["prompt"]
        content, answer = message["content"].strip(), row["reward_model"]["ground_truth"]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("must have one message in prompt, and reward_model.ground_truth") from None
    wrapped = _DAPO_WRAPPED.fullmatch(content)
    problem = wrapped[1] if wrapped else content
    if "$Answer" in problem or '"Answer:"' in problem:
        raise ValueError(f"cannot take DAPO's instructions off the prompt {content!r:.120}")
    taken = {"problem": problem, "answer": answer}
    return {column: hub.text(taken, column) for column in taken}


def _amc23(row: hub.Row) -> dict[str, Any]:
    if isinstance(row["answer"], int | float):
        row = {**row, "answer": str(row["answer"])}
    answer = hub.text(row, "answer").removesuffix(".0")
    return {"problem": hub.text(row, "question"), "answer": answer}


def _olympiad(row: hub.Row) -> dict[str, Any]:
    golds = row["final_answer"]
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ValueError(f"final_answer must be a list of texts, not {golds!r:.80}")
    golds = [_DOLLAR.sub("", gold).strip() for gold in golds]
    if row["is_multiple_answer"]:
        golds = [part for gold in golds for part in _parts(gold)]
    extra = {"unit": row["unit"], "tolerance": row["error"]}
    return {
        "problem": hub.text(row, "question"),
        "answer": golds[0] if len(golds) == 1 else golds,
        **{name: _DOLLAR.sub("", str(value)).strip() for name, value in extra.items() if value},
    }


def _parts(gold: str) -> list[str]:
    """What commas outside all brackets separate: `(1, 2), 3` has two parts."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(gold):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(gold[start:i].strip())
            start = i + 1
    return [*parts, gold[start:].strip()]


def _columns(problem: str, answer: str) -> Callable[[hub.Row], dict[str, Any]]:
    return lambda row: {"problem": hub.text(row, problem), "answer": hub.text(row, answer)}


_OLYMPIAD_COLUMNS = ("question", "final_answer", "is_multiple_answer", "unit", "error")
_TRAIN, _TEST = {"train": "train"}, {"test": "test"}

# fmt: off
DATASETS: dict[str, Layout] = {
    "dapo": Layout("open-r1/DAPO-Math-17k-Processed", "all", _TRAIN,
                   ("prompt", "solution"), _columns("prompt", "solution"), 17_917),
    "dapo_raw": Layout("BytedTsinghua-SIA/DAPO-Math-17k", None, _TRAIN,
                       ("prompt", "reward_model"), _dapo_raw, 17_917),
    "math500": Layout("HuggingFaceH4/MATH-500", None, _TEST,
                      ("problem", "answer"), _columns("problem", "answer"), 500),
    "amc23": Layout("math-ai/amc23", None, _TEST, ("question", "answer"), _amc23, 40),
    "olympiadbench": Layout("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", {"test": "train"},
                            _OLYMPIAD_COLUMNS, _olympiad, None),
    "plain": Layout(None, None, {**_TRAIN, **_TEST},
                    ("problem", "answer"), _columns("problem", "answer"), None),
}
# fmt: on


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
    """The gold answer as text; JSON with "answer" where there are several, a unit or a tolerance.

    Raises:
        ValueError: the gold answer cannot be read.
    """
    made = _label(item)
    try:
        grader.check_label(made)
    except ValueError as error:
        raise ValueError(f"{error} (problem {item['problem']!r:.80})") from None
    return made


def _label(item: Item) -> str:
    kept = {name: item[name] for name in ("answer", "unit", "tolerance") if name in item}
    golds = kept["answer"] if isinstance(kept["answer"], list) else [kept["answer"]]
    if not golds or not all(isinstance(gold, str) and gold.strip() for gold in golds):
        raise ValueError(f"the answer must be text or a list of texts, not {kept['answer']!r:.80}")
    if len(kept) == 1 and isinstance(kept["answer"], str):
        return kept["answer"]
    return json.dumps(kept, ensure_ascii=False)


def score(response: str, label: str) -> Score:
    """Grades what the response's last box holds."""
    return grader.grade(last_boxed(response), label)


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
