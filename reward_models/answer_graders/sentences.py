"""The one number that a sentence states, separated from numbers that explain it.

In doubt a sentence states nothing: if it may take its number back, it is left as it is.
"""

from __future__ import annotations

import re

_FIGURE = r"(?:\\?\$|[€£¥₹])?-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_COUNT = "one|two|three|four|five|six|seven|eight|nine|ten"
_IN_WORDS = rf"(?:{_COUNT}|eleven|twelve|\w+teen|\w+ty|zero|none|nothing)\b"
_PART = "half|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_BOLD = re.compile(r"(?<![\w)*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w(*])")
_ID_EST = re.compile(r"\bi\.e\.,?", re.IGNORECASE)

# What may follow a number: notes in brackets, denials ("not 7"), and clauses.
_NOTE = re.compile(r"\s\(([^()]*)\)")
_DENIAL = re.compile(
    r"(?:^|,?\s)(?:and |but )?(?:not|rather than|instead of) (?:the )?"
    rf"({_FIGURE}(?: or {_FIGURE})?)\$?((?: [a-z]+)*)(?=,|$)",
    re.IGNORECASE,
)
_FRACTION = (
    rf"(?:(?:an?|{_COUNT})[ -](?:{_PART})s? of|half(?: of)?|twice|double|triple"
    rf"|(?:{_FIGURE}|{_COUNT})(?: times| (?:more|less|fewer) than)"
    rf"|{_FIGURE}(?: percent|%|/[0-9]+) of"
    r"|the (?:sum|product|difference|quotient|average|mean) of|the same as)"
    rf"(?: as (?:many|much) as)?(?: the| between)? (?={_FIGURE}|{_IN_WORDS})"
)
_WHICH_IS = rf"which (?:is|equals)(?= (?:\W{{0,3}}\d|{_IN_WORDS}|an? |half |twice |double |the ))"
_RATE = re.compile(r" (?:per|an?) [a-z]+\W*$", re.IGNORECASE)
_CLAUSE = re.compile(
    rf"(?:(?:,| [-\u2013\u2014]{{1,2}}) (?:(?:{_WHICH_IS}|because|since|as|given that|that is"
    r"|that's)(?![\w'])|so (?=.*" + _RATE.pattern + r")"
    rf"|with (?=(?:{_FIGURE}|{_COUNT})\b[^,]* (?:each|every|per)\b)"
    # "18 - 3 times 6" subtracts.
    rf"|(?:just |exactly )?(?!(?<=[-\u2013\u2014] )(?:{_FIGURE}|{_COUNT})){_FRACTION})"
    rf"| (?:{_WHICH_IS}|because|since)(?![\w']))",
    re.IGNORECASE,
)
_EQUATION = re.compile(  # says that something equals a number, not a multiple of it
    r"(?:(?:\b(?:is|are|was|be|equals?|mak(?:es?|ing)|gives?|means?|comes? to|gets?"
    rf"|leav(?:es?|ing)|yields?)\b|'s|\u2019s|=)[,:]?\s?(?:(?:just|exactly|a total of) )?"
    rf"({_FIGURE}|{_IN_WORDS})"
    r"(?![\d%]|[.,]\d|\$?\s?(?:\\?times|percent|more|less|fewer|[a-z]+ (?:of|at) \$?\d"
    rf"|\\cdot|\\div|x \d|[-+*/=\u00d7\u00f7\u00b7\u2212]|(?:{_PART})s? of))"
    rf"|(?:, (?:as )?|\bso )({_FIGURE}|{_IN_WORDS})\W*$"
    rf"|\b({_FIGURE}|{_IN_WORDS}) (?:is|was) (?:the|it|what|my|our)\b)",
    re.IGNORECASE,
)
_QUANTITY = re.compile(  # such as "19", "19 apples" and "19 for Bob", but not "7 for each child"
    rf"\S*|{_FIGURE}(?: (?!each|apiece|for|with)[a-z]+)?"
    r"(?: (?:for|with|without|after|before|including) (?!each|every).*)?",
    re.IGNORECASE,
)
_ADDED = re.compile(r"(?:and|plus|minus|times|less|more|then)\b|[-+*/\u00d7\u00f7]", re.IGNORECASE)
_ARITHMETIC = re.compile(r"[0-9\s.,$%+*/=\u00d7\u00f7\u00b7\u2212-]+")
_DOUBT = re.compile(
    r"[:;]|\b(?:not?|never|none|cannot|\w+n't|or|n?either|nor|if|unless|but|however|though"
    r"|although|except|otherwise|actually|wait|oh|hmm+|sorry|maybe|perhaps|probably|possibly"
    r"|rather|instead|wrong|incorrect|false|mistaken?|error|correct\w*|right|true|should|would"
    r"|could|might|may|doubt\w*|unsure|sure|guess\w*|assum\w+|provided|yet|also|well|long|too"
    r"|answers?|fail\w*|contradict\w*|exceed\w*|exclud\w*|reject\w*|ruled|impossible|unlikely)\b",
    re.IGNORECASE,
)
_CHANGE = re.compile(  # to another number
    r"\b(?:total|altogether|overall|final\w*|in all|results?|round\w*|becom\w+|doubled|doubling"
    r"|doubles|tripled|halved|opposed|add|added|adding|subtract\w*|remov\w+|after\w*|before|now"
    r"|later|then|off|short|out|more(?! than)|real|actual)\b",
    re.IGNORECASE,
)

