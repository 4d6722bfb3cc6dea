"""Knights and Knaves: who always tells the truth and who always lies, from what each of them says.

A statement is a list: its kind, then `[person, truthful]` for each of its parts: `["if", [0, true],
[4, false]]` is "if Owen is a sage then Sofia is a fool". Nobody merely states their own role, and
the two parts of a compound are about different people. A world gives everybody a role; bit i of
its number is 1 if person i tells the truth. A set of worlds is an integer of 2^n bits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from answer_graders.answers import boxed_or_tagged
from answer_graders.record import (
    WORDING,
    BenchmarkRecord,
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Split,
    Task,
    Wording,
    in_turn,
    is_new,
    random_of,
    read_label,
    scored,
    split_of,
    with_text_label,
)
from answer_graders.tasks.role_claims import (
    PAIRS,
    ROLES,
    claims_of,
    is_name,
    normal,
    other_role,
    plural,
)

NAME = "knights_knaves"
answer_of = boxed_or_tagged
TRIES = 20_000  # draws in a row without a new puzzle; one in 3 gives one, one in 60 for test

Statement = list[Any]

# The worlds in which a statement holds, from those in which its parts hold. Numbers may be
# negative, that is, have all upper bits 1; `worlds` cuts these off.
KINDS: dict[str, Callable[..., int]] = {
    "is": lambda a: a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "if": lambda a, b: ~a | b,
    "iff": lambda a, b: ~(a ^ b),
}
NAMES = """
    Aaron Abigail Adam Alan Alice Amanda Amelia Amy Andrea Andrew Anna Anthony Arthur Barbara
    Benjamin Brandon Brian Carla Carlos Caroline Catherine Charlotte Christopher Clara Claire
    Cynthia Daniel David Deborah Dennis Diana Diego Dorothy Dylan Edward Elena Elizabeth Emily
    Emma Eric Ethan Eva Evelyn Fatima Felix Fiona Gabriel George Hannah Harold Helen Henry Hugo
    Ian Isaac Isabella Ivan Jacob James Jane Jason Jennifer Jessica Joseph Joshua Julia Karen
    Kenneth Kevin Laura Leah Leo Liam Linda Logan Lucas Lucy Luis Margaret Maria Martin Matthew
    Mia Michael Nathan Nicole Noah Nora Oliver Olivia Oscar Owen Patricia Paul Peter Philip
    Rachel Rebecca Richard Robert Ruth Ryan Samuel Sarah Simon Sofia Sophie Stephen Susan Teresa
    Thomas Timothy Victor Victoria Vincent Walter William Yusuf Zoe
