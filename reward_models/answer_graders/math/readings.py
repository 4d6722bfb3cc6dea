"""What a canonical text can mean: a time, yes or no, an option's letter, a tree, or words."""

from __future__ import annotations

import contextlib
import datetime
import re

from answer_graders.math.syntax import read
from answer_graders.math.tree import NotRead, Tree, node, number, subtrees
from answer_graders.math.vocabulary import MONTHS, ORDINALS, announces

_SO = r"(?:so |thus |therefore |hence )?"
_ANNOUNCED = re.compile(
    rf"{_SO}(?:the |our |my )?(?:final |correct )?"
    r"(?:answer|result|value|total)(?: is| equals|:| =)+[:}\s]*"
    r"|(?:答案[是为]?|ответ|(?:la )?respuesta(?: es)?|(?:la )?réponse(?: est)?"
    r"|(?:die )?antwort(?: ist)?):? ?(?=[^ a-zA-Z])"
    r"|[a-z] (?:is|equals) (?=[^ a-zA-Z])"
    r"|there (?:is|are) (?:exactly |a total of )?(?=\d+ [a-z]+\Z)"
    r"|exactly (?=[^a-zA-Z])"
    rf"|{_SO}the (?:[a-z]+ ){{1,8}}(?:is|are|equals):? ?(?=[^ a-zA-Z])"
    r"|(?-i:[A-Z])[A-Za-z ]{1,40}: ?(?=[^ a-zA-Z])"  # `Area: 5`
    r"|(?:an?|the) (?=[a-z]{3})(?!and|sin|cos|tan|log)",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?: ?: ?(?P<minute>[0-5]\d))?(?: ?(?P<half>[aApP])\.? ?[mM]\.?)?\Z"
)
_DURATION = re.compile(r"\d{1,3} ?: ?[0-5]\d(?P<seconds> ?: ?[0-5]\d)?\Z", re.ASCII)
_LETTER = re.compile("[A-Za-z]")
_ANGLE = re.compile(r"(?:\\|(?<![a-z\\]))angle ([A-Z])([A-Z])([A-Z])")  # also `m\angle ABC`
_MONTHS = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in sorted(MONTHS)) + "|Sept"
# fmt: off
_MONTHS_IN_ORDER = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov",
                    "dec")
# fmt: on
_WEEKDAYS_IN_ORDER = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DATE = re.compile(
    r"(?:(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,? )?(?:(?P<first_year>\d{4}),? )?"
    rf"(?:the )?(?:(?P<day>\d{{1,2}})[- ](?:of )?(?P<month>{_MONTHS})\.?"
    rf"|(?P<first_month>{_MONTHS})\.? (?:the )?(?P<last_day>\d{{1,2}}))"
    r"(?:(?:,? ?| of |-)(?P<year>\d{4}))?\Z",
    re.IGNORECASE,
)
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d\d)(?P=sign)(?P<day>\d\d)\Z")
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})\Z")
_YES_OR_NO = re.compile(
    r"(yes|no)[,.](?!.*\b(?:but|only|if|yes|unless|except|provided|false|fails?|wrong)\b)"
    r"(?!(?<=yes[,.]).*(?:\b(?:no|not)\b|n't\b))"  # and after "no" one at most
    r"(?!(?:(?!\b(?:no|not)\b|n't\b).)*(?:\b(?:no|not)\b|n't\b).*(?:\b(?:no|not)\b|n't\b))",
    re.IGNORECASE,
)
_CHOICE = re.compile(  # perhaps followed by its value, which does not begin like an operation
    r"(?:(?:[Oo]ption|[Cc]hoice):? )?(?:\((?P<enclosed>[A-J])\)|(?P<bare>[A-J])(?:[.):]|\Z))[ .:]*"
    r"(?=\Z|[^\s.:+^!=/*_'|,<>%])(?!\\(?:cup|cap|setminus|pm|approx|pmod)(?![a-z]))"
)
_DENIED = re.compile(
    r"\b(?:answer|think|maybe|perhaps|also)\b|\b(?:not|be) \(?[A-J]\b"
    r"|\A\W*is (?:wrong|false|incorrect|not)\b"
)
_SEVERAL_CHOICES = re.compile("(?=.{2,5}$)A?B?C?D?E?")
_STATEMENTS = re.compile(r"(?:\(\d{1,2}\)(?:[ ,;和与與及]|and\b)*){2,}")  # `(1)(3)` or `①、③`
_CAPITALS = re.compile("[A-Z]{2,}")
_GROUPED_DIGITS = re.compile(r"-?[1-9]\d{0,2}(?:,[1-9]\d{2})+")
_PROSE = re.compile(r"[A-Za-z0-9 ,.'\"!?&/():;][A-Za-z0-9 ,.'\"!?&/():;-]*")
_SPOKEN = re.compile(r"[a-z]+|\.?\d+(?:[-.:]\d+)*!?|/|-(?= ?[\d.(])")
_MEANINGS = {"dne": "does not exist"}


