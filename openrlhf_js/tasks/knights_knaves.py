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

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, get_args

from openrlhf_js.tasks.answers import last_boxed
from openrlhf_js.tasks.base import Item, Score, scored
from openrlhf_js.tasks.draws import Draws, Split, split_of
from openrlhf_js.tasks.knights_knaves_text import NAMES, ROLES, claim, listed, plural, prompt

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
    wording or the order of the people: `_shape` decides the split. Within a split such relatives
    count as different, since puzzles of 2 people have but few shapes.

    Args:
        count: how many.
        seed: the same seed gives the same puzzles; a larger count goes on where a smaller one ends.
        split: `train`, or `test`, which gets one shape in 16.
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
    if split not in get_args(Split):
        raise ValueError(f"split must be train or test, got {split!r}")
    draws = Draws(f"{NAME}/{split}/{seed}")
    seen: set[bytes] = set()
    for number in range(count):
        size = people[number % len(people)]
        for _ in range(MAX_MISSES):
            statements = [_draw(draws, speaker, size) for speaker in range(size)]
            if split_of(f"{NAME} {_shape(statements)}") != split:
                continue
            if worlds(statements).bit_count() != 1:
                continue
            names, roles = draws.sample(NAMES, size), list(draws.choice(ROLES))
            item = {"people": names, "roles": roles, "statements": statements}
            digest = hashlib.sha256(repr(item).encode()).digest()[:8]
            if digest not in seen:
                break
        else:
            raise ValueError(
                f"only {number} different puzzles were found in {split} for people {people!r}, "
                f"got count {count}: ask for fewer, or for more sizes"
            )
        seen.add(digest)
        yield item


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
    for joint, word in _WORDS.findall(answer.casefold()):
        if not word:
            break
        if word in solution:
            if waiting and not _joins_names(joint):
                break
            waiting.append(word)
        elif waiting and (role := _SINGULAR.get(word)) in pair:
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


def _draw(draws: Draws, speaker: int, size: int) -> Statement:
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

    Puzzles have the same shape if they differ in names, in the order of the people, in the order of
    the parts of "and", "or" and "iff", or in which others are talked about. What is put in another
    kind of statement, such as "if" by "or", has another shape.
    """
    shapes = []
    for speaker, (kind, *parts) in enumerate(statements):
        said = [("own " if who == speaker else "") + ("true" if t else "lies") for who, t in parts]
        shapes.append(f"{kind} {', '.join(said if kind == 'if' else sorted(said))}")
    return "; ".join(sorted(shapes))


@lru_cache
def _truthful(size: int) -> tuple[int, ...]:
    """For every person the set of worlds in which they tell the truth."""
    return tuple(
        sum(1 << world for world in range(1 << size) if world >> person & 1)
        for person in range(size)
    )


_PAIRS = {role: pair for pair in ROLES for role in pair}
_SINGULAR = {word: role for role in _PAIRS for word in (role, plural(role))}
_LAYOUT = r"[\s{}$*]|\\(?:text|math|boxed)[a-z]*|\\[\s,;:!]"
_JOINTS = (
    _LAYOUT,
    r"[-=]>|[\",;.:=&()\[\]\u2013\u2014\u2192-]",
    r"\d+[.)](?=\s)",
    r"\\q?quad",
    r"\\[\\()\[\]{}&$]",
    r"\\(?:begin|end)\{\w+\*?\}(?:\{[lcr|]*\})?",
    r"(?:is|are|and|but|while|both)\b",
    # Only before a role is "a" an article, and not the person A.
    rf"(?:an?|the)(?:{_LAYOUT})+(?=(?:{'|'.join(_SINGULAR)})\b)",
)
# Finds every word or other character, and what joins it to the one before. Since "." takes
# whatever is left, the engine never steps back, and time is in proportion to length.
_WORDS = re.compile(rf"((?:{'|'.join(_JOINTS)})*)([^\W_]+(?:['-][^\W_]+)*|.|\Z)", re.DOTALL)


def _joins_names(joint: str) -> bool:
    """Whether it is a comma, "and" or "&", or several, with layout at most around them."""
    return set(re.sub(r"\\?&|,", " and ", re.sub(_LAYOUT, " ", joint)).split()) == {"and"}


@lru_cache(256)
def _solution(label: str) -> tuple[dict[str, str], tuple[str, str], dict[str, str]]:
    """The roles by name, both in lower case, the pair that they are of, and names as written."""
    try:
        found = json.loads(label)
        solution = {name.casefold(): role.casefold() for name, role in found.items()}
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(f"a label is a JSON object of name: role, got {label[:200]!r}") from None
    pair = _PAIRS.get(next(iter(solution.values()), ""))
    if pair is None or not set(solution.values()) <= set(pair) or len(solution) < len(found):
        raise ValueError(
            f"a label has different names, and roles of one pair of {ROLES}, got {label[:200]!r}"
        )
    words = [word for _, word in _WORDS.findall(",".join(solution))]
    if words != [*solution, ""] or solution.keys() & _SINGULAR:
        raise ValueError(f"a name is one word, and no role, got {label[:200]!r}")
    return solution, pair, dict(zip(solution, found, strict=True))
