r"""Spells an answer in one way: LaTeX, Unicode and plain text become the same short ASCII text.

Only the spelling changes (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); `syntax` reads the
meaning. `normal` runs the passes below from first to last. A pass applies its rules in order; its
docstring states what holds for the text afterwards. Every pattern takes linear time on any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from answer_graders.math.signs import in_ascii
from answer_graders.math.units import without_siunitx
from answer_graders.math.vocabulary import NUMBER_WORDS

Replacement = str | Callable[[re.Match[str]], str]


class Rule(NamedTuple):
    """Replaces what matches a pattern by another spelling."""

    pattern: str
    to: Replacement
    example: tuple[str, str]  # a text, and the result of this rule alone
    where: str = ""  # only texts with this can match; checked first, since it is fast


class Rules:
    """Rules that are applied in order, each to the result of the one before."""

    def __init__(self, rules: Sequence[Rule]):
        self.rules = rules
        self._compiled = [(rule.where, re.compile(rule.pattern), rule.to) for rule in rules]

    def applied_to(self, text: str) -> str:
        for where, pattern, to in self._compiled:
            if where in text:
                text = pattern.sub(to, text)
        return text


def normal(text: str) -> str:
    r"""The canonical spelling of a text; a `$` that is no delimiter is money, spelt `usd`."""
    text = in_ascii(text).strip()
    if text.isascii() and text.isdigit():
        return text
    has_commands = "\\" in text
    text = braced_sets(text)
    if has_commands:
        text = single_backslashes(text)
        text = siunitx(text)
        text = typesetting(text)
        text = commands(text)
        text = environments(text)
        text = texts(text)
    text = layout(text)
    text = numbers(text)
    text = bases(text)
    text = functions(text)
    text = collections(text)
    text = units(text)
    text = remarks(text)
    return ends(text)


# sets

BRACED_SETS = Rules([
    Rule(r"\A(\$?)\{(?!\d{1,3}(?:,\d{3})+\})([^{}]*,[^{}]*)\}(\$?)\Z", r"\1\\{\2\\}\3",
         ("{1,2,1}", r"\{1,2,1\}"), where="{"),
])  # fmt: skip


def braced_sets(text: str) -> str:
    r"""Turns the braces around a whole list into the braces of a set.

    Afterwards the whole text is no list in plain braces, except for a number such as `{1,234}`.
    """
    return BRACED_SETS.applied_to(text)


# LaTeX

_ESCAPED_COMMAND = re.compile(r"(?<!\\)\\\\(?=[a-zA-Z]{2})")


def single_backslashes(text: str) -> str:
    r"""Undoes the doubled backslash of a command, as in `\\frac`.

    Afterwards a doubled backslash before letters ends a row of an environment.
    """
    if "\\\\" in text and r"\begin" not in text:
        return _ESCAPED_COMMAND.sub(r"\\", text)
    return text


# siunitx


def _angle(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = angle.groups()
    smaller = f"{minutes or 0}'" if minutes or seconds else ""
    return rf"{degrees}^\circ{smaller}" + (f"{seconds}''" if seconds else "")


SIUNITX = Rules([
    Rule(r"""(?x) \\(?:(?:SI|qty)\ ?(?:\[[^\[\]]{0,80}\])?\ ?\{([^{}]{1,80})\} | (?:si|unit)())\ ?
                  \{((?:[^{}]|\{[^{}]{0,80}\}){1,200})\}""", without_siunitx,
         (r"\SI{5}{\kilo\meter\per\hour}", r"5\text{ kilometer/ hour}"), where="{"),
    Rule(r"\\num ?(?:\[[^\[\]]{0,80}\])? ?\{([^{}]{1,80})\}", r"\1", (r"\num{1.2e3}", "1.2e3"),
         where="num"),
    Rule(r"\\ang ?\{(\d{1,4}(?:\.\d{1,9})?)(?:;(\d{1,2})?(?:;(\d{1,2})?)?)?\}", _angle,
         (r"\ang{30;15}", r"30^\circ15'"), where="ang"),
    Rule(r"\\AA(?![a-zA-Z])|\\(?:mathring|r) ?\{A\}", r"\\text{ angstrom}",
         (r"5\,\AA", r"5\,\text{ angstrom}"), where="A"),
])  # fmt: skip


def siunitx(text: str) -> str:
    r"""Spells the quantities of LaTeX's package siunitx as a number and a text.

    Afterwards no `\num`, `\SI` or `\ang` with plain arguments is left.
    """
    return SIUNITX.applied_to(text)


# typesetting

TYPESETTING = Rules([
    Rule(r"(?<=\d)(?:\{,\}|,) ?\\! ?(?=\d{3}(?!\d))", "", (r"3,\!628", "3628"), where=","),
    Rule(r"(?<!\\)\\[()\[\]!]", "", (r"\(42\)", "42")),
    Rule(r"(?<=\\\\)\[\d+(?:\.\d+)?[a-z]{2}\]|\\(?:tag\*?\{[^{}]*\}|notag|nonumber)", "",
         (r"x=3\tag{1}\\[2pt] y", r"x=3\\ y")),
    Rule(r"\\(?:begin|end)\{(?:equation|math|displaymath)\*?\}", "",
         (r"\begin{equation}x\end{equation}", "x"), where="{"),
    Rule(r"\{[dr]cases\}", "{cases}", (r"\begin{dcases}", r"\begin{cases}"), where="cases"),
    Rule(r"\\(?:left|right|middle|[bB]igg?[lrm]?|triangle)(?![a-zA-Z])\s?\.?", "",
         (r"\left(1, 2\right)", "(1, 2)")),
    Rule(r"\\(?:measured)?angle(?! ?\{? ?[A-Z]{3}(?![A-Za-z]))(?![a-zA-Z])\s?\.?", "",
         (r"\angle A", "A"), where="angle"),
    Rule(r"\\(?:measured)?angle ?(?:\{ ?([A-Z]{3}) ?\}|([A-Z]{3})(?![A-Za-z]))", r"\\angle \1\2",
         (r"\measuredangle ABC", r"\angle ABC"), where="angle"),
    Rule(r"\\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}", "",
         (r"\color{red} 12", " 12"), where="color"),
    Rule(r"\\(?:therefore|implies|Rightarrow|checkmark|blacksquare)(?![a-zA-Z])", "",
         (r"\therefore 42", " 42")),
    Rule(r"\\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])", "",
         (r"\bf 12", " 12")),
    Rule(r"\\(?:boxed|fbox|underline|uline|emph|pmb|boldsymbol|bm)\s?(?=[{\d])", "",
         (r"\bm{12}", "{12}")),
    Rule(r"\\dot ?\{?(\d)\}? ?(\d{0,9}) ?\\dot ?\{?(\d)\}?", r"\\overline{\1\2\3}",
         (r"0.\dot{3}\dot{6}", r"0.\overline{36}"), where="dot"),
    Rule(r"\\Bbb ?(?:\{ ?([RZNQ]) ?\}|([RZNQ])(?![a-zA-Z]))|\A ?\\mathbf ?\{ ?(R) ?\} ?\Z",
         r"\\mathbb{\1\2\3}", (r"\Bbb R", r"\mathbb{R}")),
    Rule(r"(?<=\\in) ?(?:\\mathbf ?\{ ?([RZNQ]) ?\}|(?:\{\})?([RZNQ])(?![a-zA-Z_(\d']))",
         r"\\mathbb{\1\2}", (r"x\in R", r"x\in\mathbb{R}"), where=r"\in"),
    Rule(r"\\operatorname\*? ?\{ ?(a?r?c?c?tg) ?\}", r"\\\1 ", (r"\operatorname{tg}x", r"\tg x"),
         where="tg"),
    Rule(r"\\(?:(?:math|text)(?:rm|bf|it|sf|tt|cal|normal)?|[mh]box|operatorname)\*?\s?(?=\{)",
         r"\\text", (r"\textbf{5}", r"\text{5}"), where="{"),
    Rule(r"\\(?:math|text)(?:rm|bf|sf) ([A-Z])(?![a-zA-Z])", r"\1", (r"\mathrm T", "T")),
    Rule(r"\\(?:vec|hat) (?=[a-z](?![a-zA-Z]))", "", (r"2\vec i", "2i"), where=" "),
    Rule(r"\\(?:vec|hat|overrightarrow|mathbb(?=\{[^RZNQC]))\s?(?=\{ ?[^\d\s])", "",
         (r"\vec{v}", "{v}"), where="{"),
    Rule(r"\{([^{}\\]*)\\(over|choose)(?![a-z]) ?([^{}\\]*)\}", r"\\\2{\1}{\3}",
         (r"{3 \over 4}", r"\over{3 }{4}")),
])  # fmt: skip


def typesetting(text: str) -> str:
    r"""Drops what only changes the look: sizes, fonts, colours, fences, equation numbers.

    Afterwards no `\left`, `\right` or size of a bracket is left, and every font is `\text`.
    """
    return TYPESETTING.applied_to(text)


# commands

_COMMANDS_OF = {  # a spelling, and the commands that it replaces
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
    r"\\": "newline", "T": "top intercal", "i": "imath",
    "j": "jmath",
}  # fmt: skip
_SPELT_COMMANDS = {
    name: spelling for spelling, names in _COMMANDS_OF.items() for name in names.split()
}


def _command(command: re.Match[str]) -> str:
    return _SPELT_COMMANDS.get(command[1], command[0])


COMMANDS = Rules([
    Rule(r"\\([a-zA-Z]+)", _command, (r"x\ge1", "x>=1")),
    Rule(r"\\([%#|])", r"\1", (r"5\%", "5%")),
    Rule(r"\\\$", r"\\usd ", (r"\$6", r"\usd 6")),
    Rule(r"\^ ?\{ ?\\circ ?\}", r"^\\circ", (r"9^{\circ}", r"9^\circ"), where="circ"),
    Rule(r"\^ ?\{ ?\\prime ?\\prime ?\}", "''", (r"5^{\prime\prime}", "5''"), where="prime"),
    Rule(r"\^ ?(?:\\prime(?![a-z])|\{ ?\\prime ?\})", "'", (r"y^{\prime}=2x", "y'=2x"),
         where="prime"),
])  # fmt: skip


def commands(text: str) -> str:
    r"""Gives each command its one spelling, a name or a sign.

    Afterwards no command is left that `_COMMANDS_OF` replaces.
    """
    return COMMANDS.applied_to(text)


# environments


def _rows(environment: re.Match[str]) -> str:
    r"""The rows of a system of equations, or of labelled parts, separated by semicolons.

    A row that begins with a relation sign continues the row before. Matrices stay as they are, and
    piecewise functions are spelt as `cases`.
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

