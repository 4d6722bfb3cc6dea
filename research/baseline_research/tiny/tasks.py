"""Tasks that a tiny model learns on two CPU cores, and three for a pretrained one.

A task makes items. Each item gives a prompt and a label, and the label scores responses to the
prompt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from answer_graders.record import GeneratedProblems, Item, Score, Task, scored
from answer_graders.tasks import task_of
from baseline_research.tiny import chains
from baseline_research.tiny.record import END, Split, TinySplit, TinyTask
from baseline_research.tiny.sentences import sentences
from baseline_research.tiny.word_problems import word_problems

# The tasks of a pretrained model, with its own tokenizer and chat template.
PRETRAINED = ("questions", "word_problems", "sentences")
OPEN = "<answer> "
CLOSE = " </answer>"
DIGITS = "0123456789"
LENGTHS = (2, 3, 4, 5)  # digits per prompt
OPERATORS = (" + ", " - ", " * ", " / ")
MOVES = ("L", "R", "U", "D")


def sample_items(items_by_kind: list[list[Any]], count: int, rng: random.Random) -> list[Any]:
    """Draws `count` of the items, each kind equally likely."""
    return [rng.choice(rng.choice(items_by_kind)) for _ in range(count)]


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


def write_reward_file(path: Path, task: str) -> None:
    """Writes the file for `--reward.remote_url` that grades a task by name."""
    path.write_text(
        "from baseline_research.tiny.tasks import TASKS\n\n"
        f"reward_func = TASKS[{task!r}].reward_func\n",
        encoding="utf-8",
    )


# Tasks that turn 2 to 5 digits into equally many others. Longer prompts are harder. The graders are
# exact: only the digits, then the end.


def _digits_split(seed: int, held_out: int) -> TinySplit:
    """All digit strings of each length; equally many of each are held out."""
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


def _digits_task(
    name: str,
    label: Callable[[str], str],
    score: Callable[[str, str], Score],
    warm_start_steps: int = 300,
) -> TinyTask:
    """`name(7294)=`, whose label is its right response."""
    call = f"{name}()="
    return TinyTask(
        tokens=(*dict.fromkeys(call), *DIGITS),
        slips=tuple(DIGITS),
        slip=0.3,
        warm_start_steps=warm_start_steps,
        max_prompt_tokens=len(call) + max(LENGTHS),
        max_new_tokens=max(LENGTHS) + 1,
        split=_digits_split,
        prompt=lambda digits: f"{name}({digits})=",
        label=label,
        right_response=str,
        score=score,
    )


# Reverse: `reverse(7294)=` -> `4927`. Each digit in its right place earns its share.


def _reverse_score(response: str, label: str) -> Score:
    digits, end, _ = response.partition(END)
    if not end or len(digits) != len(label):
        return scored("wrong", f"{response!r:.40}, expected {len(label)} digits")
    right = sum(given == expected for given, expected in zip(digits, label, strict=True))
    if right == len(label):
        return scored("correct", digits)
    return Score(right / len(label), "wrong", f"{right} of {len(label)} digits")


reverse = _digits_task("reverse", label=lambda digits: digits[::-1], score=_reverse_score)


# Exact tasks: `sort(7294)=` -> `2479`; `unique(7274)=` -> `724` leaves out repeated digits;
# `odometer(7299)=` -> `7300` adds one, and turns 9999 into 0000.


def _exact_score(response: str, label: str) -> Score:
    right = response == label + END
    return scored("correct" if right else "wrong", f"{response!r:.40}, expected {label}")


def _odometer(digits: str) -> str:
    """Adds one and keeps the number of digits."""
    length = len(digits)
    return f"{(int(digits) + 1) % 10**length:0{length}d}"


sort = _digits_task(
    "sort",
    label=lambda digits: "".join(sorted(digits)),
    score=_exact_score,
    warm_start_steps=200,
)
unique = _digits_task(
    "unique", label=lambda digits: "".join(dict.fromkeys(digits)), score=_exact_score
)
odometer = _digits_task("odometer", label=_odometer, score=_exact_score)


# Tasks with the problems, splits and grader of `answer_graders.tasks`.


def _generated(
    task: Task, training_items: int, kind: Callable[[Item], Hashable], **options: Any
) -> Split:
    """The split of a task whose problems are made with `options`."""
    assert isinstance(task.problems, GeneratedProblems)
    generate = task.problems.generate

    def split(seed: int, held_out: int) -> TinySplit:
        items_by_kind: dict[Hashable, list[Item]] = {}
        for item in generate(training_items, seed, "train", **options):
            items_by_kind.setdefault(kind(item), []).append(item)
        held_out_items = list(generate(held_out, seed, "test", **options))
        return TinySplit(list(items_by_kind.values()), held_out_items)

    return split


def _graded_by(task: Task, **fields: Any) -> TinyTask:
    return TinyTask(
        label=task.label,
        right_response=task.right_response,
        score=task.score,
        **fields,
    )


# Countdown: make a target from two numbers, `7,24=31:` -> `<answer> 24 + 7 </answer>`. Three
# numbers, or a token for each number, would be too much for this model.

countdown = _graded_by(
    task_of("countdown"),
    tokens=(*"0123456789,=:", *OPERATORS, OPEN, CLOSE),
    slips=OPERATORS,
    slip=0.5,
    warm_start_steps=500,
    max_prompt_tokens=len("12,34=56:"),
    max_new_tokens=len("12+34") + 3,  # the tags and the end
    split=_generated(
        task_of("countdown"),
        training_items=2400,
        kind=lambda item: len(item["numbers"]),
        numbers=(2,),
        largest=60,
        targets=(1, 99),
    ),
    prompt=lambda item: f"{','.join(map(str, item['numbers']))}={item['target']}:",
)

# Maze: find the moves from S to E, `S..*|.*..|..E*|....:` -> `<answer> DDRR </answer>`. Prompts
# leave out the outer walls. Smaller grids have too few wall patterns to hold any out.

maze = _graded_by(
    task_of("maze"),
    tokens=(*".*SE|:", *MOVES, OPEN, CLOSE),
    slips=MOVES,
    slip=0.3,
    warm_start_steps=400,
    max_prompt_tokens=len("S..*|.*..|..E*|....:"),
    max_new_tokens=len("DDRR") + 3,
    split=_generated(
        task_of("maze"),
        training_items=8000,
        kind=lambda item: item["length"],
        size=6,
        lengths=(1, 2, 3, 4),
    ),
    prompt=lambda item: "|".join(row[1:-1] for row in item["rows"][1:-1]) + ":",
)

questions = _graded_by(
    task_of("questions"),
    tokens=(),
    slips=(),
    slip=0.0,
    warm_start_steps=24,
    max_prompt_tokens=64,
    max_new_tokens=6,
    split=_generated(task_of("questions"), training_items=5000, kind=lambda item: item["kind"]),
    prompt=lambda item: task_of("questions").prompt(item)[0]["content"],
)

QUICKSTART = ("sort", "countdown", "maze")
TASKS: dict[str, TinyTask] = {
    "sort": sort,
    "countdown": countdown,
    "maze": maze,
    "reverse": reverse,
    "unique": unique,
    "odometer": odometer,
    **chains.TASKS,
    "questions": questions,
    "word_problems": word_problems,
    "sentences": sentences,
}
