r"""Spell an answer in one way: LaTeX, unicode and plain text become the same short ASCII text.

Only spelling changes here (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); `syntax` reads what the
text means. The rules are applied from the first to the last, each to what those before it have
made. Every pattern takes time in proportion to the text, whatever it holds.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from answer_graders.math.units import without_siunitx
from answer_graders.math.vocabulary import NUMBER_WORDS

Replacement = str | Callable[[re.Match[str]], str]


class Rule(NamedTuple):
    """What matches the pattern is spelt otherwise."""

    pattern: str
    to: Replacement
    example: tuple[str, str]  # a text, and what this rule alone makes of it
    where: str = ""  # only texts that hold this can match: a quick look before the pattern


# replacements that a pattern cannot say

# fmt: off
_COMMANDS = {  # a spelling, and the commands that are spelt so
    r"\frac": "dfrac tfrac cfrac sfrac nicefrac over", r"\binom": "dbinom tbinom choose",
    "<": "lt", ">": "gt", "<=": "le leq leqslant", ">=": "ge geq geqslant",
    "=": "equiv", "!=": "ne neq", r"\approx": "sim", r"\rightarrow": "to",
    "*": "cdot times ast", "/": "div", "%": "percent", ":": "colon", r"^\circ": "degree",
    "(": "langle", ")": "rangle rfloor rceil", r"\floor(": "lfloor", r"\ceil(": "lceil",
    "[": "lbrack", "]": "rbrack", r"\{": "lbrace", r"\}": "rbrace", "|": "lvert rvert vert",
    r"\emptyset": "varnothing", r"\setminus": "backslash smallsetminus", r"\mathbb{R}": "Reals R",
    r"\vee": "lor", r"\wedge": "land", r"\neg": "lnot",
    r"\phi": "varphi", r"\epsilon": "varepsilon", r"\theta": "vartheta",
    "$": "textdollar", r"\gbp": "pounds", r"\euro": "texteuro", r"\cents": "cent",
    r"\bar": "dot overline", r"\ldots": "dots cdots dotsc dotsb dotsm dotso hdots",
    r"\\": "newline", "T": "top intercal",
}
# fmt: on
_SPELT_COMMANDS = {
    name: spelling for spelling, names in _COMMANDS.items() for name in names.split()
}
_MONEY = "usd|euro|gbp|yen|inr|krw|rub|ils|php|ngn|vnd|uah|btc|thb"
_PAIRS = r"(?:(?:\{,\}|,)\d\d){1,4}(?:\{,\}|,)"  # of digits, as India groups them
_TENS = dict(thirty=30, forty=40, fifty=50, sixty=60, seventy=70, eighty=80, ninety=90)
_NUMBERS = NUMBER_WORDS | _TENS


def _command(command: re.Match[str]) -> str:
    return _SPELT_COMMANDS.get(command[1], command[0])


def _minutes(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = angle.groups()
    return f"{{{degrees}+{minutes}/60+{seconds or 0}/3600}}^\\circ"


def _angle(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = angle.groups()
    smaller = f"{minutes or 0}'" if minutes or seconds else ""
    return rf"{degrees}^\circ{smaller}" + (f"{seconds}''" if seconds else "")


def _mixed(number: re.Match[str]) -> str:
    whole, fraction, numerator, denominator = number.groups()
    is_proper = 0 < int(numerator) < int(denominator)
    return f"{{{whole}+{fraction}}}" if is_proper else number[0]


def _rows(environment: re.Match[str]) -> str:
    r"""The rows of a system of equations, or of labelled parts, between semicolons.

    A row that begins with a relation sign continues the one before. Matrices stay as they are, and
    functions with pieces are spelt as `cases`.
    """
    rows: list[str] = []
    for row in environment["rows"].split(r"\\"):
        row = _ALIGNMENT.sub("", row).strip(" &,;.\n")
        if rows and _RELATION_SIGN.match(row):
            rows[-1] += row
        elif row:
            rows.append(row)
    is_table = environment["table"] and not all(map(_LABELLED_ROW.match, rows))
    if is_table and not any(map(_RELATION_SIGN.search, rows)):
        return environment[0]
    if is_table and not all(map(_CONDITION_ROW.match, rows)):
        return rf"\begin{{cases}}{environment['rows']}\end{{cases}}"
    return "; ".join(_COLUMN.sub(", ", row) for row in rows)


_RELATION_SIGN = re.compile(r"[=<>]|!=|\\(?:approx|in)(?![a-z])")
_ALIGNMENT = re.compile(rf"\s*&+\s*(?={_RELATION_SIGN.pattern})|(?<=[=<>])\s*&+")
_COLUMN = re.compile(r"\s*&+\s*")
_LABELLED_ROW = re.compile(r"(?:\\text\{)?\(?[a-z0-9]{1,4}\)")
_CONDITION_ROW = re.compile(rf"(?s)(?=.*(?:{_RELATION_SIGN.pattern}))[^,&]*\Z")


def _half_line(reals: re.Match[str]) -> str:
    r"""The set of reals with these signs: `(0,\infty)` for `\mathbb{R}^+`."""
    signs = re.sub(r"[\s{}^_]|(?<=n)-", "", reals[1])
    return _HALF_LINES.get(signs, reals[0])


_HALF_LINES: dict[str, str] = {}
for _spelling, _signs in {
    r"(0,\infty)": "+ ++ >0 *+ +* positive",
    r"[0,\infty)": "+0 0+ >=0 nonnegative",
    r"(-\infty,0)": "- -- <0 *- -* negative",
    r"(-\infty,0]": "-0 0- <=0 nonpositive",
    r"(-\infty,0)\cup(0,\infty)": "* !=0 nonzero",
}.items():
    _HALF_LINES |= dict.fromkeys(_signs.split(), _spelling)


def _joined(number: re.Match[str]) -> str:
    return number[1] + re.sub(r"\D", "", number[2])


def _without_spelt_out(number: re.Match[str]) -> str:
    """`10` for `10 (ten)`; `10 (nine)` is two answers rather than a product."""
    words = number[2].lower().split("-")
    if not _NUMBERS.keys() >= set(words):
        return number[0]
    value = sum(_NUMBERS[word] for word in words)
    return number[1] if value == int(number[1]) else f"{number[1]}, {value}"


# fmt: off
SET_RULES = [
    Rule(r"\A(\$?)\{(?!\d{1,3}(?:,\d{3})+\})([^{}]*,[^{}]*)\}(\$?)\Z", r"\1\\{\2\\}\3",
         ("{1,2,1}", r"\{1,2,1\}"), where="{"),
]

LATEX_RULES = [  # for texts with a backslash
    # siunitx
    Rule(r"""(?x) \\(?:(?:SI|qty)\ ?(?:\[[^\[\]]{0,80}\])?\ ?\{([^{}]{1,80})\} | (?:si|unit)())\ ?
                  \{((?:[^{}]|\{[^{}]{0,80}\}){1,200})\}""", without_siunitx,
         (r"\SI{5}{\kilo\meter\per\hour}", r"5\text{ kilometer/ hour}"), where="{"),
    Rule(r"\\num ?(?:\[[^\[\]]{0,80}\])? ?\{([^{}]{1,80})\}", r"\1", (r"\num{1.2e3}", "1.2e3"),
         where="num"),
    Rule(r"\\ang ?\{(\d{1,4}(?:\.\d{1,9})?)(?:;(\d{1,2})?(?:;(\d{1,2})?)?)?\}", _angle,
         (r"\ang{30;15}", r"30^\circ15'"), where="ang"),
    Rule(r"\\AA(?![a-zA-Z])|\\(?:mathring|r) ?\{A\}", r"\\text{ angstrom}",
         (r"5\,\AA", r"5\,\text{ angstrom}"), where="A"),
    # layout
    Rule(r"(?<=\d)(?:\{,\}|,) ?\\! ?(?=\d{3}(?!\d))", "", (r"3,\!628", "3628"), where=","),
    Rule(r"(?<!\\)\\[()\[\]!]", "", (r"\(42\)", "42")),
    Rule(r"(?<=\\\\)\[\d+(?:\.\d+)?[a-z]{2}\]|\\(?:tag\*?\{[^{}]*\}|notag|nonumber)", "",
         (r"x=3\tag{1}\\[2pt] y", r"x=3\\ y")),
    Rule(r"\\(?:begin|end)\{(?:equation|math|displaymath)\*?\}", "",
         (r"\begin{equation}x\end{equation}", "x"), where="{"),
    Rule(r"\{[dr]cases\}", "{cases}", (r"\begin{dcases}", r"\begin{cases}"), where="cases"),
    Rule(r"\\(?:left|right|[bB]igg?[lrm]?|triangle)(?![a-zA-Z])\s?\.?", "",
         (r"\left(1, 2\right)", "(1, 2)")),
    Rule(r"\\(?:measured)?angle(?! ?\{? ?[A-Z]{3}(?![A-Za-z]))(?![a-zA-Z])\s?\.?", "",
         (r"\angle A", "A"), where="angle"),
    Rule(r"\\(?:measured)?angle ?(?:\{ ?([A-Z]{3}) ?\}|([A-Z]{3})(?![A-Za-z]))", r"\\angle \1\2",
         (r"\measuredangle ABC", r"\angle ABC"), where="angle"),
    Rule(r"\\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}", "",
         (r"\color{red} 12", " 12"), where="color"),
    Rule(r"\\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])", "",
         (r"\bf 12", " 12")),
    Rule(r"\\(?:boxed|fbox|underline|uline|emph|pmb|boldsymbol|bm)\s?(?=\{)", "",
         (r"\bm{12}", "{12}"), where="{"),
    Rule(r"\\(?:(?:math|text)(?:rm|bf|it|sf|cal|normal)?|[mh]box|operatorname)\*?\s?(?=\{)",
         r"\\text", (r"\textbf{5}", r"\text{5}"), where="{"),
    Rule(r"\\(?:math|text)(?:rm|bf|sf) ([A-Z])(?![a-zA-Z])", r"\1", (r"\mathrm T", "T")),
    Rule(r"\\(?:vec|hat|overrightarrow|mathbb(?=\{[^RZNQC]))\s?(?=\{ ?[^\d\s])", "",
         (r"\vec{v}", "{v}"), where="{"),
    Rule(r"\{([^{}\\]*)\\(over|choose)(?![a-z]) ?([^{}\\]*)\}", r"\\\2{\1}{\3}",
         (r"{3 \over 4}", r"\over{3 }{4}")),
    Rule(r"\\([a-zA-Z]+)", _command, (r"x\ge1", "x>=1")),
    Rule(r"\\([%#|])", r"\1", (r"5\%", "5%")),
    Rule(r"\\\$", r"\\usd ", (r"\$6", r"\usd 6")),
    Rule(r"\^ ?\{ ?\\circ ?\}", r"^\\circ", (r"9^{\circ}", r"9^\circ"), where="circ"),
    Rule(r"\^ ?\{ ?\\prime ?\\prime ?\}", "''", (r"5^{\prime\prime}", "5''"), where="prime"),
    Rule(r"\^ ?(?:\\prime(?![a-z])|\{ ?\\prime ?\})", "'", (r"y^{\prime}=2x", "y'=2x"),
         where="prime"),
    # systems of equations and matrices: `[row],[row]` and `([row],[row])`
    Rule(r"""(?xs) (?:\\\{\s*)? \\begin\{(?P<name> (?P<table>array|cases) | (?:aligned|alignedat
                      |gathered|split|align|alignat|gather|eqnarray)\*? )\}
                    (?:\[[tbc]\])? (?:\{[lcr|@\d ]*\})?
                    (?P<rows>(?:(?!\\begin|\\end).)*) \\end\{(?P=name)\}""",
         _rows, (r"\begin{aligned} x&=3\\ y&=1\\ &+1 \\ &=2\end{aligned}", "x=3; y=1; +1=2"),
         where=r"\begin"),
    Rule(_ALIGNMENT.pattern, "", (r"\begin{cases} x&=3]", r"\begin{cases} x=3]"), where="begin"),
    Rule(r"(?:\\\\\s*)*\\end\{cases\}", "]",
         (r"\begin{cases} x=1 \\ y=3 \end{cases}", r"\begin{cases} x=1 \\ y=3 ]"), where="end"),
    Rule(r"(?:\\\\\s*)*\\end\{(?:[pbBvV]?matrix|smallmatrix|array)\}", "])",
         (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\2])"), where="end"),
    Rule(r"(?:\\\\\s*)+", "],[", (r"\begin{pmatrix}1\\2])", r"\begin{pmatrix}1],[2])"),
         where="begin"),
    Rule(r",?\s*&", ",", (r"\begin{bmatrix} 1&2])", r"\begin{bmatrix} 1,2])"), where="begin"),
    Rule(r"\\begin\{cases\}", "[", (r"\begin{cases} x=1 ],[y=3 ]", "[ x=1 ],[y=3 ]"),
         where="begin"),
    Rule(r"\\begin\{vmatrix\}", r"\\det([", (r"\begin{vmatrix} 1,2])", r"\det([ 1,2])"),
         where="vmatrix"),
    Rule(r"\\begin\{(?:[pbBV]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?", "([",
         (r"\begin{bmatrix} 1,2])", "([ 1,2])"), where="begin"),
    Rule(r"[,;] ?(?=\\\\)", "", (r"x=3,\\ y=4", r"x=3\\ y=4"), where=r"\\"),
    # units and words
    Rule(r"""(?x) \\frac \{\ ?\\text\{([a-z\ ]{1,20})\}\ ?\}
                  \ ?    \{\ ?\\text\{([a-z\ ]{1,20})\}\ ?((?:\^\ ?\{?\ ?\d\ ?\}?)?)\ ?\}""",
         r"\\text{ \1/\2}\3", (r"5 \frac{\text{m}}{\text{s}}", r"5 \text{ m/s}"), where="frac"),
    Rule(r"""(?x) (?<=[\d}])\ ?\\?[\ ,]? \\frac
                  \{ (km|cm|mm|mi|ft|kg|mg|mL|meters|miles|feet|dollars) \}
                  \ ? \{ (h|hr|s|min|hour|l|L|g) \}""",
         r"\\text{ \1/\2}", (r"5\,\frac{km}{h}", r"5\text{ km/h}"), where="frac"),
    Rule(r"\\forall(?![a-z])", "for all ", (r"2x, \forall x", "2x, for all  x"), where="forall"),
    Rule(r"(?<=[\d)}])(?<![A-Z]\})[ ~]?\\text\{[ ~]?([ABCFJKLNVWghlms])(?![A-Za-z])",
         r"\\text{ \\\1", (r"5\text{ m}", r"5\text{ \m}"), where="text"),
    Rule(r"\\text\{([^{}]*)\}", r" \1 ", (r"\text{}", "  "), where="text"),
    Rule(r"\\text(?=\{)", "", (r"\text{\frac{5}{2}}", r"{\frac{5}{2}}"), where="text"),
    Rule(r"\ +(?=_)", "", (r"\log _{2} 3", r"\log_{2} 3"), where="_"),
]

PLAIN_RULES = [
    # layout
    Rule(r"</?answer>", "", ("<answer>5</answer>", "5"), where="<"),
    Rule(r"(?<=\$)(or|and)(?=\$)", r" \1 ", ("$x=0$or$x=2$", "$x=0$ or $x=2$"), where="$"),
    Rule(r"(?<!\\)\$\$", "$", ("$$5$$", "$5$"), where="$$"),
    Rule(r"(?<!\\)\$([^$\\]*(?:\\[^$][^$\\]*)*)\$(?!\d)", r"\1", ("$24$", "24"), where="$"),
    Rule(r"\$", r"\\usd ", ("$5", r"\usd 5"), where="$"),
    Rule(r"(?<!\\)\\[ ,;:>]", " ", (r"20\ %", "20 %"), where="\\"),
    Rule(r"(?<=[^\s,;:])[ \t]*\n\s*(?=\(?[a-zA-Z\d]{1,4}[.):] |Part )", "; ",
         ("1. 3\n2. 4", "1. 3; 2. 4"), where="\n"),
    Rule(r"(?<=[\d)])[ \t]*(?:\n|\\q?quad(?![a-z]))\s*(?=[a-zA-Z](?:_\w)? ?=)", ", ",
         ("x=3\ny=4", "x=3, y=4"), where="="),
    Rule(r"\\(?:q?quad|(?:thin|en)space|hfill|(?:display|text)style|limits)(?![a-zA-Z])", " ",
         (r" 42\quad", " 42 "), where="\\"),
    Rule(r"(?<![\w~)}\]])~~(?!and|or)([^\s~\\](?:[^~]*[^\s~,;])?)~~(?![\w~])", r"\\cancel{\1}",
         ("~~18~~", r"\cancel{18}"), where="~~"),
    Rule(r"~|\s", " ", ("5~m", "5 m")),
    Rule(r"\b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|[ckm]m|kg|gal|pt|qt|units)\.(?![\w.])",
         r"\1", ("3 ft.", "3 ft"), where="."),
    Rule(r"\ {2,}", " ", ("5   m", "5 m")),
    Rule(r"\A\\(?:[bx]?cancel|sout|st) ?\{[^{}]*\}(?: |\\rightarrow)+(?=[\w$]|\\(?:frac|sqrt))",
         "", (r"\cancel{17} 18", "18"), where="{"),
    Rule(r"\*\*(\(?[a-zA-Z\d]{1,4}[).:]{1,2}|Part \(?\w{1,3}\)?[.:]?)\*\*", r"\1",
         ("**(a)** 3, **(b)** 4", "(a) 3, (b) 4"), where="**"),
    Rule(r"\A ?\*\*(.*)\*\* ?\Z", r"\1", ("**5**", "5"), where="**"),
    Rule(r"\A[`']{1,2}([^`']*)[`']{1,2}\Z", r"\1", ("'42'", "42")),
    # numbers
    Rule(r"\*\*", "^", ("2**3", "2^3"), where="**"),
    Rule(rf"(?<![\d.,])([1-9]\d?)({_PAIRS}0\d\d)(?!,?\d)", _joined,  # no element begins with 0
         ("1,50,000 people", "150000 people"), where=","),
    Rule(rf"(\b(?:inr|INR|[Rr]s\.?) ?[1-9]\d?)({_PAIRS}\d{{3}})(?!,?\d)", _joined,
         ("Rs. 1,23,456", "Rs. 123456"), where=","),
    Rule(rf"(?<![\d.,])([1-9]\d?)({_PAIRS}\d{{3}})(?=(?:\.\d\d?)? ?\\?(?:rupees|inr|INR|[Rr]s)\b)",
         _joined, ("1,23,456 rupees", "123456 rupees"), where=","),
    Rule(r"(?<=\d) ?[xX] ?(?=10 ?\^)", "*", ("6.02 x 10^23", "6.02*10^23"), where="^"),
    Rule(r"(?<![\d.,])(\d{1,3})((?:(?:\{,\}|[ '])\d{3})+)(?![\d,])", _joined, ("5 040", "5040")),
    Rule(r"(?<![\d.,])([1-9]\d{0,2})((?:\.\d{3}){2,})(?!\d|[.,]\d)", _joined,
         ("1.234.567", "1234567"), where="."),
    Rule(r"\\(frac|binom)\s?(\d)\s?(?=[\d{\\a-zA-Z])", r"\\\1{\2}", (r"\frac17", r"\frac{1}7"),
         where="\\"),
    Rule(r"(\\(?:frac|binom)\{\d+\})\s?(\d)(?!\d)", r"\1{\2}", (r"\frac{1}7", r"\frac{1}{7}"),
         where="\\"),
    Rule(r"\\(frac|binom) ([a-zA-Z]) ?([a-zA-Z])", r"\\\1{\2}{\3}",
         (r"\frac km", r"\frac{k}{m}"), where="\\"),
    Rule(r"(\d) ?\^? ?\{? ?(st|nd|rd|th)\b(?: ?\})?", r"\1\2", ("5^{th}", "5th")),
    Rule(r"(?<=(?<!1)1)st\b|(?<=(?<!1)2)nd\b|(?<=(?<!1)3)rd\b|(?<=\d)th\b", "", ("4th", "4")),
    Rule(r"(\.\d{0,6}?)(?:(\d)\2\2+|(\d{2,6}?)\3+) ?(?:\.\.\.|\\ldots(?![a-z]))",
         r"\1\\bar{\2\3}", ("0.333...", r"0.\bar{3}"), where="."),
    Rule(r"(?<=[\d,;)}\]%]) ?\.(?:\.{2,}| \. \.)", r"\\ldots ",
         ("1, 2, ..., 9", r"1, 2,\ldots , 9"), where="."),
    Rule(r"(\\approx ?-?\d*\.\d+) ?\\ldots(?![a-z])", r"\1",
         (r"\approx 3.14\ldots", r"\approx 3.14"), where=r"\ldots"),
    Rule(r"(\d\.)\((\d{1,9})\)(?!\^)", r"\1\\bar{\2}", ("0.(3)", r"0.\bar{3}"), where=".("),
    Rule(r"\A(-?\d{0,9}\.\d{1,9})\((\d{1,9})\)\Z", r"\1\\bar{\2}", ("0.1(6)", r"0.1\bar{6}"),
         where="("),
    Rule(r"(?<=\^)([2-9])(?=[1-9]\d*\^)", r"{\1}", ("2^43^2", "2^{4}3^2"), where="^"),
    Rule(r"(?<![\d.,^_/}])(\d{1,9}) ?(\\frac\{(\d{1,9})\}\{(\d{1,9})\})", _mixed,
         (r"1\frac{4}{5}", r"{1+\frac{4}{5}}"), where="frac"),
    Rule(r"(?<![\d.,^_/}])(\d{1,9}) ((\d{1,9})/(\d{1,9}))(?![\d.]|,\d)", _mixed,
         ("4 2/3", "{4+2/3}"), where="/"),
    Rule(r"(?<![\d.,])(\d{1,3}) ?\(([a-zA-Z]{3,9}(?:-[a-z]{3,5})?)\)", _without_spelt_out,
         ("10 (ten)", "10"), where="("),
    Rule(r"(\A|[=,] ?)\+ ?- ?|\+/- ?", r"\1\\pm ", ("+- 7", r"\pm 7"), where="+"),
    # bases and residues
    Rule(r"(?:(\( ?)\\?b?|\\p?)mod ?\{? ?(\d+) ?\}?(?(1) ?\))", r"\\pmod{\2}",
         (r"5 \mod 7", r"5 \pmod{7}"), where="mod"),
    Rule(r"(?<=[0-9A-F])_ ?\{ ?\(?(?:base ?)?([a-z\d]{1,8}) ?\)? ?\}", r"_{\1}",
         ("332_{(4)}", "332_{4}"), where="_"),
    Rule(r"(?<![0-9A-F])([0-9A-F]+) ?\(? ?base ?-? ?(\w+)\b ?\)?", r"\1_{\2}",
         ("1011 (base 2)", "1011_{2}"), where="base"),
    Rule(r"\((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{])", r"\1_", ("(52)_8", "52_8"), where="_"),
    # functions
    Rule(r"\\sqrt ?\[([^\[\]]+)\]", r"\\root{\1}", (r"\sqrt[3]4", r"\root{3}4"), where="sqrt"),
    Rule(r"(?<![a-z])(sin|cos|tan) ?\^ ?(?:\{ ?-1 ?\}|-1(?![\d.]))", r"arc\1",
         (r"\sin^{-1}(1)", r"\arcsin(1)"), where="^"),
    Rule(r"(?<![\w.)\]}^])(?:\{\} ?)?_?\{?(\d{1,4})\}? ?C_?\{?(\d{1,4})\}?(?![\w{])",
         r"\\binom{\1}{\2}", ("5C2", r"\binom{5}{2}"), where="C"),
    Rule(r"(?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])", r"\\binom{\1}{\2}",
         ("C_5^2", r"\binom{5}{2}"), where="C"),
    Rule(r"(\\\{ ?[a-z]) ?\| ?(?=\|)", r"\1 \\mid ", (r"\{x | |x|<2\}", r"\{x \mid |x|<2\}"),
         where="|"),
    Rule(r"\|([^|]+)\|", r"\\abs(\1)", ("|x|", r"\abs(x)"), where="|"),
    # points, matrices and sets
    Rule(r"\[ ?(\[[^\[\]]*\](?: ?, ?\[[^\[\]]*\])+) ?\]", r"(\1)",
         ("[[1,2],[3,4]]", "([1,2],[3,4])"), where="]"),
    Rule(r"(?<![\w\\])[A-Z] ?(?=\([^()]*,[^()]*\)(?! ?=))", "", ("A(3,4)", "(3,4)"), where="("),
    Rule(r"""(?x) [ ,]+ for\ (?:all|any|every)[ ]
                  (?:(?:real|positive|values|numbers?|integers?|of)\ )* [a-zA-Z](?![a-zA-Z])
                  (?:\ ?(?:\\?in\b|[<>,!]|and\ )[^={}]{0,40}(?:\{[A-Z]\})?)? \Z""",
         "", ("2x for all x > 0", "2x"), where="for"),
    Rule(r"\A([^<>]*(?<![a-z\\])([kmn])(?![a-z])[^<>]*)[,(] ?\2 ?\\in ?\\mathbb\{[NZ]\}[ .)]*\Z",
         r"\1", (r"k\pi, k\in\mathbb{Z}", r"k\pi"), where=r"\in"),
    Rule(r"(\\\{ ?\(?[a-z][^{}:]*(?:\{[A-Z]\})?[^{}:]*):", r"\1\\mid  ",
         (r"\{x : 3 < x <= 4\}", r"\{x \mid   3 < x <= 4\}"), where=":"),
    Rule(r"\\mathbb ?([RZNQC])(?![a-zA-Z])", r"\\mathbb{\1}", (r"\mathbb R", r"\mathbb{R}"),
         where="mathbb"),
    Rule(r"\\mathbb\{R\} ?((?:[\^_] ?(?:\{[^{}]{1,12}\}|[-+*]) ?){1,2})", _half_line,
         (r"\mathbb{R}_{>0}", r"(0,\infty)"), where="R"),
    Rule(r"\A ?(?:all |the )*((?:non-?)?(?:positive|negative|zero)) reals?(?: numbers?)?[ .]*\Z",
         _half_line, ("all positive reals", r"(0,\infty)"), where="real"),
    Rule(r"\\mathbb\{R\}(?!\^)", r"(-\\infty,\\infty)", (r"\mathbb{R}", r"(-\infty,\infty)"),
         where="R"),
    Rule(r"\A ?(?:[aA]ll )?reals?(?: numbers)?[ .]*\Z", r"(-\\infty,\\infty)",
         (" all real numbers ", r"(-\infty,\infty)"), where="real"),
    Rule(r"""(?x) \A\ ?(?i: none | empty\ set
                  | (?:there\ (?:is|are|exists?)\ |has\ )?no\ (?:(?:real|such|possible|valid
                    |integer|positive)\ )*(?:solutions?|roots?|values?|numbers?|integers?)
                    (?:\ exists?)? )[ .]*\Z""",
         r"\\emptyset", ("none", r"\emptyset")),
    # units, angles and currencies
    Rule(r"\bmph\b", "miles per hour", ("36 mph ", "36 miles per hour "), where="mph"),
    Rule(r"(?<=[\d}] )m(?=/s(?![a-z]))", r"\\m", ("10 m/s", r"10 \m/s"), where="m/s"),
    Rule(r"""(\d{1,4}) ?\^\\circ ?(\d{1,2})'(?: ?(\d{1,2})(?:''|"))?""", _minutes,
         (r"67^\circ30'", r"{67+30/60+0/3600}^\circ"), where="circ"),
    Rule(r"""(?<![\w'^\\}.])(\d{1,6})' ?(\d{1,6}(?:\.\d{1,9})?) ?(?:''|"|\Z)""", r"\1 ft \2 in",
         ("5'6''", "5 ft 6 in"), where="'"),
    Rule(r"(?<=\d) ?''\Z", " doubleprime", ("5''", "5 doubleprime"), where="''"),
    Rule(r"(?<=\d) ?'\Z", " singleprime", ("5'", "5 singleprime"), where="'"),
    Rule(r"\bUS ?(?=\$|\\usd)", "", ("US$5", "$5"), where="US"),
    Rule(r"\^\\circ ?C(?![A-Za-z])", " celsius", (r"20^\circC", "20 celsius"), where="circ"),
    Rule(r"\^\\circ ?F(?![A-Za-z])", " fahrenheit", (r"68^\circ F", "68 fahrenheit"), where="circ"),
    Rule(r"\bdegrees? ([Cc]elsius|[Ff]ahrenheit)\b", lambda scale: scale[1].lower(),
         ("20 degrees Celsius", "20 celsius"), where="egree"),
    Rule(rf"(?<![A-Za-z])\\?({_MONEY}|USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|KRW|RUB|Rs)(?![A-Za-z])\.?"
         r"""(?x:\ ?(?=[-\d.{\\(]|[a-z]\b) ((?:[^,;=]|,(?=\d{3}))*?)  # the amount, up to
                  (?=\ ?(?:,(?!\d{3})|[;=]|\b(?:and|or|per)\b|/\ ?[a-z]|\Z)))""",
         r"\2 \1", ("USD 5", "5 USD")),
    Rule(rf"\\({_MONEY}|cents)(?![a-z])", r"\1", (r"5 \usd", "5 usd"), where="\\"),
    Rule(r"\bper cent\b", "percent", ("28 per cent", "28 percent"), where="per cent"),
    # words behind a number
    Rule(r"\( ?(\\approx [^()]{1,40})\)", r"\1", (r"\pi (\approx 3.14)", r"\pi \approx 3.14"),
         where=r"\approx"),
    Rule(r"\((?:approx(?:\.|imately)?|roughly|rounded|remainder \d{1,9})\)", "",
         ("100 (approx.) ", "100  "), where="("),
    Rule(r"(?<=[a-z\d}]),? (?:altogether|in total|in all|overall)[ .]*\Z", "",
         ("72 clips, altogether", "72 clips"), where=" "),
]
# fmt: on


