r"""Mathematics: DAPO-17k to train on; MATH500, AIME and five others to test on; or your file.

The answer is in the last `\boxed{}` of a response, or in its last `<answer>` if there is no box.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from answer_graders import hub
from answer_graders.answers import boxed_or_tagged
from answer_graders.hub import Row, gold_text, text
from answer_graders.math import grader
from answer_graders.math.grader import is_readable
from answer_graders.record import (
    SOURCE,
    BenchmarkRecord,
    Item,
    Message,
    Option,
    PublishedProblems,
    Score,
    Task,
    with_text_label,
)

NAME = "math"
SPLITS: tuple[str, ...] = ("train", "test")

_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DOLLAR = re.compile(r"(?<!\\)\$")


class Layout(NamedTuple):
    """Where a data set is and how its rows become items."""

    hub_id: str | None
    splits: Mapping[str, str]  # our split -> the data set's; other splits do not exist
    columns: tuple[str, ...] = ("problem", "answer")
    config: str | None = None


_TRAIN = {"train": "train"}
_TEST = {"test": "test"}
_TEST_IN_TRAIN = {"test": "train"}
_QUESTION = ("question", "answer")
_OLYMPIAD = ("question", "final_answer", "is_multiple_answer", "unit", "error")

DATASETS = {
    # 17,917 distinct problems, as in the paper
    "dapo": Layout("open-r1/DAPO-Math-17k-Processed", _TRAIN, ("prompt", "solution"), "all"),
    "math500": Layout("HuggingFaceH4/MATH-500", _TEST),
    "amc23": Layout("math-ai/amc23", _TEST, _QUESTION),
    "aime24": Layout("HuggingFaceH4/aime_2024", _TEST_IN_TRAIN),
    "aime25": Layout("math-ai/aime25", _TEST),
    "hmmt_feb25": Layout("MathArena/hmmt_feb_2025", _TEST_IN_TRAIN),
    "minerva": Layout("math-ai/minervamath", _TEST, _QUESTION),
    "olympiadbench": Layout(
        "Hothan/OlympiadBench", _TEST_IN_TRAIN, _OLYMPIAD, "OE_TO_maths_en_COMP"
    ),
    "plain": Layout(None, _TRAIN | _TEST),
}


def load(split: str, source: str | None = None, dataset: str | None = None) -> Iterator[Item]:
    """The items of a data set, each problem once, in the order of the data set: see `hub.distinct`.

    `dataset` is one of `DATASETS`, by default `dapo` to train and `math500` to test; `source` must
    have its layout and is by default its hub id. An item has `problem`, `answer` (a list if several
    are asked for), `source` (the data set's name) and, from OlympiadBench, `unit` and `tolerance`.
    ValueError if there is no such data set, split or source.
    """
    name = dataset or ("dapo" if split == "train" else "math500")
    layout = DATASETS.get(name)
    if layout is None or split not in layout.splits:
        offered = "; ".join(f"{known}: {', '.join(DATASETS[known].splits)}" for known in DATASETS)
        raise ValueError(f"no split {split!r} of dataset {name!r}; there are {offered}")
    place = source or layout.hub_id
    if place is None:
        raise ValueError(f"dataset {name!r} needs a source with {' and '.join(layout.columns)}")

    def item(row: Row) -> Item:
        if layout.columns == _OLYMPIAD:
            fields = _olympiad(row)
        else:
            problem, answer = layout.columns
            fields = {"problem": text(row, problem), "answer": gold_text(row, answer)}
        return {**fields, "source": name}

    return hub.distinct(
        rows=hub.rows(place, layout.splits[split], layout.columns, layout.config),
        name=f"{name} ({place})",
        item=item,
        problem=lambda item: item["problem"],
        gold=label,
    )


def _olympiad(row: Row) -> dict[str, Any]:
    """An item of OlympiadBench."""
    golds = [_without_dollars(answer) for answer in row["final_answer"]]
    several = len(golds) > 1 or row["is_multiple_answer"]
    item = {"problem": text(row, "question"), "answer": golds if several else golds[0]}
    if row["unit"]:
        item["unit"] = _without_dollars(row["unit"])
    if row["error"]:
        item["tolerance"] = _without_dollars(row["error"])
    return item


def _without_dollars(value: Any) -> str:
    return _DOLLAR.sub("", str(value)).strip()


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, or for several answers in one box."""
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
    """The gold answer as text, or as JSON if there are several, a unit or a tolerance."""
    fields = {name: item[name] for name in ("answer", "unit", "tolerance") if name in item}
    answer = item["answer"]
    is_plain = len(fields) == 1 and not isinstance(answer, list)
    gold = answer if is_plain else json.dumps(fields, ensure_ascii=False)
    grader.golds_of(gold)  # raises ValueError
    return gold


answer_of = boxed_or_tagged


@with_text_label
def score(response: str, label: str) -> Score:
    """Grades what `answer_of` finds; ValueError if the label is malformed."""
    if "####" in label:
        raise ValueError(
            f"a label is the gold answer alone, not {label!r:.80}: give what follows its last ####"
        )
    return grader.grade(answer_of(response), label)


def right_response(label: str) -> str:
    """A response whose box holds the gold answer, or all gold answers."""
    return rf"The answer is \boxed{{{_gold(label)}}}."


def wrong_response(label: str) -> str:
    """A response whose box holds a wrong number: the next one if the gold answer is whole."""
    is_whole = label == _gold(label) and _WHOLE.fullmatch(label)
    answer = str(int(label) + 1) if is_whole else "-918273645.25"
    return rf"The answer is \boxed{{{answer}}}."


def _gold(label: str) -> str:
    """The gold answer of a label; several are joined by commas."""
    return ", ".join(grader.answers_of(label))


def same_answer(a: str, b: str) -> bool:
    """Whether two answers are mathematically the same, such as 1/2 and 0.5."""
    if a == b:
        return True
    try:
        return grader.grade(a, b).status == "correct"
    except ValueError:  # `b` cannot be a gold answer
        return False


# Settings of the paper's Qwen2.5-Math runs. Its Qwen3-4B-Base runs validate at temperature 1.0 with
# up to 3072 tokens: add --temperature 1.0 --max_new_tokens 3072. AIME, AMC and HMMT have so few
# items that they only separate models that are far apart; a comparison reports how far. AIME and
# HMMT have the fewest, so they take more samples; they also need room for long reasoning.
BENCHMARKS: dict[str, BenchmarkRecord] = {}
for _name, _samples, _max_new_tokens in (
    ("math500", 16, 2048),  # 500 problems of MATH (Hendrycks et al. 2021, Lightman et al. 2023)
    ("amc23", 16, 2048),  # 40 problems of the American Mathematics Competitions 2023
    # 30 problems each, of both papers of the American Invitational Mathematics Examination
    ("aime24", 32, 16_384),
    ("aime25", 32, 16_384),
    ("hmmt_feb25", 32, 16_384),  # 30 of the Harvard-MIT Mathematics Tournament, from MathArena
    ("minerva", 16, 2048),  # 272 of MIT's courses, with physics (Lewkowycz et al. 2022)
    ("olympiadbench", 16, 2048),  # English, text only, gradable answers (He et al. 2024)
):
    BENCHMARKS[_name] = BenchmarkRecord(
        options={"dataset": _name},
        samples=_samples,
        temperature=0.8,
        max_new_tokens=_max_new_tokens,
    )

_NAMED = [name for name in DATASETS if name not in ("dapo", "math500", "plain")]

TASK = Task(
    name=NAME,
    summary="Mathematics: DAPO-17k to train on; MATH500, AIME and five others to test on; or your "
    "file",
    right_if="its last `\\boxed{}` (without one: its last `<answer>`) equals the gold answer, "
    "whatever the notation",
    label_form="the gold answer",
    problems=PublishedProblems(
        load=load,
        splits=SPLITS,
        options={
            "source": SOURCE,
            "dataset": Option(
                str | None,
                "data set: dapo (default to train), math500 (default to test), "
                f"{', '.join(_NAMED)}, or plain: your own --source with columns problem and "
                "answer, a file for each split",
            ),
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: str(item["source"]),
    reward_file="math.py",
    reads_label=is_readable,
    voted_answer=answer_of,
    same_answer=same_answer,
    benchmarks=BENCHMARKS,
)
