"""Knights and Knaves: who always tells the truth and who always lies, from what each of them says.

A statement is a list: its kind, then `[person, truthful]` for each of its parts: `["if", [0, true],
[4, false]]` is "if Owen is a sage then Sofia is a fool". Nobody merely names their own role, and
both parts of a compound are about different people. A world gives everybody a role; bit i of its
number is 1 where person i tells the truth. A set of worlds is an integer of 2^n bits.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from openrlhf_js.tasks import base
from openrlhf_js.tasks.answers import boxed_or_tagged
from openrlhf_js.tasks.base import Item, Message, Score, Split, Wording, scored

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
# Those who tell the truth, and those who lie; a role belongs to one pair.
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
OPENINGS: dict[Wording, Sequence[str]] = {
    "own": (
        "Everyone on a small island is either {truthful} or {lying}.",
        "You are visiting a village in which every inhabitant is either {truthful} or {lying}.",
        "Only two sorts of people live in a faraway valley: each of them is {truthful} or {lying}.",
    ),
    "paper": ("A very special island is inhabited only by {truthfuls} and {liars}.",),
}
SAYINGS: dict[Wording, Sequence[str]] = {
    # Always quoted: in "Ann said that Bob is a fool and Eve is a sage" it is open who says the end.
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
    * 2,
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

    `people` are the sizes, from 2 to 9; the default is the paper's KnK-Easy, its KnK-Hard is
    (6, 7, 8). An item has the names of the `people`, their two `roles` (the truthful one first) and
    the `statements`, in the order of the people. Test gets one `_shape` in 8.
    """
    rng, seen = base.random_of(NAME, split, seed), set[int]()

    def draw(size: int) -> Item | None:
        statements = [_statement(rng, speaker, size) for speaker in range(size)]
        key = f"{NAME} {_shape(statements)}"
        if base.split_of(key) != split or worlds(statements).bit_count() != 1:
            return None
        names, roles = rng.sample(NAMES, size), list(rng.choice(ROLES))
        item = {"people": names, "roles": roles, "statements": statements, "wording": wording}
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
    """The set of worlds in which what somebody says holds if, and only if, they tell the truth."""
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

    It is the same whatever the names, their order, or which of two equal forms a statement has.
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
    roles = dict(zip(("truthful", "lying"), map(_one, item["roles"]), strict=True))
    request = REQUESTS[item.get("wording", "own")].format(**roles)
    return [{"role": "user", "content": f"{_quiz(item, roles)} {request}"}]


def _quiz(item: Item, roles: Mapping[str, str]) -> str:
    """The puzzle in words, up to its question."""
    wording: Wording = item.get("wording", "own")
    people, is_own = item["people"], wording == "own"
    rng = random.Random(json.dumps([people, item["roles"], item["statements"]]))
    said = []
    sayings = rng.sample(SAYINGS[wording], len(people))
    for name, (kind, *parts), saying in zip(people, item["statements"], sayings, strict=True):
        claims = [f"{people[who]} is {_one(item['roles'][not truth])}" for who, truth in parts]
        quote = STATEMENTS[kind].format(*claims)
        quote = quote[0].upper() + quote[1:] if is_own else quote.removesuffix(", or both")
        said.append(saying.format(name=name, quote=quote))
    truthful, lying = map(_plural, item["roles"])
    opening = rng.choice(OPENINGS[wording]).format(**roles, truthfuls=truthful, liars=lying)
    return (
        f"{opening} {truthful.capitalize()} always tell the truth, and {lying} always lie. "
        f"You meet {len(people)} {'of them' if is_own else 'inhabitants'}: {_listed(people)}. "
        f"{' '.join(said)} {'Who' if is_own else 'So who'} is {roles['truthful']} and who is "
        f"{roles['lying']}?"
    )


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
    roles = [item["roles"][not world >> i & 1] for i in range(len(item["people"]))]
    return json.dumps(dict(zip(item["people"], roles, strict=True)), ensure_ascii=False)


