"""Word problems of two or three steps, answered in sentences: for a small pretrained model.

A story begins with a number that takes one step, goes on with one or two changes, and asks for what
is left, shared or earned. The grader is that of GSM8K.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from answer_graders.record import Score
from answer_graders.tasks import gsm8k
from baseline_research.tiny.record import TinySplit, TinyTask

TRAINING_ITEMS = 5000
STEPS = (2, 3)
ANSWER = "The answer is "
NAMES = ("Ada", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Iris", "Jonas")
THINGS = ("apples", "books", "buttons", "cards", "coins", "eggs", "pencils", "shells", "stamps")
HOLDERS = ("bags", "boxes", "baskets", "jars")
FEWEST, LARGEST = 4, 99  # things before a change


class Story(NamedTuple):
    """A story so far, with its solution."""

    name: str
    things: str
    amount: int  # of the things
    told: str
    steps: tuple[str, ...]  # of the solution

    def after(self, told: str, step: str, amount: int) -> Story:
        """The story with one more sentence and one more step."""
        return self._replace(told=f"{self.told} {told}", steps=(*self.steps, step), amount=amount)


class Problem(NamedTuple):
    """A question and its solution in sentences, which ends with the answer."""

    question: str
    solution: str


def _in_holders(rng: random.Random) -> Story:
    name, things, holders = _words(rng)
    first, second = rng.randint(2, 9), rng.randint(2, 9)
    count = first * second
    return Story(
        name=name,
        things=things,
        amount=count,
        told=f"{name} has {first} {holders} with {second} {things} in each.",
        steps=(f"At first {name} has {first} * {second} = {count} {things}.",),
    )


def _on_two_days(rng: random.Random) -> Story:
    name, things, _ = _words(rng)
    first, second = rng.randint(10, 49), rng.randint(10, 49)
    count = first + second
    return Story(
        name=name,
        things=things,
        amount=count,
        told=f"{name} gets {first} {things} on Monday and {second} on Tuesday.",
        steps=(f"On both days {name} gets {first} + {second} = {count} {things}.",),
    )


def _words(rng: random.Random) -> tuple[str, str, str]:
    return rng.choice(NAMES), rng.choice(THINGS), rng.choice(HOLDERS)


def _gives(story: Story, rng: random.Random) -> Story | None:
    friend = rng.choice([name for name in NAMES if name != story.name])
    given = rng.randint(2, story.amount - 2)
    left = story.amount - given
    return story.after(
        told=f"{story.name} gives {given} of them to {friend}.",
        step=f"After {given} go to {friend}, {story.amount} - {given} = {left} are left.",
        amount=left,
    )


def _buys(story: Story, rng: random.Random) -> Story | None:
    bought = rng.randint(3, 40)
    count = story.amount + bought
    return story.after(
        told=f"Then {story.name} buys {bought} more.",
        step=f"With {bought} more there are {story.amount} + {bought} = {count}.",
        amount=count,
    )


def _halves(story: Story, rng: random.Random) -> Story | None:
    if story.amount % 2:
        return None
    left = story.amount // 2
    return story.after(
        told=f"Then {story.name} loses half of them.",
        step=f"Half of them are {story.amount} / 2 = {left}, and as many are left.",
        amount=left,
    )


def _sells(story: Story, rng: random.Random) -> Story | None:
    price = rng.randint(2, 5)
    earned = story.amount * price
    return story.after(
        told=f"Each is sold for {price} dollars. How many dollars is that?",
        step=f"For all of them that is {story.amount} * {price} = {earned} dollars.",
        amount=earned,
    )


def _shares(story: Story, rng: random.Random) -> Story | None:
    numbers = [
        number for number in range(2, 10) if story.amount % number == 0 < story.amount - number
    ]
    if not numbers:
        return None
    children = rng.choice(numbers)
    share = story.amount // children
    return story.after(
        told=f"{children} children share them equally. How many does each get?",
        step=f"Each child gets {story.amount} / {children} = {share} of them.",
        amount=share,
    )


Change = Callable[[Story, random.Random], Story | None]  # None where the numbers do not allow it
BEGINNINGS = (_in_holders, _on_two_days)
CHANGES: tuple[Change, ...] = (_gives, _buys, _halves)
ENDINGS: tuple[Change, ...] = (_sells, _shares)  # which ask a question of their own


def draw(steps: int, rng: random.Random) -> Problem:
    """A problem of so many steps; only an amount of dollars may be above 99."""
    while True:
        changes = [rng.choice(CHANGES) for _ in range(steps - 2)]
        changes.append(rng.choice(CHANGES if rng.random() < 0.5 else ENDINGS))
        story = _told(rng.choice(BEGINNINGS)(rng), changes, rng)
        if story is not None:
            break
    question = story.told
    if changes[-1] in CHANGES:
        question += f" How many {story.things} are there now?"
    lines = [f"Step {number}: {step}" for number, step in enumerate(story.steps, 1)]
    lines.append(f"{ANSWER}{story.amount}.")
    return Problem(question, solution="\n".join(lines))


def _told(story: Story, changes: Sequence[Change], rng: random.Random) -> Story | None:
    """The story with all changes; None where the numbers do not allow one."""
    for change in changes:
        if not FEWEST <= story.amount <= LARGEST:
            return None
        changed = change(story, rng)
        if changed is None:
            return None
        story = changed
    return story


def _split(seed: int, held_out: int) -> TinySplit:
    """Equally many problems of two and of three steps; those held out are not trained on."""
    rng = random.Random(seed)
    known: set[str] = set()

    def new(steps: int) -> Problem:
        while True:
            problem = draw(steps, rng)
            if problem.question not in known:
                known.add(problem.question)
                return problem

    held_out_items = [new(STEPS[place % len(STEPS)]) for place in range(held_out)]
    train = [[new(steps) for _ in range(TRAINING_ITEMS // len(STEPS))] for steps in STEPS]
    return TinySplit(train, held_out_items)


def _score(response: str, label: str) -> Score:
    """A label is a solution; the answer alone is compared."""
    return gsm8k.score(response, label.rpartition(ANSWER)[2].removesuffix("."))


word_problems = TinyTask(
    tokens=(),
    slips=(),
    slip=0.0,
    warm_start_steps=16,
    max_prompt_tokens=120,
    max_new_tokens=110,
    split=_split,
    prompt=lambda problem: f"{problem.question} Work it out step by step.",
    label=lambda problem: problem.solution,
    right_response=str,
    score=_score,
)