ENVIRONMENTS = Rules([
    Rule(r"(?:[,;]\s*)?&\s*[,;]?\s*(?:\\text\{\s*(?:if|for|when|where)\s*\})?\s*", "& ",
         (r"\begin{cases} 1, & \text{if } n=1", r"\begin{cases} 1& n=1"), where="{cases}"),
    Rule(r"\s*[.,;]\s*(?=\\\\|\\end\{cases\})", "", (r"n\ge 2.\end{cases}", r"n\ge 2\end{cases}"),
         where="{cases}"),
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
])  # fmt: skip


def environments(text: str) -> str:
    r"""Spells systems as lists of their rows, and matrices as groups of rows: `([row],[row])`.

    Afterwards no `cases`, `array` or matrix begins an environment.
    """
    return ENVIRONMENTS.applied_to(text)


# words in LaTeX

TEXTS = Rules([
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
])  # fmt: skip


def texts(text: str) -> str:
    r"""Takes words and units out of `\text`; a unit of one letter keeps a backslash.

    Afterwards there is no `\text{`, and no blank before `_`.
    """
    return TEXTS.applied_to(text)


# plain text

LAYOUT = Rules([
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
    Rule(r"\\[hv]space\*? ?\{[^{}]{1,20}\}", " ", (r"5\hspace{1cm}", "5 "), where="space"),
    Rule(r"\\(?:q?quad|(?:thin|en)space|hfill|(?:display|text)style|limits)(?![a-zA-Z])", " ",
         (r" 42\quad", " 42 "), where="\\"),
    Rule(r"(?<![\w~)}\]])~~(?!and|or)([^\s~\\](?:[^~]*[^\s~,;])?)~~(?![\w~])", r"\\cancel{\1}",
         ("~~18~~", r"\cancel{18}"), where="~~"),
    Rule(r"(?<![a-zA-Z}\]^_])\{([A-Za-z])\}(?=[_^])", r"\1", ("{a}_{n}", "a_{n}"), where="{"),
    Rule(r"~|\s", " ", ("5~m", "5 m")),
    Rule(r"\b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|[ckm]m|kg|gal|pt|qt|units)\.(?![\w.])",
         r"\1", ("3 ft.", "3 ft"), where="."),
    Rule(r"\ {2,}", " ", ("5   m", "5 m")),
    Rule(r"\A\\(?:[bx]?cancel|sout|st) ?\{[^{}]*\}(?: |\\rightarrow)+(?=[\w$]|\\(?:frac|sqrt))",
         "", (r"\cancel{17} 18", "18"), where="{"),
    Rule(r"\*\*(\(?[a-zA-Z\d]{1,4}[).:]{1,2}|Part \(?\w{1,3}\)?[.:]?)\*\*", r"\1",
         ("**(a)** 3, **(b)** 4", "(a) 3, (b) 4"), where="**"),
    Rule(r"\A ?(\*\*?)(.*)\1 ?\Z", r"\2", ("**5**", "5"), where="*"),
    Rule(r"\A[`']{1,2}([^`']*)[`']{1,2}\Z", r"\1", ("'42'", "42")),
])  # fmt: skip


