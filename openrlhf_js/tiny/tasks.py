"""The quickstart's tasks: sort digits, and small cases of countdown and maze.

A task is a prompt, a label and a score, made small enough for a model of 0.65M parameters to learn
on two CPU cores.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.tasks import GRADED
from openrlhf_js.tasks.record import GeneratedProblems, Item, Score, Task, scored
from openrlhf_js.tasks.sort import END, SOLVED, UNSOLVABLE

OPEN = "<answer> "
CLOSE = " </answer>"


class TinySplit(NamedTuple):
    """The items to train on, by kind, and the held-out ones. No problem is in both."""

    train: list[list[Any]]
    held_out: list[Any]


MIXES = ("alike", "natural", "mixed")


class Problem(NamedTuple):
    """What is trained on: a prompt and the label that its responses are scored by."""

    prompt: str
    label: str


@dataclass(frozen=True)
class TinyTask:
    """A task of the quickstart: of items come prompts and labels, of labels right responses."""

    tokens: tuple[str, ...]  # what prompts and responses are written with
    slips: tuple[str, ...]  # tokens that a careless demonstration confuses
    slip: float  # the probability that it does
    warm_start_steps: int  # of imitation, enough for the right answer to become the most likely
    max_prompt_tokens: int
    max_new_tokens: int  # of the longest right response, with its end
    grader: str  # the file in `reward_models/` that grades training
    split: Callable[[int, int], TinySplit]  # from a seed and the number of held-out items
    prompt: Callable[[Any], str]
    label: Callable[[Any], str]
    right_response: Callable[[str], str]  # one that scores 1
    score: Callable[[str, str], Score]  # of a response and a label

    @property
    def max_tokens(self) -> int:
        """Of a prompt and its response."""
        return self.max_prompt_tokens + self.max_new_tokens


def value_of(task: TinyTask, response: str, label: str) -> float:
    """The reward of a response."""
    if label in (SOLVED, UNSOLVABLE):
        return float(label == SOLVED)
    return task.score(response, label).value


def draw(train: list[list[Any]], count: int, rng: random.Random) -> list[Any]:
    """`count` of the training items, every kind equally likely."""
    return [rng.choice(rng.choice(train)) for _ in range(count)]


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows as JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def write_prompts(path: Path, task: TinyTask, items: Iterable[Any], source: str) -> None:
    """Writes prompts as OpenRLHF reads them."""
    rows = [
        {"input": task.prompt(item), "label": task.label(item), "datasource": source}
        for item in items
    ]
    write_lines(path, rows)


# Sort: put 2 to 5 digits in order, `sort(7294)=` -> `2479`. Longer prompts are harder. The grader
# is exact: nothing but the digits, and then the end.

LARGE_SORT = GRADED["sort"]
DIGITS = "0123456789"
LENGTHS = (2, 3, 4, 5)  # digits per prompt


def _sort_split(seed: int, held_out: int) -> TinySplit:
    """All digits of each length, of which equally many are held out."""
    lengths = len(LENGTHS)
    fewest_items = 10 ** min(LENGTHS)
    most = lengths * fewest_items // 2
    if not lengths <= held_out <= most:
        raise ValueError(f"held_out is {held_out}; give {lengths} to {most}")
    rng = random.Random(seed)
    held_out_of_each = held_out // lengths
    train: list[list[str]] = []
    held_out_items: list[str] = []
    for length in LENGTHS:
        items = [f"{number:0{length}d}" for number in range(10**length)]
        rng.shuffle(items)
        held_out_items += items[:held_out_of_each]
        train.append(items[held_out_of_each:])
    return TinySplit(train, held_out_items)


def _sort_score(response: str, label: str) -> Score:
    if not response.endswith(END) and label not in (SOLVED, UNSOLVABLE):
        return scored("wrong", f"{response!r:.40} does not end")
    return LARGE_SORT.score(response, label)


def score_query(query: str, prompt: str, label: str) -> Score:
    """Scores a prompt and its response in one string, as OpenRLHF hands them to a grader."""
    if not query.startswith(prompt):
        raise ValueError(f"the query {query!r} does not begin with its prompt {prompt!r}")
    return _sort_score(query[len(prompt) :], LARGE_SORT.check_label(label))


sort = TinyTask(
    tokens=tuple("sort()=" + DIGITS),
    slips=tuple(DIGITS),
    slip=0.3,
    warm_start_steps=200,
    max_prompt_tokens=len("sort()=") + max(LENGTHS),
    max_new_tokens=max(LENGTHS) + 1,
    grader=LARGE_SORT.reward_file,
    split=_sort_split,
    prompt=lambda digits: LARGE_SORT.prompt({"digits": digits})[0]["content"],
    label=lambda digits: LARGE_SORT.label({"digits": digits}),
    right_response=str,
    score=_sort_score,
)


def _small_case(
    task: Task,
    options: Mapping[str, Any],
    training_items: int,
    kind: Callable[[Item], Hashable],
    tokens: tuple[str, ...],
    max_answer_tokens: int,
    **fields: Any,
) -> TinyTask:
    """A task with the problems, splits and grader of `openrlhf_js.tasks`, made with `options`.

    `fields` are the other fields of `TinyTask`.
    """
    assert isinstance(task.problems, GeneratedProblems)
    generate = task.problems.generate

    def split(seed: int, held_out: int) -> TinySplit:
        items_by_kind: dict[Hashable, list[Item]] = {}
        for item in generate(training_items, seed, "train", **options):
            items_by_kind.setdefault(kind(item), []).append(item)
        held_out_items = list(generate(held_out, seed, "test", **options))
        return TinySplit(list(items_by_kind.values()), held_out_items)

    return TinyTask(
        tokens=(*tokens, OPEN, CLOSE),
        max_new_tokens=max_answer_tokens + 3,  # the tags and the end
        grader=task.reward_file,
        split=split,
        label=task.label,
        right_response=task.right_response,
        score=task.score,
        **fields,
    )


# Countdown: make a target of two numbers, `7,24=31:` -> `<answer> 24 + 7 </answer>`. Three numbers
# are too many for this model, and so would be a token for each number.

OPERATORS = (" + ", " - ", " * ", " / ")
countdown = _small_case(
    GRADED["countdown"],
    {"numbers": (2,), "largest": 60, "targets": (1, 99)},
    training_items=2400,
    kind=lambda item: len(item["numbers"]),
    tokens=tuple("0123456789,=:") + OPERATORS,
    max_answer_tokens=len("12+34"),
    slips=OPERATORS,
    slip=0.5,
    warm_start_steps=500,
    max_prompt_tokens=len("12,34=56:"),
    prompt=lambda item: f"{','.join(map(str, item['numbers']))}={item['target']}:",
)


# Maze: find the moves from S to E, `S..*|.*..|..E*|....:` -> `<answer> DDRR </answer>`. A prompt
# leaves out the outer walls. Smaller grids have too few patterns of walls to hold some out.

MOVES = ("L", "R", "U", "D")
maze = _small_case(
    GRADED["maze"],
    {"size": 6, "lengths": (1, 2, 3, 4)},
    training_items=8000,
    kind=lambda item: item["length"],
    tokens=tuple(".*SE|:") + MOVES,
    max_answer_tokens=len("DDRR"),
    slips=MOVES,
    slip=0.3,
    warm_start_steps=400,
    max_prompt_tokens=len("S..*|.*..|..E*|....:"),
    prompt=lambda item: "|".join(row[1:-1] for row in item["rows"][1:-1]) + ":",
)

TASKS: dict[str, TinyTask] = {"sort": sort, "countdown": countdown, "maze": maze}
