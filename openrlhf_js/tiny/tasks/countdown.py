"""Countdown: make a target of two numbers, `7,24=31:` -> `<answer> 24 + 7 </answer>`.

Three numbers are too many for this model. A number is written digit by digit: 60 tokens for 60
numbers would each have to be learned by themselves.
"""

from __future__ import annotations

from openrlhf_js.tasks import countdown
from openrlhf_js.tasks.base import Item
from openrlhf_js.tiny.tasks.puzzle import small_case

OPERATORS = (" + ", " - ", " * ", " / ")


def prompt(item: Item) -> str:
    """The numbers and the target."""
    return f"{','.join(map(str, item['numbers']))}={item['target']}:"


TASK = small_case(
    countdown,
    {"numbers": (2,), "largest": 60, "targets": (1, 99)},
    training_items=2400,
    kind=lambda item: len(item["numbers"]),
    tokens=(*"0123456789,=:", *OPERATORS),
    max_answer_tokens=len("12+34"),
    slips=OPERATORS,
    slip=0.5,
    warm_start_steps=500,
    max_prompt_tokens=len("12,34=56:"),
    prompt=prompt,
)