def layout(text: str) -> str:
    r"""Drops delimiters, emphasis and line ends of plain text.

    Afterwards there is no `$`, and the only whitespace is single blanks.
    """
    return LAYOUT.applied_to(text)


# numbers

_PAIRS = r"(?:(?:\{,\}|,)\d\d){1,4}(?:\{,\}|,)"  # of digits, grouped as in India
_TENS = dict(thirty=30, forty=40, fifty=50, sixty=60, seventy=70, eighty=80, ninety=90)
_NUMBERS = NUMBER_WORDS | _TENS
_ONES = [word for word, value in NUMBER_WORDS.items() if 0 < value < 10]


def _joined(number: re.Match[str]) -> str:
    return number[1] + re.sub(r"\D", "", number[2])


def _mixed(number: re.Match[str]) -> str:
    whole, fraction, numerator, denominator = number.groups()
    is_proper = 0 < int(numerator) < int(denominator)
    return f"{{{whole}+{fraction}}}" if is_proper else number[0]


def _without_spelt_out(number: re.Match[str]) -> str:
    """`10` for `10 (ten)`; `10 (nine)` becomes two answers, not a product."""
    words = number[2].lower().split("-")
    if not _NUMBERS.keys() >= set(words):
        return number[0]
    value = sum(_NUMBERS[word] for word in words)
    return number[1] if value == int(number[1]) else f"{number[1]}, {value}"