""".split()  # noqa: SIM905
STATEMENTS = {
    "is": "{}",
    "and": "{} and {}",
    "or": "{} or {}, or both",
    "if": "if {} then {}",
    "iff": "{} if and only if {}",
}
OPENINGS: dict[Wording, Sequence[str]] = {
    "own": (
        "Everyone on a small island is either {truthful} or {lying}.",
        "You are visiting a village in which every inhabitant is either {truthful} or {lying}.",
        "Only two sorts of people live in a faraway valley: each of them is {truthful} or {lying}.",
    ),
    "paper": ("A very special island is inhabited only by {truthfuls} and {liars}.",),
}
SAYINGS: dict[Wording, Sequence[str]] = {
    # Always quoted: "Ann said that Bob is a fool and Eve is a sage" leaves open who says the end.
    "own": (
        '{name} said, "{quote}."',
        '{name} claimed, "{quote}."',
        '{name} told you, "{quote}."',
        '{name} declared: "{quote}."',
        '{name} spoke up: "{quote}."',
        'When asked, {name} replied, "{quote}."',
        'You heard {name} say, "{quote}."',
        'In the words of {name}: "{quote}."',
        '"{quote}," said {name}.',
        '"{quote}," {name} announced.',
        '"{quote}," {name} insisted.',
        '"{quote}," was the answer from {name}.',
    ),
    "paper": (
        'As {name} put it, "{quote}".',
        '{name} was heard saying, "{quote}".',
        '{name} noted, "{quote}".',
        '"{quote}," {name} mentioned.',
        '"{quote}," {name} claimed.',
        "{name} told you that {quote}.",
    )
    * 2,  # nine people may speak
}
QUIZZES: dict[Wording, str] = {
    "own": "{opening} {truthfuls} always tell the truth, and {liars} always lie. You meet {count} "
    "of them: {people}. {sayings} Who is {truthful} and who is {lying}?",
    "paper": "{opening} {truthfuls} always tell the truth, and {liars} always lie. You meet "
    "{count} inhabitants: {people}. {sayings} So who is {truthful} and who is {lying}?",
}
REQUESTS: dict[Wording, str] = {
    "own": "Think step by step, and put the final answer in \\boxed{{}}, with everyone's role, in "
    "the form \\boxed{{NAME is {truthful}, NAME is {lying}, ...}}.",
    "paper": "Let's think step by step and output the final answer within \\boxed{{}}.",
}


def generate(
    count: int,
    seed: int,
    split: Split = "train",
    people: Sequence[int] = (4, 5, 6),
    wording: Wording = "own",
) -> Iterator[Item]:
    """Puzzles with exactly one solution, all different, and equally many of each size.

    `people` are the sizes, from 2 to 9: by default those of the paper's KnK-Easy; its KnK-Hard has
    (6, 7, 8). An item has the names of the `people`, their two `roles` (the truthful one first) and
    the `statements`, in the order of the people. Test gets one `_shape` in 8.
    """
    rng = random_of(NAME, split, seed)
    seen = set[int]()

    def draw(size: int) -> Item | None:
        statements = [_statement(rng, speaker, size) for speaker in range(size)]
        key = f"{NAME} {_shape(statements)}"
        if split_of(key) != split or worlds(statements).bit_count() != 1:
            return None
        item = {
            "people": rng.sample(NAMES, size),
            "roles": list(rng.choice(ROLES)),
            "statements": statements,
            "wording": wording,
        }
        return item if is_new(seen, repr(item)) else None

    yield from in_turn(draw, people, count, TRIES, f"{split} puzzles of {{}} people")


def _statement(rng: random.Random, speaker: int, size: int) -> Statement:
    """A statement for a speaker: all kinds, and all people it may be about, are equally likely."""

    def about_another_than(person: int) -> list[Any]:
        step = 1 + int(rng.random() * (size - 1))
        return [(person + step) % size, rng.random() < 0.5]

    kind = rng.choice(tuple(KINDS))
    if kind == "is":
        return [kind, about_another_than(speaker)]
    first = [int(rng.random() * size), rng.random() < 0.5]
    return [kind, first, about_another_than(first[0])]


def worlds(statements: Sequence[Statement]) -> int:
    """The set of worlds in which each statement holds if and only if its speaker is truthful."""
    truthful = _truthful(len(statements))
    possible = (1 << (1 << len(statements))) - 1
    for speaker, (kind, *parts) in enumerate(statements):
        part_holds = [truthful[who] if truth else ~truthful[who] for who, truth in parts]
        statement_holds = KINDS[kind](*part_holds)
        possible &= ~(truthful[speaker] ^ statement_holds)
    return possible


@lru_cache
def _truthful(size: int) -> tuple[int, ...]:
    """The set of worlds in which a person tells the truth, for every person."""
    return tuple(
        sum(1 << world for world in range(1 << size) if world >> person & 1)
        for person in range(size)
    )


def _shape(statements: Sequence[Statement]) -> str:
    """Counts the sorts of statements, about the speaker or about anybody else.

    Names, their order, and the choice between two equivalent forms of a statement do not matter.
    """
    shapes = []
    for speaker, statement in enumerate(statements):
        kind, *parts = statement
        truths = [truth for _, truth in parts]
        if kind == "if":  # the same as: not the condition, or the consequence
            kind = "or"
            truths[0] = not truths[0]
        elif kind == "iff":  # negating both sides makes no difference
            both_the_same = truths[0] == truths[1]
            truths = [both_the_same, both_the_same]
        about = ["own" if who == speaker else "other" for who, _ in parts]
        claims = sorted(f"{who} {truth}" for who, truth in zip(about, truths, strict=True))
        shapes.append(f"{kind} {', '.join(claims)}")
    return "; ".join(sorted(shapes))


def prompt(item: Item) -> list[Message]:
    """One user message. Its wording varies, but depends only on the item."""
    wording: Wording = item.get("wording", "own")
    people = item["people"]
    rng = random.Random(json.dumps([people, item["roles"], item["statements"]]))
    templates = rng.sample(SAYINGS[wording], len(people))
    sayings = []
    for name, statement, template in zip(people, item["statements"], templates, strict=True):
        sayings.append(template.format(name=name, quote=_quote(item, statement, wording)))
    truthful, lying = item["roles"]
    truthfuls, liars = plural(truthful), plural(lying)
    roles = {"truthful": _one(truthful), "lying": _one(lying)}
    opening = rng.choice(OPENINGS[wording]).format(**roles, truthfuls=truthfuls, liars=liars)
    quiz = QUIZZES[wording].format(
        opening=opening,
        truthfuls=truthfuls.capitalize(),
        liars=liars,
        count=len(people),
        people=_listed(people),
        sayings=" ".join(sayings),
        **roles,
    )
    return [{"role": "user", "content": f"{quiz} {REQUESTS[wording].format(**roles)}"}]


def _quote(item: Item, statement: Statement, wording: Wording) -> str:
    """A statement in words."""
    kind, *parts = statement
    truthful, lying = item["roles"]
    claims = [
        f"{item['people'][who]} is {_one(truthful if truth else lying)}" for who, truth in parts
    ]
    quote = STATEMENTS[kind].format(*claims)
    return quote[0].upper() + quote[1:] if wording == "own" else quote.removesuffix(", or both")


def _one(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"


def _listed(texts: Sequence[str]) -> str:
    """Joins the texts: "a and b", "a, b, and c"."""
    *first, last = texts
    comma = "," if len(first) > 1 else ""
    return f"{', '.join(first)}{comma} and {last}"


def label(item: Item) -> str:
    """The solution as JSON, name -> role; ValueError unless the statements have exactly one."""
    possible = worlds(item["statements"])
    if possible.bit_count() != 1:
        raise ValueError(f"a puzzle has one solution, got {possible.bit_count()} for {dict(item)}")
    world = possible.bit_length() - 1
    truthful, lying = item["roles"]
    roles = {
        name: truthful if world >> person & 1 else lying
        for person, name in enumerate(item["people"])
    }
    return json.dumps(roles)


class Solution(NamedTuple):
    """The content of a label, as `normal` text."""

    roles: dict[str, str]  # by name
    pair: tuple[str, str]  # of roles: the truthful one, and the lying one


@lru_cache(256)
def _solution(label: str) -> Solution:
    """The solution of a label; ValueError if it is malformed."""

    def read(fields: Any) -> Solution:
        roles = {normal(name): normal(role) for name, role in fields.items()}
        first_role = next(iter(roles.values()), "")
        pair = PAIRS[first_role]
        names_are_clear = all(map(is_name, roles)) and len(roles) == len(fields)
        if not names_are_clear or not set(roles.values()) <= set(pair):
            raise ValueError("no solution")
        return Solution(roles, pair)

    form = f"a JSON object that gives different one-word names the roles of one pair of {ROLES}"
    return read_label(label, read, form)


@with_text_label
def score(response: str, label: str) -> Score:
    """Grades the last box, or the last `<answer>` if there is no box: "Owen is a sage, ...".

    `wrong`: somebody has the other role, both or none. `malformed`: there is more than the names
    and roles of this puzzle and words that join them. ValueError if the label is malformed.
    """
    roles, pair = _solution(label)
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in \\boxed{}")
    try:
        claims = claims_of(answer)
    except ValueError as error:
        return scored("malformed", str(error))
    strange_names = claims.keys() - roles.keys()
    strange_roles = set(claims.values()) - set(pair) - {"both"}
    strange = strange_names | strange_roles
    if strange:
        return scored("malformed", f"not in this puzzle: {sorted(strange)!r:.80}")
    mistaken = [name.title() for name, role in roles.items() if claims.get(name) != role]
    if mistaken:
        return scored("wrong", f"wrong role, both or none: {', '.join(sorted(mistaken))}")
    return scored("correct", f"the roles of all {len(roles)}")


def roles_of_response(response: str) -> str:
    """The roles in a response, by name, as text for majority voting; "" if unclear."""
    try:
        claims = claims_of(answer_of(response) or "")
    except ValueError:
        return ""
    return ", ".join(f"{name}: {role}" for name, role in sorted(claims.items()))


def right_response(label: str) -> str:
    """A response with the roles of the label."""
    _solution(label)
    claims = [f"{name} is {_one(role)}" for name, role in json.loads(label).items()]
    return f"Only this fits: \\boxed{{{_listed(claims)}}}."


def wrong_response(label: str) -> str:
    """A response that gives the first person the other role."""
    _solution(label)
    roles = json.loads(label)
    first_person = next(iter(roles))
    roles[first_person] = other_role(normal(roles[first_person]))
    return right_response(json.dumps(roles))


TASK = Task(
    name=NAME,
    summary="Knights and Knaves: who always tells the truth and who always lies, from what each of "
    "them says",
    right_if="its last `\\boxed{}` (without one: its last `<answer>`) names everybody's role",
    label_form="JSON: name to role",
    problems=GeneratedProblems(
        generate=generate,
        default_counts={"train": 30_000, "test": 300},
        options={
            "people": Option(
                tuple[int, ...],
                "numbers of people in a puzzle, with equally many puzzles of each; the paper: "
                "also 6 7 8",
            ),
            "wording": WORDING,
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: str(len(item["people"])),
    reward_file="knights_knaves.py",
    voted_answer=roles_of_response,
    benchmarks={
        # 100 puzzles of each size; the paper's KnK-Easy
        "knk": BenchmarkRecord(count=300, options={"people": (4, 5, 6)}),
        # the paper's KnK-Hard
        "knk_hard": BenchmarkRecord(count=300, options={"people": (6, 7, 8)}),
        # from the paper's long runs of Qwen2.5-1.5B-Instruct; puzzles of 2 people are a few forms
        # with different names, so intervals by item are too narrow
        "knk_2_3": BenchmarkRecord(count=300, options={"people": (2, 3)}),
    },
)
