r"""What an answer's text can stand for: times, dates, choices, words, mathematics."""

from __future__ import annotations

import re
from fractions import Fraction

from openrlhf_js.tasks.equivalence.members import with_one_parameter
from openrlhf_js.tasks.equivalence.quantities import quantity
from openrlhf_js.tasks.equivalence.syntax import read
from openrlhf_js.tasks.equivalence.tokens import FUNCTIONS, NUMBER_WORDS, NotRead
from openrlhf_js.tasks.equivalence.tree import Tree, number

_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_CLOCK = re.compile(r"(\d{1,2})(?: ?: ?([0-5]\d))?(?: ?([aApP])\.? ?[mM]\.?)?\Z")
_NAMED_HOUR = re.compile(r"(?:12(?::00)? ?)?(noon|midnight)\Z")
_MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:[a-z]{0,7})\.?"
_DATES = [
    re.compile(_MONTH + r" (?P<day>\d{1,2})(?:,? (?P<year>\d{4}))?\Z"),
    re.compile(r"(?P<day>\d{1,2}) (?:of )?" + _MONTH + r"(?:,? (?P<year>\d{4}))?\Z"),
    re.compile(r"(?P<year>\d{4})-(?P<number>\d{2})-(?P<day>\d{2})\Z"),
    re.compile(r"(?P<number>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})\Z"),
]
_ANNOUNCED = re.compile(
    r"(?:\\text ?\{ ?)?(?:so |thus |therefore |hence )?(?:the |our |my )?(?:final |correct )?"
    r"(?:answer|result|value|total)(?: is| equals|:| =)+[:}\s]*",
    re.IGNORECASE,
)
_COUNTS = re.compile(  # `there are 7 ways`
    r"(?:\\text ?\{ ?)?there (?:is|are) (?:exactly |a total of )?(?=\d+ [a-z]+\}?\Z)", re.IGNORECASE
)
_SAID_OF = re.compile(  # what is said of something, if it is no word
    r"(?:\\text ?\{ ?)?(?:so |thus |therefore |hence )?the (?:[a-z]+ ){1,8}(?:is|are|equals):?[} ]*"
    r"(?=[^ a-zA-Z])",
    re.IGNORECASE,
)
_HEADED = re.compile(r"\\text ?\{ ?[A-Za-z][A-Za-z ]{1,40}: ?\} ?(?=[^ a-zA-Z])")  # `Area: 5`
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) |has )?no (?:(?:real|such|possible|valid|integer|positive) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?\Z"
)
_CHOICE = re.compile(  # with its value behind it, which begins as no operation does
    r"(?:\(([A-J])\)|([A-J])[.):])[ .:]*(?=[^\s.:+^!=/*_'|,<>%])"
    r"(?!\\(?:cup|cap|setminus|pm|neq|leq|geq|approx|pmod|mod|rightarrow)(?![a-z]))"
)
_LETTER = re.compile(r"\(?[A-J]\)?\Z")
_OPTION = re.compile(r"(?:[Oo]ption|[Cc]hoice):? \(?([A-J])\)?\Z|\(?([A-J])\)\Z")
_SEVERAL = re.compile(r"[,;]|\b(?:or|and)\b")
_PROSE = re.compile(r"[A-Za-z]+(?:[ '-]+[A-Za-z]+)+\Z")
_REPLY = re.compile(r"(?:yes|no)[,.;:] [a-z']+(?: [a-z,']+)+\Z", re.IGNORECASE)
_SIZES = "hundred|thousand|[mb]illion|halves|quarters|thirds|(?:four|fif|six|seven|eigh|nin|ten)ths"
_COUNTED = re.compile(rf"(?:{'|'.join(NUMBER_WORDS)}) (?:{_SIZES})\Z", re.IGNORECASE)
_LETTERS = re.compile(r"(?=.{2,5}\Z)A?B?C?D?E?\Z")
_GROUPED = re.compile(r"\d,[1-9]\d\d")
_WORDS = re.compile(r"[A-Za-z0-9 ,.'\"!?&/():;-]+\Z")
_WORD = re.compile(r"[A-Za-z]{2}")
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_NOT_PROSE = FUNCTIONS | frozenset(("and", "or", "to", "pi", "in"))
_PREPOSITIONS = frozenset(("on", "in", "at"))
_ARTICLES = frozenset(("the", "a", "an"))
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
    "seventeenth", "eighteenth", "nineteenth", "twentieth",
)  # fmt: skip
_MEANT: dict[str, Tree] = {
    "none": Tree("empty", ()),
    "empty set": Tree("empty", ()),
    **{word: number(value) for value, word in enumerate(_ORDINALS, 1)},
    "dne": Tree("text", ("does not exist",)),
    "all real numbers": Tree("field", ("R",)),
    "all reals": Tree("field", ("R",)),
    "all prime numbers": Tree("text", ("all primes",)),
    "positive infinity": Tree("inf", ()),
    "negative infinity": Tree("neg", (Tree("inf", ()),)),
}