def _in_digits(number: re.Match[str]) -> str:
    tens, ones = number[1].lower(), (number[2] or "zero").lower()
    return str(_NUMBERS[tens] + _NUMBERS[ones])


NUMBERS = Rules([
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
    Rule(rf"(?i)(?<![a-z-])(twenty|{'|'.join(_TENS)})(?:[- ]({'|'.join(_ONES)}))?(?![a-z-])",
         _in_digits, ("forty-two", "42"), where="ty"),
])  # fmt: skip


def numbers(text: str) -> str:
    r"""Spells each number in one way: `5040`, `\frac{1}{7}`, `0.\bar{3}`, `{1+\frac{4}{5}}`.

    Afterwards a power is `^`, never `**`.
    """
    return NUMBERS.applied_to(text)


# bases and residues

BASES = Rules([
    Rule(r"(?:(\( ?)\\?b?|\\p?)mod ?\{? ?(\d+) ?\}?(?(1) ?\))", r"\\pmod{\2}",
         (r"5 \mod 7", r"5 \pmod{7}"), where="mod"),
    Rule(r"(?<=[0-9A-F])_ ?\{ ?\(?(?:base ?)?([a-z\d]{1,8}) ?\)? ?\}", r"_{\1}",
         ("332_{(4)}", "332_{4}"), where="_"),
    Rule(r"(?<![0-9A-F])([0-9A-F]+) ?\(? ?base ?-? ?(\w+)\b ?\)?", r"\1_{\2}",
         ("1011 (base 2)", "1011_{2}"), where="base"),
    Rule(r"\((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{(])", r"\1_", ("(52)_8", "52_8"), where="_"),
])  # fmt: skip