# A sentence that concludes with one number: subject, verb, number, noun.
_LETTERS = r"[^\W\d_\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u218b]+"  # but no digits or fractions
_PLAIN_WORD = rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*"
_VERB = (
    r"(?:will )?(?:is|are|be|has|have|pays?|paid|costs?|earns?|earned|gets?|needs?|makes?|made"
    r"|takes?|took|equals?|spends?|spent|saves?|saved|sells?|sold|buys?|bought|uses?|used"
    r"|eats?|ate|laid|lays?|gives?|gave|owes?|leaves?|comes? to|receives?|collects?|weighs?)"
)
_TO_WHOM = rf"(?: (?:her|him|them|(?-i:[A-Z]){_LETTERS}))?(?: with)?(?: a total of| exactly)?"
_NOUN = (
    rf"(?: (?:(?!{_LETTERS}s\b){_LETTERS} )?(?:{_LETTERS}s|people|children|men|women|feet|fish"
    r"|percent|mph|km|kg|cm)"
    rf"(?: of (?!(?:it|he|us|me|all|what|th\w+|his|her|our|my)\b){_LETTERS})?)?"
)
_IN_ALL = (
    r"(?: (?:left|remaining|old|in total|total|in all|altogether|together|each"
    rf"|(?:per|an?|each|every) {_LETTERS}))?"
)
_NUMBER = rf"({_FIGURE}(?:\\?%|\$)?)"
_CONCLUSION = re.compile(
    rf"\s*(?:(?:{_PLAIN_WORD},? ){{1,12}}{_VERB}{_TO_WHOM} {_NUMBER}{_NOUN}{_IN_ALL}"
    rf"|{_NUMBER}{_NOUN} (?:(?:is|are) (?:left|remaining)|remains?))\s*",
    re.IGNORECASE,
)
_UNSETTLED = re.compile(  # other numbers in words, relations between numbers, intermediate steps
    rf"\b(?:{_IN_WORDS}|{_PART}|(?<!['\u2019])[b-hj-z]|hundred|thousand|million|billion|dozens?"
    r"|pairs?|couple|once|twice|double|triple|first|second|last|times|less|more|fewer|older"
    r"|younger|short|out|off|as|almost|nearly|over|under|above|below|between|both|plus|minus"
    r"|add|subtract|multiply|divided?|multiplied|calculate|compute|find|solve|know|let|let's|set"
    r"|suppose|check|step|question|next|now|then|we|i|far|much|many|what|which|how|why|who|when"
    r"|before|after|initially|originally|nobody|hardly)\b",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """The text without the stars around its bold words, and with "that is" for "i.e."."""
    return _ID_EST.sub("that is", _BOLD.sub(r"\1", text))


def stated(statement: str) -> str:
    """The statement without its explanation: 35 for "35, which is 5 times 7".

    An explanation is in brackets, in a clause, or says what the answer is not. If any of it could
    take the answer back, the whole statement is returned, which is not a number.
    """
    notes = _NOTE.findall(statement)
    text = _NOTE.sub("", statement)
    denials = [denial for part in (*notes, text) for denial in _DENIAL.findall(part)]
    *explanations, text = [_DENIAL.sub("", part) for part in (*notes, text)]
    clause = _CLAUSE.search(text)
    start = clause.start() if clause else len(text)
    explanations += [text[start:], *(words for _, words in denials)]
    answer = text[:start].strip(" *,")
    values = _values(answer)
    is_denied = any(values & _values(figures) for figures, _ in denials)
    has_clear_notes = all(_explains(note, values) for note in notes)
    if values and not is_denied and has_clear_notes and _is_settled(answer, explanations):
        return answer
    return statement


def only_number(sentence: str) -> str | None:
    """The number that a sentence concludes with, or None if it leaves anything open."""
    answer = stated(sentence)
    conclusion = _CONCLUSION.fullmatch(answer)
    if not conclusion or _DOUBT.search(answer) or _UNSETTLED.search(answer):
        return None
    return conclusion[1] or conclusion[2]


def _is_settled(answer: str, explanations: list[str]) -> bool:
    """Whether explanations neither doubt an answer, nor change it, nor state another number.

    An explanation of a rate may convert it: an answer per day may be stated per week.
    """
    values = _values(answer)
    for explanation in explanations:
        if _DOUBT.search(explanation) or _CHANGE.search(explanation):
            return False
        is_rate = _RATE.search(answer) and _RATE.search(explanation)
        numbers = [number for found in _EQUATION.findall(explanation) for number in found if number]
        if not is_rate and not {_value(number) for number in numbers} <= values:
            return False
    return True


def _explains(note: str, values: set[str]) -> bool:
    """Whether a note in brackets explains a value, rather than being another value or a factor."""
    if _QUANTITY.fullmatch(note) or _ADDED.match(note):
        return False
    if _ARITHMETIC.fullmatch(note):
        from answer_graders.tasks import (
            math,  # which imports the tasks, one of which reads sentences
        )

        return any(math.same_answer(note, value) for value in values)
    return True


def _values(text: str) -> set[str]:
    """The figures in a text, normalised by `_value`."""
    return {_value(figure) for figure in re.findall(_FIGURE, text)}


def _value(figure: str) -> str:
    """A figure without its currency and thousands commas."""
    return figure.lstrip("\\$€£¥₹").replace(",", "")