def readings(text: str, units: bool = True) -> list[Tree]:
    """The trees of a canonical text, the most likely first; NotRead if there is none.

    Angle CBA is angle ABC. `units`: whether letters after numbers may be units.
    """
    trees = _readings(_ANGLE.sub(r"\1\2\3", text), units)
    if _ANGLE.search(text):
        trees += _readings(_ANGLE.sub(r"\3\2\1", text), units)
    return trees


def _readings(text: str, units: bool) -> list[Tree]:
    announced = _ANNOUNCED.match(text)
    if announced and announces(re.findall("[a-z]+", announced[0].lower())):
        text = text[announced.end() :]
    for reader in (_dates, _times, _statements):
        trees = reader(text)
        if trees and units:  # 3 pm may be picometres
            trees += _quantities(text)
        if trees:
            return trees
    word = _YES_OR_NO.match(text)
    if word:
        return [_yes_or_no(word[1], text[word.end() :].strip(), units)]
    letter, value = _choice(text)
    if letter is None:
        trees = _trees(value, units)
    elif not value:
        return [letter]
    else:
        trees = [letter, *_trees(value, units)]
    if not trees:
        read(value)  # raises NotRead
    return trees + _letters(value)


def _yes_or_no(word: str, rest: str, units: bool) -> Tree:
    """Yes or no, with the readings of what follows: none if it cannot be read."""
    with contextlib.suppress(NotRead):
        return node("reply", word.lower(), tuple(readings(rest, units)))
    return node("reply", word.lower(), ())


def _statements(text: str) -> list[Tree]:
    """The numbers of statements, `①③` or `(1)(3)`, as a list rather than a product; or none."""
    if not _STATEMENTS.fullmatch(text):
        return []
    return [node("list", *(number(int(digits)) for digits in re.findall(r"\d+", text)))]


def _choice(text: str) -> tuple[Tree | None, str]:
    """The letter of the option that the text begins with, or None, and the rest of the text."""
    choice = _CHOICE.match(text)
    if not choice:
        return None, text
    value = text[choice.end() :]
    if re.search(r"[,;]|\b(?:or|and)\b", value):
        return None, text
    if _DENIED.search(value):
        return node("text", text), ""
    if re.fullmatch(r"\(?[A-J]\)?", value):  # two letters are no answer
        return node("text", text), ""
    return node("sym", choice["enclosed"] or choice["bare"]), value


def _dates(text: str) -> list[Tree]:
    """The text as a date in words, `mar 5 2024` for `5 March 2024`; none if it is no date.

    A day of the week must be correct.
    """
    date = _DATE.match(text)
    if not date:
        return _dates_in_numbers(text)
    month = (date["month"] or date["first_month"])[:3].lower()
    day = int(date["day"] or date["last_day"])
    year = date["first_year"] or date["year"] or ""
    if date["first_year"] and date["year"]:
        return []
    if date["weekday"] and not _is_weekday(date["weekday"].lower(), year, month, day):
        return []
    return [node("text", f"{month} {day} {year}".rstrip())]


def _is_weekday(weekday: str, year: str, month: str, day: int) -> bool:
    try:
        date = datetime.date(int(year), _MONTHS_IN_ORDER.index(month) + 1, day)
    except ValueError:
        return False
    return _WEEKDAYS_IN_ORDER[date.weekday()] == weekday


