"""Knights and Knaves: who always tells the truth and who always lies, from what each of them says.

A statement is a list: its kind, then `[person, truthful]` for each of its parts, where `person` is
an index and `truthful` says which role is claimed: `["if", [0, true], [4, false]]` is "if Owen is a
sage then Sofia is a fool". A world gives everybody a role; bit i of its number is 1 where person i
tells the truth. A set of worlds is one whole number of 2^n bits, so that a few operations on such
numbers try a puzzle in all its worlds, 512 for 9 people.

No statement is empty: nobody merely names their own role (which says nothing, or is a paradox), and
the two parts of a compound are about different people, one of whom may be the speaker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from openrlhf_js.tasks.answers import last_boxed
from openrlhf_js.tasks.base import Item, Score, scored
from openrlhf_js.tasks.draws import Draws, Seen, Split, first, split_of
from openrlhf_js.tasks.knights_knaves_text import (
    NAMES,
    PAIRS,
    ROLES,
    SINGULAR,
    WORDS,
    claim,
    joins_names,
    listed,
    prompt,
)
from openrlhf_js.tasks.labels import read_label

__all__ = ["NAME", "generate", "label", "prompt", "right_response", "score", "wrong_response"]

NAME = "knights_knaves"
MAX_ANSWER_CHARACTERS = 10_000
MAX_MISSES = 20_000  # draws in a row without a new puzzle; one in 3 is one, one in 60 for test

Statement = list[Any]

# The worlds in which a statement holds, from those in which its parts do. Numbers may be negative,
# with all their upper bits 1, which `worlds` cuts off.
KINDS: dict[str, Callable[..., int]] = {
    "is": lambda a: a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "if": lambda a, b: ~a | b,
    "iff": lambda a, b: ~(a ^ b),
}


def generate(
    count: int, seed: int, split: Split = "train", people: Sequence[int] = (4, 5, 6)
) -> Iterator[Item]:
    """Puzzles with exactly one solution, all different, and equally many of each size.

    Train and test share no puzzle, whatever the seeds, nor one that differs only in names, roles,
    wording, the order of the people or how a statement is put: `_shape` decides the split. Within a
    split such relatives count as different, since puzzles of 2 people have but few shapes.

    Args:
        count: how many.
        seed: the same seed gives the same puzzles; a larger count goes on where a smaller one ends.
        split: `train`, or `test`, which gets one shape in 8.
        people: the sizes, from 2 to 9, taken in turn. The default is the paper's KnK-Easy; its
            KnK-Hard is (6, 7, 8).

    Returns:
        Items with the names of the `people`, their two `roles` (the truthful one first) and the
        `statements`, in the order of the people.

    Raises:
        ValueError: there is no such size or split, or not so many puzzles.
    """
    if not people or not set(people) <= set(range(2, 10)):
        raise ValueError(f"people must be sizes from 2 to 9, such as (4, 5, 6), got {people!r}")
    draws, seen = Draws.of_split(NAME, split, seed), Seen()
    for number in range(count):
        size = people[number % len(people)]
        item = first(MAX_MISSES, partial(_draw, draws, seen, split, size))
        if item is None:
            raise ValueError(
                f"only {number} different puzzles were found in {split} for people {people!r}, "
                f"got count {count}: ask for fewer, or for more sizes"
            )
        yield item


def _draw(draws: Draws, seen: Seen, split: Split, size: int) -> Item | None:
    """A new puzzle, or None if the statements drawn are of the other split or make none."""
    statements = [_statement(draws, speaker, size) for speaker in range(size)]
    if split_of(f"{NAME} {_shape(statements)}") != split or worlds(statements).bit_count() != 1:
        return None
    names, roles = draws.sample(NAMES, size), list(draws.choice(ROLES))
    item = {"people": names, "roles": roles, "statements": statements}
    return item if seen.add(repr(item)) else None


def worlds(statements: Sequence[Statement]) -> int:
    """The set of worlds in which what somebody says holds if, and only if, they tell the truth.

    It is empty where the statements are a paradox, and has one member where they are a puzzle.
    """
    truthful = _truthful(len(statements))
    found = (1 << (1 << len(statements))) - 1
    for speaker, (kind, *parts) in enumerate(statements):
        holds = KINDS[kind](*[truthful[who] if truth else ~truthful[who] for who, truth in parts])
        found &= ~(truthful[speaker] ^ holds)
    return found


def label(item: Item) -> str:
    """JSON name -> role, the solution of the statements; ValueError if they have not just one."""
    found = worlds(item["statements"])
    if found.bit_count() != 1:
        raise ValueError(f"a puzzle has one solution, got {found.bit_count()} for {dict(item)}")
    world = found.bit_length() - 1
    truthful, lying = item["roles"]
    roles = [truthful if world >> i & 1 else lying for i in range(len(item["people"]))]
    return json.dumps(dict(zip(item["people"], roles, strict=True)), ensure_ascii=False)


def score(response: str, label: str) -> Score:
    """Grades the last box, such as "Owen is a sage, and Liam is a fool", in any order and case.

    `correct` has everybody's role; saying one twice does no harm. `wrong` has somebody's other
    role, both roles, or none. `malformed` holds anything but names and roles of this puzzle and
    what joins them: other names or roles, "not", "or", "if". Names share a role only if commas or
    "and" are all that stands between them: "Owen; Liam is a fool" is malformed.

    Raises:
        ValueError: the label is not a JSON object from names, one word each, to roles of one pair.
    """
    solution, pair, names = _solution(label)
    answer = last_boxed(response)
    if answer is None or not answer.strip():
        return scored("no_answer", "nothing in \\boxed{}")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored("malformed", f"{len(answer)} characters in \\boxed{{}}")
    claims: set[tuple[str, str]] = set()
    waiting: list[str] = []  # names that have no role yet, as the first in "Ann and Bob are fools"
    for joint, word in WORDS.findall(answer.casefold()):
        if not word:
            break
        if word in solution:
            if waiting and not joins_names(joint):
                break
            waiting.append(word)
        elif waiting and (role := SINGULAR.get(word)) in pair:
            claims.update((name, role) for name in waiting)
            waiting = []
        else:
            return scored("malformed", f"cannot read {word[:40]!r} as a name or role here")
    if waiting:
        return scored("malformed", f"no role follows {names[waiting[-1]]!r}")
    mistaken = {names[name] for name, _ in claims ^ solution.items()}
    if mistaken:
        return scored("wrong", f"wrong role, both or none: {', '.join(sorted(mistaken))}")
    return scored("correct", f"the roles of all {len(solution)}")


def right_response(label: str) -> str:
    """A response that answers what the label says."""
    _solution(label)
    claims = [claim(name, role) for name, role in json.loads(label).items()]
    return f"Only this fits: \\boxed{{{listed(claims)}}}."


def wrong_response(label: str) -> str:
    """A response that gives the first person the other role."""
    _, (truthful, lying), _ = _solution(label)
    solution = json.loads(label)
    first = next(iter(solution))
    solution[first] = lying if solution[first].casefold() == truthful else truthful
    return right_response(json.dumps(solution))


def _statement(draws: Draws, speaker: int, size: int) -> Statement:
    """A statement for a speaker: all kinds are equally likely, and so are those it is about."""
    kind = draws.choice(tuple(KINDS))
    if kind == "is":
        return [kind, [_another(draws, speaker, size), draws.below(2) == 1]]
    first = draws.below(size)
    second = _another(draws, first, size)
    return [kind, [first, draws.below(2) == 1], [second, draws.below(2) == 1]]


def _another(draws: Draws, person: int, size: int) -> int:
    return (person + 1 + draws.below(size - 1)) % size


def _shape(statements: Sequence[Statement]) -> str:
    """What sort of thing is said how often, of oneself or of whichever other person.

    Puzzles have the same shape if they differ in names, in the order of the people or of the parts
    of a statement, in which others are talked about, or in statements that hold in the same worlds,
    such as "if Ann is a fool then Bob is" and "Ann is a sage or Bob is a fool, or both".
    """
    shapes = []
    for speaker, (kind, *parts) in enumerate(statements):
        truths = [truth for _, truth in parts]
        if kind == "if":  # its condition does not hold, or its consequence does
            kind, truths[0] = "or", not truths[0]
        elif kind == "iff":  # turning both sides around makes no difference
            truths = [truths[0] == truths[1]] * 2
        subjects = ["own" if who == speaker else "other" for who, _ in parts]
        said = [f"{who} {truth}" for who, truth in zip(subjects, truths, strict=True)]
        shapes.append(f"{kind} {', '.join(sorted(said))}")
    return "; ".join(sorted(shapes))


@lru_cache
def _truthful(size: int) -> tuple[int, ...]:
    """For every person the set of worlds in which they tell the truth."""
    return tuple(
        sum(1 << world for world in range(1 << size) if world >> person & 1)
        for person in range(size)
    )


class _Solution(NamedTuple):
    roles: dict[str, str]  # by name, both in lower case
    pair: tuple[str, str]  # that they are of, the truthful one first
    names: dict[str, str]  # as they are written in the label, by name in lower case


@lru_cache(256)
def _solution(label: str) -> _Solution:
    """What a label holds; ValueError if that is no solution."""
    form = f"a JSON object from different names, one word each, to roles of one pair of {ROLES}"
    return read_label(label, _taken, form)


def _taken(found: Any) -> _Solution:
    roles = {name.casefold(): role.casefold() for name, role in found.items()}
    pair = PAIRS[next(iter(roles.values()), "")]
    words = [word for _, word in WORDS.findall(",".join(roles))]
    is_clear = words == [*roles, ""] and not roles.keys() & SINGULAR
    if not is_clear or not set(roles.values()) <= set(pair) or len(roles) < len(found):
        raise ValueError("no solution")
    return _Solution(roles, pair, dict(zip(roles, found, strict=True)))