def bases(text: str) -> str:
    r"""Spells numerals with a base as `332_{4}`, and residues as `5 \pmod{7}`.

    Afterwards no numeral with a base stands in brackets, as in `(52)_8`.
    """
    return BASES.applied_to(text)


# functions

FUNCTIONS = Rules([
    Rule(r"\\sqrt ?\[([^\[\]]+)\]", r"\\root{\1}", (r"\sqrt[3]4", r"\root{3}4"), where="sqrt"),
    Rule(r"(?<![a-z])((?:sin|cos|tan)h?|cot|csc|(?<=\\)sec) ?\^ ?(?:\{ ?-1 ?\}|-1(?![\d.]))",
         r"arc\1 ", (r"\sin^{-1}(1)", r"\arcsin (1)"), where="^"),
    Rule(r"(?<![\w.)\]}^])(?:\{\} ?)?[_^]?\{?(\d{1,4})\}? ?C_?\{?(\d{1,4})\}?(?![\w{])",
         r"\\binom{\1}{\2}", ("5C2", r"\binom{5}{2}"), where="C"),
    Rule(r"(?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])", r"\\binom{\1}{\2}",
         ("C_5^2", r"\binom{5}{2}"), where="C"),
    Rule(r"(\\\{ ?[a-z]) ?\| ?(?=\|)", r"\1 \\mid ", (r"\{x | |x|<2\}", r"\{x \mid |x|<2\}"),
         where="|"),
    Rule(r"\|([^|]+)\|", r"\\abs(\1)", ("|x|", r"\abs(x)"), where="|"),
])  # fmt: skip


def functions(text: str) -> str:
    r"""Spells roots, inverse functions, binomials and absolute values as commands.

    Afterwards no `\sin^{-1}`, `\cos^{-1}` or `\tan^{-1}` is left.
    """
    return FUNCTIONS.applied_to(text)


# points, matrices and sets


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

COLLECTIONS = Rules([
    Rule(r"\[ ?(\[[^\[\]]*\](?: ?, ?\[[^\[\]]*\])+) ?\]", r"(\1)",
         ("[[1,2],[3,4]]", "([1,2],[3,4])"), where="]"),
    Rule(r"(?<=[)\]]) ?U ?(?=[(\[])", r"\\cup ", ("(1,2)U(3,4)", r"(1,2)\cup (3,4)"), where="U"),
    Rule(r"(?<=[)\]]) ?union ?(?=[(\[])", r"\\cup ",
         ("(1,2) union (3,4)", r"(1,2)\cup (3,4)"), where="union"),
    Rule(r"(?<![a-zA-Z])oo(?![a-zA-Z])", r"\\infty", ("(1,oo)", r"(1,\infty)"), where="oo"),
    Rule(r"(?<![\w\\])[A-TV-Z] ?(?=\([^()]*,[^()]*\)(?! ?=))", "", ("A(3,4)", "(3,4)"), where="("),
    Rule(r"""(?x) [ ,]+ for\ (?:all|any|every)[ ]
                  (?:(?:real|positive|values|numbers?|integers?|of)\ )* [a-zA-Z](?![a-zA-Z])
                  (?:\ ?(?:\\?in\b|[<>]=?|[,!]|and\ )[^={}]{0,40}(?:\{[A-Z]\}(?:\^[*+])?)?)? \Z""",
         "", ("2x for all x > 0", "2x"), where="for"),
    Rule(r"\A([^<>]*(?<![a-z\\])([kmn])(?![a-z])[^<>]*)[,(] ?\2 ?\\in ?\\mathbb\{Z\}[ .)]*\Z",
         r"\1", (r"k\pi, k\in\mathbb{Z}", r"k\pi"), where=r"\in"),
    Rule(r"(\\\{ ?\(?\d{0,4}[a-z][^{}:]*(?:\{[A-Z]\})?[^{}:]*):", r"\1\\mid  ",
         (r"\{x : 3 < x <= 4\}", r"\{x \mid   3 < x <= 4\}"), where=":"),
    Rule(r"\\mathbb ?([RZNQC])(?![a-zA-Z])", r"\\mathbb{\1}", (r"\mathbb R", r"\mathbb{R}"),
         where="mathbb"),
    Rule(r"\\mathbb\{R\} ?((?:[\^_] ?(?:\{[^{}]{1,12}\}|[-+*]) ?){1,2})", _half_line,
         (r"\mathbb{R}_{>0}", r"(0,\infty)"), where="R"),
    Rule(r"\A ?(?:all |the )*((?:non-?)?(?:positive|negative|zero)) reals?(?: numbers?)?[ .]*\Z",
         _half_line, ("all positive reals", r"(0,\infty)"), where="real"),
    Rule(r"\\mathbb\{R\}(?!\^)", r"(-\\infty,\\infty)", (r"\mathbb{R}", r"(-\infty,\infty)"),
         where="R"),
    Rule(r"\A ?(?:[aA]ll )?reals?(?: numbers?)? (?:except|excluding)(?: for)? (-?\d[-\d,/ ]{0,20})"
         r"[ .]*\Z", r"(-\\infty,\\infty)\\setminus\\{\1\\}",
         ("all real numbers except 2", r"(-\infty,\infty)\setminus\{2\}"), where="real"),
    Rule(r"\A ?(?:[aA]ll )?reals?(?: numbers)?[ .]*\Z", r"(-\\infty,\\infty)",
         (" all real numbers ", r"(-\infty,\infty)"), where="real"),
    Rule(r"""(?x) \A\ ?(?i: none | empty\ set
                  | (?:there\ (?:is|are|exists?)\ |has\ )?no\ (?:(?:real|such|possible|valid
                    |integer|positive)\ )*(?:solutions?|roots?|values?|numbers?|integers?)
                    (?:\ exists?)? )[ .]*\Z""",
         r"\\emptyset", ("none", r"\emptyset")),
])  # fmt: skip