def readings(text: str) -> list[Tree]:
    """The trees of a canonical text (`text.normal`), the likeliest first.

    Raises:
        NotRead: if it can be read in no way.
    """
    announced = (
        _ANNOUNCED.match(text) or _SAID_OF.match(text) or _HEADED.match(text) or _COUNTS.match(text)
    )
    if announced:
        text = text[announced.end() :]
        text = text[: -(text.endswith("}") and text.count("}") > text.count("{")) or None]
    plain = " ".join(_TEXT.sub(r"\1", text).split()) if "\\text" in text else text
    option = _OPTION.match(plain)
    if option:
        return [Tree("sym", (option[1] or option[2],))]
    special = _clock(plain) or _date(plain)
    if special:
        return [special]
    found = []
    choice = _CHOICE.match(plain)
    if choice and not _SEVERAL.search(plain, choice.end()):
        found.append(Tree("sym", (choice[1] or choice[2],)))
        text = plain[choice.end() :]
        if _LETTER.match(text):  # one option's letter before another's: which is meant?
            return [Tree("text", (plain,))]
    if _REPLY.match(plain):
        return [_words(plain)]
    if (
        _PROSE.match(plain)
        and not _NOT_PROSE.intersection(re.split("[^A-Za-z]+", plain))
        and not _COUNTED.match(plain)
        and len(plain) > 5
    ):
        return [_words(plain)]
    try:
        tree = read(text)
        if tree.kind == "measure":
            quantity(tree)
        found.append(_words(tree.args[0]) if tree.kind == "text" else tree)
        if with_one_parameter(tree) != tree:
            found.append(with_one_parameter(tree))
        if _GROUPED.search(text) and tree.kind != "measure":
            found.append(read(text, grouped=False))
    except (NotRead, RecursionError) as problem:
        if _WORDS.match(plain) and _WORD.search(plain) and plain[0] != "-":
            found.append(_words(plain))
        elif not found:
            raise NotRead(str(problem)) from problem
    if _LETTERS.match(plain):  # several choices
        found.append(Tree("list", tuple(Tree("sym", (letter,)) for letter in plain)))
    return found


def _words(text: str) -> Tree:
    """Words in lower case without articles and punctuation, or what they are known to mean."""
    words = [word for word in _PUNCTUATION.sub(" ", text.lower()).split() if word not in _ARTICLES]
    words = words[len(words) == 2 and words[0] in _PREPOSITIONS :]  # `on Tuesday`
    canonical = " ".join(words)
    if _NOTHING.match(canonical):
        return Tree("empty", ())
    return _MEANT.get(canonical, Tree("text", (canonical,)))


def _clock(plain: str) -> Tree | None:
    """A time of day: its minutes after midnight, or after twelve where no half is said."""
    named = _NAMED_HOUR.match(plain.lower())
    if named:
        noon = named[1] == "noon"
        return Tree("clock", (720 * noon, "p" if noon else "a", "12", "00"))
    match = _CLOCK.match(plain)
    if not match or not (match[2] or match[3]):
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
    if hour > 24 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + 12 * (half == "p")
    return Tree("clock", (60 * hour + minute, half, match[1], match[2]))


def _date(plain: str) -> Tree | None:
    lowered = plain.lower() if len(plain) < 30 else ""
    for pattern in _DATES:
        match = pattern.match(lowered)
        if match:
            parts = match.groupdict()
            month = int(parts.get("number") or _MONTHS.index(parts["month"]) + 1)
            day = int(parts["day"])
            if 1 <= month <= 12 and 1 <= day <= 31:
                return Tree("text", (f"date {parts['year'] or ''} {month} {day}",))
    return None


def as_ratio(clock: Tree) -> Tree:
    """What `3:45` is where no time of day is asked for."""
    return Tree(
        "ratio", (number(Fraction(int(clock.args[2]))), number(Fraction(int(clock.args[3] or 0))))
    )