def _compiled(rules: list[Rule]) -> list[tuple[str, re.Pattern[str], Replacement]]:
    return [(rule.where, re.compile(rule.pattern), rule.to) for rule in rules]


_PLAIN = _compiled(SET_RULES + PLAIN_RULES)
_LATEX = _compiled(SET_RULES + LATEX_RULES + PLAIN_RULES)


def normal(text: str) -> str:
    r"""The text in its canonical spelling; a `$` that is no delimiter is money, spelt `\usd`."""
    text = (text if text.isascii() else _in_ascii(text)).strip()
    if text.isascii() and text.isdigit():
        return text
    if "\\\\" in text and r"\begin" not in text:
        text = re.sub(r"(?<!\\)\\\\(?=[a-zA-Z]{2})", r"\\", text)
    for where, pattern, to in _LATEX if "\\" in text else _PLAIN:
        if where in text:
            text = pattern.sub(to, text)
    is_decimal_comma = text.count("{,}") == 1
    text = text.strip(' "').replace("{,}", "." if is_decimal_comma else ",")
    return text.rstrip(" .,;:\\").lstrip()


# unicode

# fmt: off
_SIGNS = {  # a spelling, and the signs that are spelt so
    "-": "−–—‐‑‒", "*": "×·⋅∙∗✕", "/": "÷⁄∕", r" \pm ": "±", r" \mp ": "∓", r" \infty ": "∞",
    r" \sqrt ": "√", r" \sqrt[3] ": "∛", r" \sqrt[4] ": "∜", r"^{\circ}": "°º˚", r" \hbar ": "ℏ",
    r" \leq ": "≤⩽", r" \geq ": "≥⩾", r" \neq ": "≠", r" \approx ": "≈", r" \equiv ": "≡",
    r" \cup ": "∪", r" \cap ": "∩", r" \setminus ": "∖", r" \in ": "∈", r" \emptyset ": "∅",
    r" \mathbb{R} ": "ℝ", r" \mathbb{Z} ": "ℤ", r" \mathbb{N} ": "ℕ", r" \mathbb{Q} ": "ℚ",
    r" \mathbb{C} ": "ℂ", r" \vee ": "∨", r" \wedge ": "∧", r" \neg ": "¬", r" \rightarrow ": "→",
    r" \langle ": "⟨", r" \rangle ": "⟩", r" \lfloor ": "⌊", r" \rfloor ": "⌋",
    r" \lceil ": "⌈", r" \rceil ": "⌉", r" \angle ": "∠", r" \, ": "△",
    r" \euro ": "€", r" \gbp ": "£", r" \yen ": "¥￥", r" \cents ": "¢￠", r" \inr ": "₹₨",
    r" \krw ": "₩", r" \rub ": "₽", r" \ils ": "₪", r" \php ": "₱", r" \ngn ": "₦",
    r" \vnd ": "₫", r" \uah ": "₴", r" \btc ": "₿", r" \thb ": "฿", " angstrom ": "Å\u212b",
    r"^{\circ}C ": "℃", r"^{\circ}F ": "℉", r" \Omega ": "\u2126", r" \mu ": "\u00b5",
    "''": "″",
    "`": "’‘", "'": "´′", '"': "“”", ",": "，、", ";": "；", ".": "。", ":": "∶",
}
# fmt: on
_GREEK_LETTERS = "αβγδεθλμπρστφωΔΣΩ"
_GREEK_NAMES = """alpha beta gamma delta epsilon theta lambda mu pi rho sigma tau phi omega
    Delta Sigma Omega"""