def _dates_in_numbers(text: str) -> list[Tree]:
    """The date of `2024-03-05` or `25/12/2024`; none if day and month could be swapped."""
    year_first = _YEAR_FIRST.match(text)
    year_last = _YEAR_LAST.match(text)
    if year_first:
        month, day = int(year_first["month"]), int(year_first["day"])
        year = year_first["year"]
    elif year_last:
        month, day = int(year_last[1]), int(year_last[3])
        year = year_last[4]
        if month > 12:
            month, day = day, month
        elif day <= 12 and day != month:
            return []
    else:
        return []
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return []
    return [node("text", f"{_MONTHS_IN_ORDER[month - 1]} {day} {year}")]


def _times(text: str) -> list[Tree]:
    """The text as a time of day, or none; am and pm are treated like units.

    A time that am or pm changes on the 24-hour clock is also read so: 8:34 pm as 20:34. An hour
    with a leading 0 is before noon.
    """
    clock = _CLOCK.match(text)
    if not clock or not (clock["minute"] or clock["half"]):
        return []
    hour = int(clock["hour"])
    minute = clock["minute"] or "00"
    half = (clock["half"] or "").lower()
    if not half and clock["hour"].startswith("0"):
        half = "a"
    unit = ((half, 1),) if half else ()
    times = [node("measure", node("text", f"{hour}:{minute}"), unit)]
    hour_of_day = {"a": hour % 12, "p": hour % 12 + 12}.get(half, hour)
    if hour_of_day != hour <= 12:
        times.append(node("measure", node("text", f"{hour_of_day}:{minute}"), ()))
    return times


def _letters(text: str) -> list[Tree]:
    """A text that is just the letters of several options, as a list; or none."""
    if not _SEVERAL_CHOICES.fullmatch(text):
        return []
    return [node("list", *(node("sym", letter) for letter in text))]


def _trees(text: str, units: bool) -> list[Tree]:
    """The readings with letters as variables, and those with letters after numbers as units."""
    trees = _plain(text)
    if units:
        trees += _quantities(text)
    return trees


def _quantities(text: str) -> list[Tree]:
    """The readings with units, if any; parts between commas are one quantity, or a list."""
    trees: list[Tree] = []
    if not _LETTER.search(text):
        return trees
    may_be_list = "," in text or "and" in text
    for long_compounds in (True, False) if may_be_list else (True,):
        with contextlib.suppress(NotRead):
            tree = read(text, units=True, long_compounds=long_compounds)
            if _states_quantities(tree):
                trees.append(tree)
    return trees


def _states_quantities(tree: Tree) -> bool:
    """Whether the tree states or lists quantities, none of them inside an expression."""
    if tree.kind in ("list", "group", "rel"):
        return all(_states_quantities(arg) for arg in tree.args if isinstance(arg, Tree))
    parts = tree.args if tree.kind == "quantity" else (tree,)
    return all(
        part.kind != "quantity" for arg in parts if isinstance(arg, Tree) for part in subtrees(arg)
    )


def durations(text: str) -> list[Tree]:
    """The text as a duration: 2:05 is hours and minutes, or minutes and seconds."""
    duration = _DURATION.match(text)
    if not duration:
        return []
    total = 0
    for part in duration[0].split(":"):
        total = 60 * total + int(part)
    units = ["second"] if duration["seconds"] else ["second", "minute"]
    return [node("quantity", number(total), ((unit, 1),)) for unit in units]


def _plain(text: str) -> list[Tree]:
    """The text as read by the grammar, or else as plain words."""
    if _CAPITALS.fullmatch(text):
        return [_words(text)]
    try:
        tree = read(text)
    except NotRead:
        is_prose = _PROSE.fullmatch(text) and re.search("[A-Za-z]{2}", text)
        if is_prose:
            return [_words(text)]
        return []
    if tree.kind == "text":
        return [_words(tree.args[0])]
    if _GROUPED_DIGITS.fullmatch(text):  # a number, or else a list: 70,110
        return [tree, read(text, thousands=False)]
    return [tree]


def _words(text: str) -> Tree:
    """Words in lower case without articles and punctuation, or what they are known to mean.

    Signs, points and slashes of numbers stay.
    """
    spoken = _SPOKEN.findall(text.lower())
    kept = [word for word in spoken if word not in ("the", "a", "an")]
    canonical = " ".join(kept)
    if canonical in ORDINALS:
        return number(ORDINALS[canonical])
    return node("text", _MEANINGS.get(canonical, canonical))
