"""Words in answers: number words, short words, and words that make a sentence of a number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from answer_graders.math.tree import words

SHORT_WORDS = words(  # units and other words that are not products of letters
    """cm mm km ft yd mi sec ms min hr hrs yr kg mg lb lbs oz ml mL dl dL kl kL gal qt pt kj kJ kw
    kW hz Hz khz kHz mhz MHz pa Pa kpa kPa kb KB mb MB gb GB tb TB usd eur gbp yen jpy rs Rs inr
    deg rad pct sq cu per kmh kph rpm rps bps fps ppm ppb am pm AM PM of is an no No"""
)
_NOT_THE_VALUE = words(  # said of a number, they make another one of it
    """not no none isn't except half double twice thrice triple negative opposite inverse reciprocal
    wrong incorrect false invalid impossible rejected extraneous discarded excluded but error"""
)
_CHANGES_THE_ANSWER = words(  # `the square of the answer`, but not `the area of the square`
    "square squared cube cubed root times log logarithm product difference sum"
)
_ANSWER = words("answer result value")
# Words, not units: they put the number into a sentence, or change its value or meaning.
_SENTENCE = _NOT_THE_VALUE | words(
    """with both worth is are was than more less least most if when where over time but plus minus
    because since
    however wait maybe either neither between below under beneath factorial doubled tripled halved
    divided raised too root fewer score gross grand thou mil wan basis ppm ppb repeating
    recurring unless provided guess nope contradiction octal binary hexadecimal
    milliard milliarde milliarden millionen millones tausend mille dutzend docena douzaine
    nicht kein keine oder ou"""
)
_LEAVES_OPEN = words("least most than over under below plus minus")  # as the last word: `At least:`
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty"""

MONTHS = words(
    """January February March April May June July August September October November December"""
)

NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTING.split())}
ORDINALS = {word + "th": value for word, value in NUMBER_WORDS.items()}
ORDINALS |= dict(first=1, third=3, fifth=5, eighth=8, ninth=9, twelfth=12)
_SHARES = ORDINALS | dict(half=2, halve=2, quarter=4, hundredth=100, thousandth=1000)
SIZES: dict[str, Fraction | int] = {}
for _share, _parts in _SHARES.items():
    if _parts > 1:
        SIZES[_share] = Fraction(1, _parts)
SIZES |= dict(ten=10, dozen=12, hundred=100, thousand=1000, million=10**6, billion=10**9)
SIZES |= dict(trillion=10**12, quadrillion=10**15, lakh=10**5, lac=10**5, crore=10**7)
_CHANGES_A_NUMBER = _SENTENCE | SIZES.keys() | NUMBER_WORDS.keys()


def singular(word: str) -> str:
    """The word in lower case, without the plural s."""
    word = word.lower()
    is_plural = len(word) > 2 and word.endswith("s") and not word.endswith("ss")
    if is_plural:
        return word.removesuffix("s")
    return word


def announces(phrase: Sequence[str]) -> bool:
    """Whether words before a number only announce it: `Final answer`, but not `Half of`."""
    if not _ANSWER.isdisjoint(phrase) and not _CHANGES_THE_ANSWER.isdisjoint(phrase):
        return False
    return _LEAVES_OPEN.isdisjoint(phrase[-1:]) and _NOT_THE_VALUE.isdisjoint(phrase)


_ORDINAL = re.compile(  # `fifth`, `twentieth`, `hundredths`; also `million`, but no `length`
    r"(?:[a-z]+-)*(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|n"
    r"|[a-z]*(?:teen|tie|hundred|thousand|illion))th|.*illion"
)
_COUNTED = words("roots zeros zeroes")  # things, unlike `root` and `zero`


def is_sentence(phrase: Iterable[str]) -> bool:
    """Whether the words make a statement about a number, not a count of things: `12 below zero`."""
    for word in phrase:
        for form in (word, word if word in _COUNTED else singular(word)):
            if form in _CHANGES_A_NUMBER or _ORDINAL.fullmatch(form):
                return True
    return False
