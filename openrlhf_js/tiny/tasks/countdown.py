"""Countdown: make a target of two numbers, `7,24=31:` -> `<answer> 24 + 7 </answer>`.

The problems, their split and the grader are those of `openrlhf_js.tasks.countdown`. Three numbers
are too many for this model. A number is written digit by digit: 60 tokens for 60 numbers would each
have to be learned by themselves.
"""

from __future__ import annotations

from functools import partial

from openrlhf_js.tasks import countdown
from openrlhf_js.tasks.base import Item
from openrlhf_js.tiny.tasks.base import Split, TinyTask

generate = partial(countdown.generate, numbers=(2,), largest=60, targets=(1, 99))
TRAINING_ITEMS = 2400
OPERATORS = (" + ", " - ", " * ", " / ")


def prompt(item: Item) -> str:
    """The numbers and the target."""
    return f"{','.join(map(str, item['numbers']))}={item['target']}:"


def split(seed: int, held_out: int) -> Split:
    """Problems of both splits; ValueError if there are not so many to hold out."""
    train = list(generate(TRAINING_ITEMS, seed, "train"))
    return Split([train], list(generate(held_out, seed, "test")))


TASK = TinyTask(
    tokens=(*"0123456789,=:", *OPERATORS, "<answer> ", " </answer>"),
    slips=OPERATORS,
    slip=0.5,
    warm_start_steps=500,
    max_prompt_tokens=len("12,34=56:"),
    max_new_tokens=len("<12+34>") + 1,
    grader="countdown.py",
    split=split,
    prompt=prompt,
    label=countdown.label,
    right_response=countdown.right_response,
    score=countdown.score,
)