for _letter, _name in zip(_GREEK_LETTERS, _GREEK_NAMES.split(), strict=True):
    _SIGNS[rf" \{_name} "] = _SIGNS.get(rf" \{_name} ", "") + _letter
_ASCII = str.maketrans({sign: to for to, signs in _SIGNS.items() for sign in signs})

# Units and counters in Chinese, Japanese and Korean, behind a number. Words that change a number,
# such as 万 (ten thousand), are none.
_COUNTERS = """个 個 只 隻 条 條 人 名 位 本 张 張 枚 辆 輛 件 棵 次 种 種 台 双 雙 支 岁 歲 歳 匹
    つ 개 명 마리 권"""
_UNITS = {
    "mm": "毫米 ミリメートル 밀리미터",
    "cm": "厘米 公分 センチメートル 센티미터",
    "\\m": "米 公尺 メートル 미터",
    "km": "千米 公里 キロメートル 킬로미터",
    "\\g": "克 グラム 그램",
    "kg": "千克 公斤 キログラム 킬로그램",
    "mL": "毫升 ミリリットル 밀리리터",
    "\\L": "升 公升 リットル 리터",
    "\\s": "秒 秒钟 秒鐘 초",
    "minutes": "分钟 分鐘 분",
    "\\h": "小时 小時 時間 시간",
    "days": "天 日 일",
    "degrees": "度 도",
    "yuan": "元",
    "yen": "円",
    "won": "원",
    "": _COUNTERS,
}
_SPELT_UNITS = {word: unit for unit, words in _UNITS.items() for word in words.split()}
for _length in ("毫米", "厘米", "米", "千米"):
    _SPELT_UNITS["平方" + _length] = f"{_SPELT_UNITS[_length]}^2"
    _SPELT_UNITS["立方" + _length] = f"{_SPELT_UNITS[_length]}^3"
