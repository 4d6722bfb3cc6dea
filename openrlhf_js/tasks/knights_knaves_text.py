"""The words of Knights and Knaves: names, roles, how a puzzle is told and how an answer is read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from openrlhf_js.tasks.base import Item, Message
from openrlhf_js.tasks.draws import Draws

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


def prompt(item: Item) -> list[Message]:
    """One user message. Its wording varies, and follows from the item alone."""
    draws = Draws(json.dumps([item["people"], item["roles"], item["statements"]]))
    people, (truthful, lying) = item["people"], item["roles"]
    said = []
    wordings = draws.sample(WORDINGS, len(people))
    for name, (kind, *parts), wording in zip(people, item["statements"], wordings, strict=True):
        claims = [claim(people[who], truthful if truth else lying) for who, truth in parts]
        quote = STATEMENTS[kind].format(*claims)
        said.append(wording.format(name=name, quote=quote[0].upper() + quote[1:]))
    opening = draws.choice(OPENINGS).format(truthful=_one(truthful), lying=_one(lying))
    text = (
        f"{opening} {plural(truthful).capitalize()} always tell the truth, and {plural(lying)} "
        f"always lie. You meet {len(people)} of them: {listed(people)}. {' '.join(said)} "
        f"Who is {_one(truthful)} and who is {_one(lying)}? Think step by step, and put the final "
        f"answer in \\boxed{{}}, with everyone's role, in the form "
        f"\\boxed{{{claim('NAME', truthful)}, {claim('NAME', lying)}, ...}}."
    )
    return [{"role": "user", "content": text}]


def claim(name: str, role: str) -> str:
    """Such as "Owen is an angel"."""
    return f"{name} is {_one(role)}"


def listed(parts: Sequence[str]) -> str:
    """Such as "Owen, Liam, and Emily", or "Owen and Liam"."""
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def plural(role: str) -> str:
    """Such as "sages" and "heroes"."""
    return role + ("es" if role.endswith("o") else "s")


def _one(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"


PAIRS = {role: pair for pair in ROLES for role in pair}
SINGULAR = {word: role for role in PAIRS for word in (role, plural(role))}
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
    rf"(?:an?|the)(?:{_LAYOUT})+(?=(?:{'|'.join(SINGULAR)})\b)",
)
# Finds every word or other character, and what joins it to the one before. Since "." takes
# whatever is left, the engine never steps back, and time is in proportion to length.
WORDS = re.compile(rf"((?:{'|'.join(_JOINTS)})*)([^\W_]+(?:['-][^\W_]+)*|.|\Z)", re.DOTALL)


def joins_names(joint: str) -> bool:
    """Whether it is a comma, "and" or "&", or several, with layout at most around them."""
    return set(re.sub(r"\\?&|,", " and ", re.sub(_LAYOUT, " ", joint)).split()) == {"and"}
