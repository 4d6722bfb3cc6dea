"""What a sentence states: one number, apart from the others that explain it.

In doubt a sentence states nothing: what looks as if it took its number back is left as it is.
"""

from __future__ import annotations

import re

from openrlhf_js.tasks import math

_FIGURE = r"(?:\\?\$|[€£¥₹])?-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_COUNT = "one|two|three|four|five|six|seven|eight|nine|ten"
_PART = "half|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_BOLD = re.compile(r"(?<![\w)*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w(*])")

# What may stand behind a number: notes in brackets, what it is not, and clauses.
_NOTE = re.compile(r"\s\(([^()]*)\)")
_DENIAL = re.compile(
    r"(?:^|,?\s)(?:and |but )?(?:not|rather than|instead of) (?:the )?"
    rf"({_FIGURE})\$?((?: [a-z]+)*)(?=,|$)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:(?:,| [-\u2013\u2014]{1,2}) (?:which|because|since|as|so|given|that is|that's|with|after"
    rf"|(?:just |exactly )?(?:(?:an?|{_COUNT})[ -](?:{_PART})s? of|half|twice|double|triple)"
    r"|the (?:sum|product|difference|quotient|average|mean|same))"
    rf"|, (?:{_FIGURE}|{_COUNT})(?: times| (?:more|less|fewer) than|(?: percent|%|/[0-9]+) of)"
    r"| (?:which|because|since))(?![\w'])",
    re.IGNORECASE,
)
_EQUATION = re.compile(  # a clause that names a number, which may be another one
    rf"\W*(?:which|that|so (?:it|this|that)) (?:is|equals|makes|gives|means) ({_FIGURE})"
    r"(?: [a-z]+)?\W*",
    re.IGNORECASE,
)
_QUANTITY = re.compile(rf"\S*|{_FIGURE}(?: (?!each|apiece)[a-z]+)?", re.IGNORECASE)
_ARITHMETIC = re.compile(r"[0-9\s.,$%+*/=\u00d7\u00f7\u00b7\u2212-]+")
_DOUBT = re.compile(
    r"[:;]|\b(?:not?|never|none|cannot|\w+n't|or|n?either|nor|if|unless|but|however|though"
    r"|although|except|otherwise|actually|wait|oh|hmm+|sorry|maybe|perhaps|probably|possibly"
    r"|rather|instead|wrong|incorrect|false|mistaken?|error|correct\w*|right|true|should|would"
    r"|could|might|may|doubt\w*|unsure|sure|guess\w*|assum\w+|provided|yet|also|well|long|too"
    r"|answers?)\b",
    re.IGNORECASE,
)
_ANOTHER = re.compile(r"\b(?:total|altogether|overall|final\w*|in all)\b", re.IGNORECASE)

# What a sentence with one number consists of, and what it must not hold: other numbers in words,
# relations between numbers, and steps on the way.
_ALONE = re.compile(rf"(?<![\w.,/-]){_FIGURE}(?:\\?%|\$)?(?![\w/-])")
_LETTERS = r"[^\W\d_\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u218b]+"  # digits and fractions aside
_PLAIN_WORD = re.compile(rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*")
_UNSETTLED = re.compile(
    rf"% of|\b(?:{_COUNT}|{_PART}|percent of|(?<!['\u2019])[b-hj-z]|eleven|twelve|\w+teen|\w+ty"
    r"|hundred|thousand|million|billion|dozens?|pairs?|couple|zero|once|twice|double|triple|first"
    r"|second|last|times|than|least|most|about|around|almost|nearly|roughly|approximately|over"
    r"|under|above|below|between|both|plus|minus|add|subtract|multiply|divided?|multiplied"
    r"|calculate|compute|find|solve|know|let|let's|set|suppose|check|step|question|next|now|then"
    r"|we|i|far|much|many|what|how|why|who|when)\b",
    re.IGNORECASE,
)


def without_bold(text: str) -> str:
    """The text without the stars around its bold words."""
    return _BOLD.sub(r"\1", text)


def stated(statement: str) -> str:
    """What a statement says before it explains that: 35 of "35, which is 5 times 7".

    It may explain in brackets, in a clause, or by what the answer is not. Where any of that could
    also take the answer back, all of the statement is returned, which is no number.
    """
    notes = _NOTE.findall(statement)
    text = _NOTE.sub("", statement)
    denials = [denial for part in (*notes, text) for denial in _DENIAL.findall(part)]
    *explanations, text = [_DENIAL.sub("", part) for part in (*notes, text)]
    clause = _CLAUSE.search(text)
    start = clause.start() if clause else len(text)
    explanations += [text[start:], *(words for _, words in denials)]
    answer = text[:start].strip(" *,")
    values = {_value(figure) for figure in re.findall(_FIGURE, answer)}
    equation = _EQUATION.fullmatch(text, start)
    others = {_value(figure) for figure, _ in denials}
    is_clear = (
        values
        and not values & others
        and (not equation or _value(equation[1]) in values)
        and all(_explains(note, values) for note in notes)
        and not any(_DOUBT.search(part) or _ANOTHER.search(part) for part in explanations)
    )
    return answer if is_clear else statement


def only_number(sentence: str) -> str | None:
    """The number of a sentence that has one and leaves nothing open, or None."""
    answer = stated(sentence)
    numbers = _ALONE.findall(answer)
    if len(numbers) != 1 or _DOUBT.search(answer) or _UNSETTLED.search(answer):
        return None
    words = answer.replace(numbers[0], " ").replace(",", " ").split()
    return numbers[0] if all(map(_PLAIN_WORD.fullmatch, words)) else None


def _explains(note: str, values: set[str]) -> bool:
    """Whether a note in brackets explains a value, and is neither another one nor a factor."""
    if _QUANTITY.fullmatch(note):
        return False
    if _ARITHMETIC.fullmatch(note):
        return any(math.same_answer(note, value) for value in values)
    return True


def _value(figure: str) -> str:
    """A figure without its currency and thousands commas."""
    return figure.lstrip("\\$€£¥₹").replace(",", "")