def collections(text: str) -> str:
    r"""Spells points, matrices and sets of numbers as groups and intervals.

    Afterwards `\mathbb{R}` is left only with an exponent.
    """
    return COLLECTIONS.applied_to(text)


# units, angles and currencies

_MONEY = "usd|euro|gbp|yen|inr|krw|rub|ils|php|ngn|vnd|uah|btc|thb"


def _minutes(angle: re.Match[str]) -> str:
    degrees, minutes, seconds = angle.groups()
    return f"{{{degrees}+{minutes}/60+{seconds or 0}/3600}}^\\circ"


UNITS = Rules([
    Rule(r"\bmph\b", "miles per hour", ("36 mph ", "36 miles per hour "), where="mph"),
    Rule(r"(?<=[\d}] )m(?=/s(?:ec)?(?![a-z]))", r"\\m", ("10 m/s", r"10 \m/s"), where="m/s"),
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
])  # fmt: skip


def units(text: str) -> str:
    r"""Puts each currency after its amount, and spells units and angles in one way.

    Afterwards a temperature is in `celsius` or `fahrenheit`, never in `^\circ C` or `^\circ F`.
    """
    return UNITS.applied_to(text)


# remarks

REMARKS = Rules([
    Rule(r"\( ?((?:\\approx|=) [^()]{1,40})\)", r"\1",
         (r"\pi (\approx 3.14)", r"\pi \approx 3.14"), where="("),
    Rule(r"\((?:approx(?:\.|imately)?|roughly|rounded|remainder \d{1,9})\)", "",
         ("100 (approx.) ", "100  "), where="("),
    Rule(r"(?<=[a-z\d}]),? (?:altogether|in total|in all|overall)[ .]*\Z", "",
         ("72 clips, altogether", "72 clips"), where=" "),
])  # fmt: skip


def remarks(text: str) -> str:
    r"""Drops remarks after a number, such as `(approx.)` and `in total`.

    Afterwards a rounded value has no brackets around its `\approx`.
    """
    return REMARKS.applied_to(text)


def ends(text: str) -> str:
    """Drops quotes and closing punctuation; if `3{,}14` has the only comma, it becomes a point.

    Afterwards the text does not begin with a blank, or end in a blank, backslash or punctuation.
    """
    is_decimal_comma = text.count("{,}") == 1
    text = text.strip(' "').replace("{,}", "." if is_decimal_comma else ",")
    return text.rstrip(" .,;:\\").lstrip()