PAIRS = {role: pair for pair in ROLES for role in pair}
_SINGULAR = {word: role for role in PAIRS for word in (role, _plural(role))}
_LAYOUT = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}(?:\{[lcr|]*\})?|\\(?:text|math|boxed|q?quad)[a-z]*"
    r"|\\(?:[^\w&]|(?=&))|[{}$*]|(?<!\w)\d+[.)](?=\s)"  # the last: in front of lists' items
)
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|\S")
_JOINTS = {"is", "are", "and", "but", "while", "both", "so", "thus", "hence", "therefore"}
_JOINTS |= {*'",;.:=>&()[]-\u2013\u2014\u2192'}
_HEADING = re.compile(rf"\b({'|'.join(_SINGULAR)})\s*:")
_ENDS = " \t\r\n,;.-"  # around names below headings


@lru_cache(256)
def _solution(label: str) -> tuple[dict[str, str], tuple[str, str]]:
    """The roles by name, in lower case, and the pair that they are of; ValueError if malformed."""

    def read(found: Any) -> tuple[dict[str, str], tuple[str, str]]:
        roles = {name.casefold(): role.casefold() for name, role in found.items()}
        pair = PAIRS[next(iter(roles.values()), "")]
        is_clear = all(_WORD.fullmatch(name) for name in roles)
        is_clear = is_clear and not roles.keys() & {*_SINGULAR, *_JOINTS, "not"}
        if not is_clear or not set(roles.values()) <= set(pair) or len(roles) < len(found):
            raise ValueError("no solution")
        return roles, pair

    form = f"a JSON object from different names, one word each, to roles of one pair of {ROLES}"
    return base.read_label(label, read, form)


def score(response: str, label: str) -> Score:
    """Grades the last box, or without one the last `<answer>`, such as "Owen is a sage, ...".

    `wrong` gives somebody the other role, both or none; `malformed` holds anything but names and
    roles of this puzzle and what joins them. ValueError if the label is malformed.
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

    Roles follow names ("Ann and Bob are fools", "Eve is not a sage") or are headings ("Sages: Eve;
    fools: Ann, Bob"). Names that share a role have only commas or "and" between them.
    """
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise ValueError(f"an answer of {len(answer)} characters")
    answer = _LAYOUT.sub(" ", answer.casefold())
    start, *sections = _HEADING.split(answer)
    if sections and not start.strip(_ENDS):
        below = [names.strip(_ENDS) for names in sections[1::2]]
        if {*_WORD.findall("; ".join(below))} & {*_SINGULAR, "not"}:
            raise ValueError("it holds a role or a negation below a heading")
        answer = "; ".join(map("{} {}".format, below, sections[::2]))
    claims: dict[str, str] = {}
    waiting: list[str] = []  # names that have no role yet, as the first in "Ann and Bob are fools"
    negated, joint, words = False, set[str](), _WORD.findall(answer)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        # Only before a role is "a" an article, and not the person A.
        if word in _JOINTS or (word in ("a", "an", "the") and following in _SINGULAR):
            joint.add(word)
            continue
        if word == "not" and len(waiting) == 1 and not negated:
            negated = True
        elif word in _SINGULAR and waiting and not (negated and "both" in joint):
            role = _SINGULAR[word]
            role = PAIRS[role][role == PAIRS[role][0]] if negated else role
            for name in waiting:
                claims[name] = role if claims.get(name, role) == role else "both"
            waiting, negated = [], False
        elif word in _SINGULAR or word == "not" or negated:
            raise ValueError(f"cannot read {word[:40]!r} as a name or role here")
        elif waiting and (not joint or joint - {",", "and", "&"}):
            break
        else:
            waiting.append(word)
        joint = set()
    if waiting:
        raise ValueError(f"no role follows {waiting[-1][:40]!r}")
    return claims


def right_response(label: str) -> str:
    """A response that answers what the label says."""
    _solution(label)
    claims = [f"{name} is {_one(role)}" for name, role in json.loads(label).items()]
    return f"Only this fits: \\boxed{{{_listed(claims)}}}."


def wrong_response(label: str) -> str:
    """A response that gives the first person the other role."""
    roles, pair = _solution(label)
    other = pair[next(iter(roles.values())) == pair[0]]
    solution = json.loads(label)
    return right_response(json.dumps({**solution, next(iter(solution)): other}))
