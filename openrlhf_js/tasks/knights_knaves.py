"""Knights and Knaves: who always tells the truth and who always lies, from what each of them says.

A statement is a list: its kind, then `[person, truthful]` for each of its parts, where `truthful`
says which role is claimed: `["if", [0, true], [4, false]]` is "if Owen is a sage then Sofia is a
fool". A world gives everybody a role; bit i of its number is 1 where person i tells the truth. A
set of worlds is an integer of 2^n bits, so that a few operations try a puzzle in all its worlds.

No statement is empty: nobody merely names their own role, and the two parts of a compound are about
different people, one of whom may be the speaker.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from openrlhf_js.tasks import base
from openrlhf_js.tasks.answers import boxed_or_tagged
from openrlhf_js.tasks.base import Item, Message, Score, Split, scored

NAME = "knights_knaves"
answer_of = boxed_or_tagged
MAX_ANSWER_CHARACTERS = 10_000
TRIES = 20_000  # draws in a row without a new puzzle; one in 3 is one, one in 60 for test

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
# Those who tell the truth, and those who lie. A role belongs to one pair, so that a label in which
# all have the same role still tells what the other one is.
ROLES = (
    ("knight", "knave"),
    ("sage", "fool"),
    ("saint", "sinner"),
    ("hero", "villain"),
    ("angel", "devil"),
    ("altruist", "egoist"),
    ("pioneer", "laggard"),
)
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
OPENINGS = (
    "Everyone on a small island is either {truthful} or {lying}.",
    "You are visiting a village in which every inhabitant is either {truthful} or {lying}.",
    "Only two sorts of people live in a faraway valley: each of them is {truthful} or {lying}.",
)
# Always quoted: in "Ann said that Bob is a fool and Eve is a sage" it is open who says the end.
WORDINGS = (
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
)


def generate(
    count: int, seed: int, split: Split = "train", people: Sequence[int] = (4, 5, 6)
) -> Iterator[Item]:
    """Puzzles with exactly one solution, all different, and equally many of each size.

    `people` are the sizes, from 2 to 9; the default is the paper's KnK-Easy, its KnK-Hard is
    (6, 7, 8). An item has the names of the `people`, their two `roles` (the truthful one first) and
    the `statements`, in the order of the people. Test gets one `_shape` in 8, so that no puzzle
    differs from one in train only in names, roles, wording, the order of the people or how a
    statement is put. Within a split such relatives count as different.
    """
    if not people or not set(people) <= set(range(2, 10)):
        raise ValueError(f"people must be sizes from 2 to 9, such as (4, 5, 6), got {people!r}")
    rng, seen = base.random_of(NAME, split, seed), set[int]()

    def draw(size: int) -> Item | None:
        statements = [_statement(rng, speaker, size) for speaker in range(size)]
        key = f"{NAME} {_shape(statements)}"
        if base.split_of(key) != split or worlds(statements).bit_count() != 1:
            return None
        names, roles = rng.sample(NAMES, size), list(rng.choice(ROLES))
        item = {"people": names, "roles": roles, "statements": statements}
        return item if base.is_new(seen, repr(item)) else None

    yield from base.in_turn(draw, people, count, TRIES, f"{split} puzzles of {{}} people")


def _statement(rng: random.Random, speaker: int, size: int) -> Statement:
    """A statement for a speaker: all kinds are equally likely, and so are those it is about."""

    def part(other_than: int) -> list[Any]:
        return [(other_than + 1 + int(rng.random() * (size - 1))) % size, rng.random() < 0.5]

    kind = rng.choice(tuple(KINDS))
    if kind == "is":
        return [kind, part(speaker)]
    first = [int(rng.random() * size), rng.random() < 0.5]
    return [kind, first, part(first[0])]


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


@lru_cache
def _truthful(size: int) -> tuple[int, ...]:
    """For every person the set of worlds in which they tell the truth."""
    return tuple(
        sum(1 << world for world in range(1 << size) if world >> person & 1)
        for person in range(size)
    )


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


def prompt(item: Item) -> list[Message]:
    """One user message. Its wording varies, and follows from the item alone."""
    people, (truthful, lying) = item["people"], item["roles"]
    rng = random.Random(json.dumps([people, item["roles"], item["statements"]]))
    said = []
    wordings = rng.sample(WORDINGS, len(people))
    for name, (kind, *parts), wording in zip(people, item["statements"], wordings, strict=True):
        claims = [_claim(people[who], truthful if truth else lying) for who, truth in parts]
        quote = STATEMENTS[kind].format(*claims)
        said.append(wording.format(name=name, quote=quote[0].upper() + quote[1:]))
    opening = rng.choice(OPENINGS).format(truthful=_one(truthful), lying=_one(lying))
    text = (
        f"{opening} {_plural(truthful).capitalize()} always tell the truth, and {_plural(lying)} "
        f"always lie. You meet {len(people)} of them: {_listed(people)}. {' '.join(said)} "
        f"Who is {_one(truthful)} and who is {_one(lying)}? Think step by step, and put the final "
        f"answer in \\boxed{{}}, with everyone's role, in the form "
        f"\\boxed{{{_claim('NAME', truthful)}, {_claim('NAME', lying)}, ...}}."
    )
    return [{"role": "user", "content": text}]


def _claim(name: str, role: str) -> str:
    return f"{name} is {_one(role)}"


def _one(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"


def _plural(role: str) -> str:
    return role + ("es" if role.endswith("o") else "s")


def _listed(parts: Sequence[str]) -> str:
    last = f"{',' if len(parts) > 2 else ''} and {parts[-1]}"
    return ", ".join(parts[:-1]) + last if len(parts) > 1 else parts[0]


def label(item: Item) -> str:
    """JSON name -> role, the solution of the statements; ValueError if they have not just one."""
    found = worlds(item["statements"])
    if found.bit_count() != 1:
        raise ValueError(f"a puzzle has one solution, got {found.bit_count()} for {dict(item)}")
    world = found.bit_length() - 1
    truthful, lying = item["roles"]
    roles = [truthful if world >> i & 1 else lying for i in range(len(item["people"]))]
    return json.dumps(dict(zip(item["people"], roles, strict=True)), ensure_ascii=False)


PAIRS = {role: pair for pair in ROLES for role in pair}
_SINGULAR = {word: role for role in PAIRS for word in (role, _plural(role))}
_LAYOUT = r"[\s{}$*]|\\(?:text|math|boxed)[a-z]*|\\[\s,;:!]"
_JOINTS = (
    _LAYOUT,
    r"[-=]>|[\",;.:=&()\[\]\u2013\u2014\u2192-]",
    r"\d+[.)](?=\s)",
    r"\\q?quad",
    r"\\[\\()\[\]{}&$]",
    r"\\(?:begin|end)\{\w+\*?\}(?:\{[lcr|]*\})?",
    r"(?:is|are|and|but|while|both|so|thus|hence|therefore)\b",
    # Only before a role is "a" an article, and not the person A.
    rf"(?:an?|the)(?:{_LAYOUT})+(?=(?:{'|'.join(_SINGULAR)})\b)",
)
# Finds every word or other character, and what joins it to the one before. Since "." takes
# whatever is left, the engine never steps back, and time is in proportion to length.
_WORDS = re.compile(rf"((?:{'|'.join(_JOINTS)})*)([^\W_]+(?:['-][^\W_]+)*|.|\Z)", re.DOTALL)

_HEADING = re.compile(rf"\b({'|'.join(_SINGULAR)})(?:{_LAYOUT})*:")
_ENDS = " \t\r\n,;.*-"  # around names below headings


def _joins_names(joint: str) -> bool:
    """Whether it is a comma, "and" or "&", or several, with layout at most around them."""
    return set(re.sub(r"\\?&|,", " and ", re.sub(_LAYOUT, " ", joint)).split()) == {"and"}


@lru_cache(256)
def _solution(label: str) -> tuple[dict[str, str], tuple[str, str]]:
    """The roles by name, in lower case, and the pair that they are of; ValueError if malformed."""

    def read(found: Any) -> tuple[dict[str, str], tuple[str, str]]:
        roles = {name.casefold(): role.casefold() for name, role in found.items()}
        pair = PAIRS[next(iter(roles.values()), "")]
        words = [word for _, word in _WORDS.findall(",".join(roles))]
        is_clear = words == [*roles, ""] and not roles.keys() & {*_SINGULAR, "not"}
        if not is_clear or not set(roles.values()) <= set(pair) or len(roles) < len(found):
            raise ValueError("no solution")
        return roles, pair

    form = f"a JSON object from different names, one word each, to roles of one pair of {ROLES}"
    return base.read_label(label, read, form)


def score(response: str, label: str) -> Score:
    """Grades the last box, or without one the last `<answer>`, such as "Owen is a sage, ...".

    `correct` has everybody's role, `wrong` somebody's other role, both or none; `malformed` holds
    anything but names and roles of this puzzle and what joins them. ValueError if the label is
    malformed.
    """
    roles, pair = _solution(label)
    answer = answer_of(response)
    if answer is None:
        return scored("no_answer", "nothing in \\boxed{}")
    try:
        claims = _claims(answer)
    except ValueError as error:
        return scored("malformed", str(error))
    if strange := (claims.keys() - roles.keys()) | (set(claims.values()) - {*pair, "both"}):
        return scored("malformed", f"not in this puzzle: {sorted(strange)!r:.80}")
    if mistaken := [name.title() for name, role in roles.items() if claims.get(name) != role]:
        return scored("wrong", f"wrong role, both or none: {', '.join(sorted(mistaken))}")
    return scored("correct", f"the roles of all {len(roles)}")


def claims_of(response: str) -> dict[str, str] | None:
    """Who has which role (or "both") by a response, in lower case; None if it cannot be read."""
    answer = answer_of(response)
    try:
        return None if answer is None else _claims(answer)
    except ValueError:
        return None


def _claims(answer: str) -> dict[str, str]:
    """The role of everyone an answer names, in lower case; ValueError if it is unclear.

    Roles follow names, as in "Ann and Bob are fools" or "Eve is not a sage", or all of them are
    headings, as in "Sages: Eve; fools: Ann, Bob". Names share a role only if commas or "and" are
    all that stands between them: "Owen; Liam is a fool" is unclear.
    """
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise ValueError(f"an answer of {len(answer)} characters")
    answer = answer.casefold()
    start, *sections = _HEADING.split(answer)
    if sections and not start.strip(_ENDS):
        below = [names.strip(_ENDS) for names in sections[1::2]]
        if any(word in _SINGULAR or word == "not" for _, word in _WORDS.findall("; ".join(below))):
            raise ValueError("it holds a role or a negation below a heading")
        answer = "; ".join(map("{} {}".format, below, sections[::2]))
    claims: dict[str, str] = {}
    waiting: list[str] = []  # names that have no role yet, as the first in "Ann and Bob are fools"
    negated = False
    for joint, word in _WORDS.findall(answer):
        if not word:
            break
        if word == "not" and len(waiting) == 1 and not negated:
            negated = True
        elif word in _SINGULAR and waiting and not (negated and "both" in joint):
            role = _SINGULAR[word]
            role = PAIRS[role][role == PAIRS[role][0]] if negated else role
            claims.update(
                (name, role if claims.get(name, role) == role else "both") for name in waiting
            )
            waiting, negated = [], False
        elif word in _SINGULAR or word == "not" or negated:
            raise ValueError(f"cannot read {word[:40]!r} as a name or role here")
        elif waiting and not _joins_names(joint):
            break
        else:
            waiting.append(word)
    if waiting:
        raise ValueError(f"no role follows {waiting[-1][:40]!r}")
    return claims


def right_response(label: str) -> str:
    """A response that answers what the label says."""
    _solution(label)
    claims = [_claim(*each) for each in json.loads(label).items()]
    return f"Only this fits: \\boxed{{{_listed(claims)}}}."


def wrong_response(label: str) -> str:
    """A response that gives the first person the other role."""
    roles, pair = _solution(label)
    other = pair[next(iter(roles.values())) == pair[0]]
    solution = json.loads(label)
    return right_response(json.dumps({**solution, next(iter(solution)): other}))
