r"""Mathematics: DAPO-17k to train on; MATH500, AMC23 and OlympiadBench to test on; or your file.

The answer is what the last `\boxed{}` of a response holds. Training and test problems come from
different data sets; `openrlhf-js data check --against` finds those that are in both all the same.
Files of your own whose names say neither train nor test are divided by the text of each problem.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from openrlhf_js.tasks import hub
from openrlhf_js.tasks.answers import last_boxed
from openrlhf_js.tasks.base import Item, Message, Score
from openrlhf_js.tasks.draws import split_of
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.files import MissingColumns, Row
from openrlhf_js.tasks.math_data import DATASETS
from openrlhf_js.tasks.problems import canonical, distinct

NAME = "math"
SPLITS: tuple[str, ...] = ("train", "test")

_WHOLE = re.compile(r"-?[0-9]{1,30}")


def load(
    split: str,
    source: str | None = None,
    dataset: str | None = None,
    *,
    progress: hub.Progress = hub.unseen,
) -> Iterator[Item]:
    """The items of a data set, each problem once, in its order: `problems.distinct` says how.

    Args:
        split: `train` or `test`.
        source: a file, folder or hub id in the layout of `dataset`, as `hub.rows` takes them; by
            default the data set's own hub id.
        dataset: one of `DATASETS`; by default `dapo` to train and `math500` to test. `plain` is
            data of your own, with columns `problem` and `answer`. Where file names do not say which
            split they are, it is divided by the text of each problem, so that none is in both.
        progress: as `hub.rows` calls it.

    Returns:
        Items of `problem`, `answer`, `source` (the data set's name) and, where OlympiadBench has
        them, `unit` and `tolerance`; a list of answers where all of them are asked for.

    Raises:
        ValueError: there is no such data set or split, or the source is not of its layout.
    """
    options = used(split, source, dataset)
    place, name = options["source"], options["dataset"]
    layout = DATASETS[name]
    # A file is all there is of a data set with one split, whatever its name says.
    alone = len(layout.splits) == 1 and Path(place).expanduser().is_file()
    own = hub.has_splits(place, layout.config) and not alone
    found = distinct(
        _rows(place, layout.splits[split] if own else None, name, progress),
        f"{name} ({place})",
        lambda row: {**layout.item(row), "source": name},
        lambda item: item["problem"],
        _label,
        layout.problems,
    )
    return found if own or len(layout.splits) == 1 else _part(found, split, place)


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
    """The problems whose text puts them into the split."""
    number = taken = 0
    for item in found:
        number += 1
        if split_of(f"{NAME} {canonical(item['problem'])}") == split:
            taken += 1
            yield item
    own = "files with train or test in their names are taken whole"
    if number and not taken:
        raise ValueError(f"{place} has no problem in its {split} part, of {number:,}; {own}")
    warnings.warn(
        f"{place}: its {split} part, {taken:,} of {number:,} problems; {own}", stacklevel=2
    )


def _rows(place: str, split: str | None, name: str, progress: hub.Progress) -> Iterator[Row]:
    try:
        yield from hub.rows(place, split, DATASETS[name].columns, DATASETS[name].config, progress)
    except MissingColumns as error:
        layouts = "; ".join(f"{each}: {', '.join(DATASETS[each].columns)}" for each in DATASETS)
        raise ValueError(
            f"{error}. It was read as dataset {name!r}; the layouts are {layouts}"
        ) from None


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
