r"""The rules by which `spelling` spells an answer, in their order: each with an example.

Every pattern takes time in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from openrlhf_js.tasks.equivalence.vocabulary import NUMBER_WORDS

Replacement = str | Callable[[re.Match[str]], str]


class Rule(NamedTuple):
    """What matches the pattern is spelt otherwise, in texts that hold `where`."""

    pattern: str
    to: Replacement
    example: tuple[str, str]  # a text, and what the rule makes of it
    where: str


# How a command is spelt: another command, or text.
_PAIRS = r"""
dfrac=frac tfrac=frac cfrac=frac sfrac=frac nicefrac=frac dbinom=binom tbinom=binom dot=bar
overline=bar le=<= leq=<= leqslant=<= ge=>= geq=>= geqslant=>= ne=!= neq=!= equiv==
to=rightarrow sim=approx varnothing=emptyset cdot=* times=* ast=* div=/ lt=< gt=> lbrace=\{
rbrace=\} lbrack=[ rbrack=] lvert=| rvert=| vert=| degree=^\circ colon=: textdollar=\$
Reals=\mathbb{R} R=\mathbb{R} dots=ldots cdots=ldots dotsc=ldots percent=% lor=vee
land=wedge lnot=neg backslash=setminus smallsetminus=setminus varphi=phi varepsilon=epsilon
vartheta=theta newline=\\
pounds=gbp texteuro=euro cent=cents langle=( rangle=) lfloor=\floor( rfloor=) lceil=\ceil( rceil=)
over=frac choose=binom
"""
_ALIASES = {name: spelling for name, _, spelling in (p.partition("=") for p in _PAIRS.split())}
_ALIASES |= {name: "\\" + other for name, other in _ALIASES.items() if other.isalpha()}
_PHRASE = "[a-z ]{1,20}"
_POWER = r"(?:\^ ?\{? ?\d ?\}?)?"
_LENGTH = "km|cm|mm|mi|ft|kg|mg|mL|meters|miles|feet|dollars"
_VARIABLE = r"[a-zA-Z](?![a-zA-Z])(?: ?(?:\\?in\b|[<>,!]|and )[^={}]{0,40}(?:\{[A-Z]\})?)?"
_AMOUNT = r"(?=[-\d.{\\(]|[a-z]\b)((?:[^,;=]|,(?=\d{3}))*?)"
_AFTER = r",(?!\d{3})|[;=]|\b(?:and|or|per)\b|/ ?[a-z]|\Z"
_NOTHING = (
    r"(?:there (?:is|are|exists?) |has )?no (?:(?:real|such|possible|valid|integer"
    r"|positive) )*(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?|none|empty set"
)
_CURRENCY = "usd|euro|gbp|yen|USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|Rs"


def _alias(command: re.Match[str]) -> str:
    return _ALIASES.get(command[1], command[0])


def _minutes(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = angle.groups()
    return f"{{{degrees}+{minutes}/60+{seconds or 0}/3600}}^\\circ"


def _mixed(number: re.Match[str]) -> str:
    whole, fraction, numerator, denominator = number.groups()
    is_proper = 0 < int(numerator) < int(denominator)
    return f"{{{whole}+{fraction}}}" if is_proper else number[0]


def _joined(number: re.Match[str]) -> str:
    return number[1] + re.sub(r"\D", "", number[2])


_TENS = dict(thirty=30, forty=40, fifty=50, sixty=60, seventy=70, eighty=80, ninety=90)


def _without_spelt_out(number: re.Match[str]) -> str:
    """`10` for `10 (ten)`; `10 (nine)` is two answers rather than a product."""
    words = number[2].lower().split("-")
    if not (NUMBER_WORDS | _TENS).keys() >= set(words):
        return number[0]
    value = sum((NUMBER_WORDS | _TENS)[word] for word in words)
    return number[1] if value == int(number[1]) else f"{number[1]}, {value}"


WHOLE_ANSWER_RULES = [
    Rule(
        r"\A(\$?)\{(?!\d{1,3}(?:,\d{3})+\})([^{}]*,[^{}]*)\}(\$?)\Z",
        to=r"\1\\{\2\\}\3",
        example=("{1,2,1}", r"\{1,2,1\}"),
        where="{",
    ),
]

LATEX_RULES = [
    Rule(
        r"(?<=\d)(?:\{,\}|,) ?\\! ?(?=\d{3}(?!\d))", to="", example=(r"3,\!628", "3628"), where=","
    ),
    Rule(r"(?<!\\)\\[()\[\]!]", to="", example=(r"\(42\)", "42"), where="\\"),
    Rule(
        r"\\(?:left|right|[bB]igg?[lrm]?|triangle)(?![a-zA-Z])\s?\.?",
        to="",
        example=(r"\left(1, 2\right)", "(1, 2)"),
        where="\\",
    ),
    Rule(
        r"\\(?:measured)?angle(?! ?\{? ?[A-Z]{3}(?![A-Za-z]))(?![a-zA-Z])\s?\.?",
        to="",
        example=(r"\angle A", "A"),
        where="angle",
    ),
    Rule(
        r"\\(?:measured)?angle ?(?:\{ ?([A-Z]{3}) ?\}|([A-Z]{3})(?![A-Za-z]))",
        to=r"\\angle \1\2",
        example=(r"\measuredangle ABC", r"\angle ABC"),
        where="angle",
    ),
    Rule(
        r"\\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}",
        to="",
        example=(r"\color{red} 12", " 12"),
        where="color",
    ),
    Rule(
        r"\\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])",
        to="",
        example=(r"\bf 12", " 12"),
        where="\\",
    ),
    Rule(
        r"\\(?:boxed|fbox|underline|cancel|uline|emph|pmb|boldsymbol|bm)\s?(?=\{)",
        to="",
        example=(r"\bm{12}", "{12}"),
        where="{",
    ),
    Rule(
        r"\\(?:(?:math|text)(?:rm|bf|it|sf|cal|normal)?|[mh]box|operatorname)\*?\s?(?=\{)",
        to=r"\\text",
        example=(r"\textbf{5}", r"\text{5}"),
        where="{",
    ),
    Rule(
        r"\\(?:vec|hat|overrightarrow|mathbb(?=\{[^RZNQC]))\s?(?=\{ ?[^\d\s])",
        to="",
        example=(r"\vec{v}", "{v}"),
        where="{",
    ),
    Rule(
        r"\{([^{}\\]*)\\(over|choose)(?![a-z]) ?([^{}\\]*)\}",
        to=r"\\\2{\1}{\3}",
        example=(r"{3 \over 4}", r"\over{3 }{4}"),
        where="\\",
    ),
    Rule(r"\\([a-zA-Z]+)", to=_alias, example=(r"x\ge1", "x>=1"), where="\\"),
    Rule(r"\\([%#|])", to=r"\1", example=(r"5\%", "5%"), where="\\"),
    Rule(r"\\\$", to=r"\\usd ", example=(r"\$6", r"\usd 6"), where="\\"),
    Rule(r"\^ ?\{ ?\\circ ?\}", to=r"^\\circ", example=(r"9^{\circ}", r"9^\circ"), where="circ"),
    Rule(
        r"\^ ?(?:\\prime(?![a-z])|\{ ?\\prime ?\})",
        to="'",
        example=(r"y^{\prime}=2x", "y'=2x"),
        where="prime",
    ),
    Rule(
        r"(?:\\\\\s*)*\\end\{cases\}",
        to="]",
        example=(r"\begin{cases} x=1 \\ y=3 \end{cases}", r"\begin{cases} x=1 \\ y=3 ]"),
        where="end",
    ),
    Rule(
        r"(?:\\\\\s*)*\\end\{(?:[pbB]?matrix|smallmatrix|array)\}",
        to="])",
        example=(r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\2])"),
        where="end",
    ),
    Rule(
        r"(?:\\\\\s*)+",
        to="],[",
        example=(r"\begin{pmatrix}1\\2])", r"\begin{pmatrix}1],[2])"),
        where="begin",
    ),
    Rule(
        r",?\s*&",
        to=",",
        example=(r"\begin{bmatrix} 1&2])", r"\begin{bmatrix} 1,2])"),
        where="begin",
    ),
    Rule(
        r"\\begin\{cases\}",
        to="[",
        example=(r"\begin{cases} x=1 ],[y=3 ]", "[ x=1 ],[y=3 ]"),
        where="begin",
    ),
    Rule(
        r"\\begin\{(?:[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?",
        to="([",
        example=(r"\begin{bmatrix} 1,2])", "([ 1,2])"),
        where="begin",
    ),
    Rule(
        r"\\frac\{ ?\\text\{("
        + _PHRASE
        + r")\} ?\} ?\{ ?\\text\{("
        + _PHRASE
        + r")\} ?("
        + _POWER
        + r") ?\}",
        to=r"\\text{ \1/\2}\3",
        example=(r"5 \frac{\text{m}}{\text{s}}", r"5 \text{ m/s}"),
        where="frac",
    ),
    Rule(
        r"(?<=[\d}]) ?\\?[ ,]?\\frac\{(" + _LENGTH + r")\} ?\{(h|hr|s|min|hour|l|L|g)\}",
        to=r"\\text{ \1/\2}",
        example=(r"5\,\frac{km}{h}", r"5\text{ km/h}"),
        where="frac",
    ),
    Rule(
        r"\\forall(?![a-z])",
        to="for all ",
        example=(r"f(x)=2x, \forall x", "f(x)=2x, for all  x"),
        where="forall",
    ),
    Rule(
        r"(?<=[\d)}])(?<![A-Z]\})[ ~]?\\text\{[ ~]?([ABCFJKLNVWghlms])(?![A-Za-z])",
        to=r"\\text{ \\\1",
        example=(r"5\text{ m}", r"5\text{ \m}"),
        where="text",
    ),
    Rule(r"\\text\{([^{}]*)\}", to=r" \1 ", example=(r"\text{}", "  "), where="text"),
    Rule(r"\\text(?=\{)", to="", example=(r"\text{\frac{5}{2}}", r"{\frac{5}{2}}"), where="text"),
    Rule(
        r"\ +(?=_)",
        to="",
        example=(r"\frac{1}{2} \log _{2} 3", r"\frac{1}{2} \log_{2} 3"),
        where="_",
    ),
]

PLAIN_RULES = [
    Rule("</?answer>", to="", example=("<answer>5</answer>", "5"), where="<"),
    Rule(
        r"(?<=\$)(or|and)(?=\$)", to=r" \1 ", example=("$x=0$or$x=2$", "$x=0$ or $x=2$"), where="$"
    ),
    Rule(r"(?<!\\)\$\$", to="$", example=("$$0.06   yuan $$", "$0.06   yuan $"), where="$$"),
    Rule(
        r"(?<!\\)\$([^$\\]*(?:\\[^$][^$\\]*)*)\$(?!\d)", to=r"\1", example=("$24$", "24"), where="$"
    ),
    Rule(r"\$", to=r"\\usd ", example=("$", r"\usd "), where="$"),
    Rule(r"(?<!\\)\\[ ,;:>]", to=" ", example=(r"20\ %", "20 %"), where="\\"),
    Rule(
        r"\\(?:q?quad|(?:thin|en)space|hfill|(?:display|text)style|limits)(?![a-zA-Z])",
        to=" ",
        example=(r" 42\quad", " 42 "),
        where="\\",
    ),
    Rule(r"~|\s", to=" ", example=("5~m", "5 m"), where=""),
    Rule(
        r"\b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|[ckm]m|kg|gal|pt|qt|units)\.(?![\w.])",
        to=r"\1",
        example=("3 ft.", "3 ft"),
        where=".",
    ),
    Rule(r"\ {2,}", to=" ", example=("  ", " "), where=""),
    Rule(r"\A ?\*\*(.*)\*\* ?\Z", to=r"\1", example=("**5**", "5"), where="**"),
    Rule(r"\*\*", to="^", example=("2**3", "2^3"), where="**"),
    Rule(r"(?<=\d) ?[xX] ?(?=10 ?\^)", to="*", example=("6.02 x 10^23", "6.02*10^23"), where="^"),
    Rule(
        r"(?<![\d.,])(\d{1,3})((?:(?:\{,\}|[ '])\d{3})+)(?![\d,])",
        to=_joined,
        example=("5 040", "5040"),
        where="",
    ),
    Rule(r"\bmph\b", to="miles per hour", example=("36 mph ", "36 miles per hour "), where="mph"),
    Rule(
        "[ ,]+for (?:all|any|every) (?:(?:real|positive|values|numbers?|integers?|of) )*"
        + _VARIABLE
        + r"\Z",
        to="",
        example=("2x for all x > 0", "2x"),
        where="for",
    ),
    Rule(
        r"\\(frac|binom)\s?(\d)\s?(?=[\d{\\a-zA-Z])",
        to=r"\\\1{\2}",
        example=(r"\frac17", r"\frac{1}7"),
        where="\\",
    ),
    Rule(
        r"(\\(?:frac|binom)\{\d+\})\s?(\d)(?!\d)",
        to=r"\1{\2}",
        example=(r"\frac{1}7", r"\frac{1}{7}"),
        where="\\",
    ),
    Rule(
        r"\\(frac|binom) ([a-zA-Z]) ?([a-zA-Z])",
        to=r"\\\1{\2}{\3}",
        example=(r"\frac km", r"\frac{k}{m}"),
        where="\\",
    ),
    Rule(
        r"(\d) ?\^? ?\{? ?(st|nd|rd|th)\b(?: ?\})?", to=r"\1\2", example=("5 th ", "5th "), where=""
    ),
    Rule(
        r"(?<=(?<!1)1)st\b|(?<=(?<!1)2)nd\b|(?<=(?<!1)3)rd\b|(?<=\d)th\b",
        to="",
        example=("4th", "4"),
        where="",
    ),
    Rule(
        r"(\.\d{0,6}?)(?:(\d)\2\2+|(\d{2,6}?)\3+) ?(?:\.\.\.|\\ldots(?![a-z]))",
        to=r"\1\\bar{\2\3}",
        example=("0.333...", r"0.\bar{3}"),
        where=".",
    ),
    Rule(
        r"""(\d{1,4}) ?\^\\circ ?(\d{1,2})'(?: ?(\d{1,2})(?:''|"))?""",
        to=_minutes,
        example=(r"67^\circ30'", r"{67+30/60+0/3600}^\circ"),
        where="circ",
    ),
    Rule(r"(?<=\^)([2-9])(?=[1-9]\d*\^)", to=r"{\1}", example=("2^43^2", "2^{4}3^2"), where="^"),
    Rule(
        r"\^\\circ ?C(?![A-Za-z])",
        to=" celsius",
        example=(r"20^\circC", "20 celsius"),
        where="circ",
    ),
    Rule(
        r"(?<![\w\\])[A-Z] ?(?=\([^()]*,[^()]*\)(?! ?=))",
        to="",
        example=("A(3,4)", "(3,4)"),
        where="(",
    ),
    Rule(
        r"(?<![a-z])(sin|cos|tan) ?\^ ?(?:\{ ?-1 ?\}|-1(?![\d.]))",
        to=r"arc\1",
        example=(r"\sin^{-1}(1)", r"\arcsin(1)"),
        where="^",
    ),
    Rule(r"(?<=[\d}] )m(?=/s(?![a-z]))", to=r"\\m", example=("10 m/s", r"10 \m/s"), where="m/s"),
    Rule(
        r"\\sqrt ?\[([^\[\]]+)\]",
        to=r"\\root{\1}",
        example=(r"\sqrt[3]4", r"\root{3}4"),
        where="sqrt",
    ),
    Rule(
        r"(?<![\w.)\]}^])(?:\{\} ?)?_?\{?(\d{1,4})\}? ?C_?\{?(\d{1,4})\}?(?![\w{])",
        to=r"\\binom{\1}{\2}",
        example=("5C2", r"\binom{5}{2}"),
        where="C",
    ),
    Rule(
        r"\((?:approx(?:\.|imately)?|roughly|rounded|remainder \d{1,9})\)",
        to="",
        example=("100 (approx.) ", "100  "),
        where="(",
    ),
    Rule(
        r"(?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])",
        to=r"\\binom{\1}{\2}",
        example=("C_5^2", r"\binom{5}{2}"),
        where="C",
    ),
    Rule(
        r"(?:(\( ?)\\?b?|\\p?)mod ?\{? ?(\d+) ?\}?(?(1) ?\))",
        to=r"\\pmod{\2}",
        example=(r"5 \mod 7", r"5 \pmod{7}"),
        where="mod",
    ),
    Rule(
        r"(?<=[0-9A-F])_ ?\{ ?\(?(?:base ?)?([a-z\d]{1,8}) ?\)? ?\}",
        to=r"_{\1}",
        example=("332_{(4)}", "332_{4}"),
        where="_",
    ),
    Rule(
        r"(?<![\d.,^_/}])(\d{1,9}) ?(\\frac\{(\d{1,9})\}\{(\d{1,9})\})",
        to=_mixed,
        example=(r"1\frac{4}{5}", r"{1+\frac{4}{5}}"),
        where="frac",
    ),
    Rule(
        r"(?<![\d.,^_/}])(\d{1,9}) ((\d{1,9})/(\d{1,9}))(?![\d.]|,\d)",
        to=_mixed,
        example=("4 2/3", "{4+2/3}"),
        where="/",
    ),
    Rule(
        r"(?<![0-9A-F])([0-9A-F]+) ?\(? ?base ?-? ?(\w+)\b ?\)?",
        to=r"\1_{\2}",
        example=("1011 (base 2)", "1011_{2}"),
        where="base",
    ),
    Rule(
        r"\((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{])", to=r"\1_", example=("(52)_8", "52_8"), where="_"
    ),
    Rule(
        r"(?<![A-Za-z])\\?(" + _CURRENCY + r")\b\.? ?" + _AMOUNT + "(?= ?(?:" + _AFTER + "))",
        to=r"\2 \1",
        example=("USD 5", "5 USD"),
        where="",
    ),
    Rule(r"\\(usd|euro|gbp|yen|cents)(?![a-z])", to=r"\1", example=(r"\usd ", "usd "), where="\\"),
    Rule(
        r"\A([^<>]*(?<![a-z\\])([kmn])(?![a-z])[^<>]*)[,(] ?\2 ?\\in ?\\mathbb\{[NZ]\}[ .)]*\Z",
        to=r"\1",
        example=(r"k\pi, k\in\mathbb{Z}", r"k\pi"),
        where=r"\in",
    ),
    Rule(r"\|([^|]+)\|", to=r"\\abs(\1)", example=("|x|", r"\abs(x)"), where="|"),
    Rule(
        r"(\\\{ ?\(?[a-z][^{}:]*(?:\{[A-Z]\})?[^{}:]*):",
        to=r"\1\\mid  ",
        example=(r"\{x : 3 < x <= 4\}", r"\{x \mid   3 < x <= 4\}"),
        where=":",
    ),
    Rule(
        r"\\mathbb\{R\}(?!\^)",
        to=r"(-\\infty,\\infty)",
        example=(r"\mathbb{R}", r"(-\infty,\infty)"),
        where="R",
    ),
    Rule(
        r"\A ?(?:[aA]ll )?reals?(?: numbers)?[ .]*\Z",
        to=r"(-\\infty,\\infty)",
        example=(" all real numbers ", r"(-\infty,\infty)"),
        where="real",
    ),
    Rule(
        r"\A ?(?i:" + _NOTHING + r")[ .]*\Z",
        to=r"\\emptyset",
        example=("none", r"\emptyset"),
        where="",
    ),
    Rule(
        r"\A([^,]*(?<![a-zA-Z\\]))[km] ?(\\pi(?![^,]*[a-z]))",
        to=r"\1n\2",
        example=(r"k\pi", r"n\pi"),
        where=r"\pi",
    ),
    Rule(
        r"(\d\.)\((\d{1,9})\)(?!\^)", to=r"\1\\bar{\2}", example=("0.(3)", r"0.\bar{3}"), where=".("
    ),
    Rule(
        r"\A(-?\d{0,9}\.\d{1,9})\((\d{1,9})\)\Z",
        to=r"\1\\bar{\2}",
        example=("0.1(6)", r"0.1\bar{6}"),
        where="(",
    ),
    Rule(
        r"(?<![\d.,])([1-9]\d{0,2})((?:\.\d{3}){2,})(?!\d|[.,]\d)",
        to=_joined,
        example=("1.234.567", "1234567"),
        where=".",
    ),
    Rule(r"\A[`']{1,2}([^`']*)[`']{1,2}\Z", to=r"\1", example=("'42'", "42"), where=""),
    Rule(r"\bper cent\b", to="percent", example=("28 per cent", "28 percent"), where="per cent"),
    Rule(r"(\A|[=,] ?)\+ ?- ?|\+/- ?", to=r"\1\\pm ", example=("+- 7", r"\pm 7"), where="+"),
    Rule(
        r"(?<![\d.,])(\d{1,3}) ?\(([a-zA-Z]{3,9}(?:-[a-z]{3,5})?)\)",
        to=_without_spelt_out,
        example=("10 (ten)", "10"),
        where="(",
    ),
    Rule(
        r"(?<=[a-z\d}]),? (?:altogether|in total|in all|overall)[ .]*\Z",
        to="",
        example=("72 clips, altogether", "72 clips"),
        where=" ",
    ),
]