_UNIT_WORDS = "|".join(sorted(_SPELT_UNITS, key=len, reverse=True))
_UNIT = re.compile(rf"(?<=[\d)}}{{ ])(?:{_UNIT_WORDS})(?![ぁ-ヿ一-鿿가-힣])")


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _iso_date(date: re.Match[str]) -> str:
    year, month, day = map(int, date.groups())
    return f"{year}-{month:02}-{day:02}"


def _in_ascii(text: str) -> str:
    """The text with LaTeX in the place of mathematical signs, and without invisible characters."""
    text = re.sub("[⁰ⁱ¹²³⁴-⁹⁺⁻⁽⁾ⁿ]+", lambda run: f"^{{{_compatible(run[0])}}}", text)
    text = re.sub("[₀-₉₊₋]+", lambda run: f"_{{{_compatible(run[0])}}}", text)
    text = re.sub("([¼-¾⅐-⅞])", r" \1 ", text)
    text = re.sub(r"(\d{4}) ?年 ?(\d\d?) ?月 ?(\d\d?) ?日", _iso_date, text)
    text = re.sub("[①-⑳]", lambda sign: f"({_compatible(sign[0])}) ", text)
    text = _UNIT.sub(lambda word: f" {_SPELT_UNITS[word[0]]} ", text)
    text = _compatible(text.translate(_ASCII)).replace("⁄", "/")
    return "".join(char for char in text if unicodedata.category(char) != "Cf")
