r"""Spell an answer in one way: LaTeX, unicode and plain text become the same short ASCII text.

Only spelling changes here (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); what the text means is
read in `syntax`. Every pattern takes time in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import re

from openrlhf_js.tasks.equivalence.signs import in_ascii

_PAIRED_DOLLARS = re.compile(r"(?<!\\)\$([^$\\]*(?:\\[^$][^$\\]*)*)\$(?!\d)")
_SPACES = re.compile(
    r"(?<!\\)\\[ ,;:>]|~|\s"
    r"|\\(?:q?quad|thinspace|enspace|hfill|displaystyle|textstyle|limits)(?![a-zA-Z])"
)
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]!]")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|(?:measured)?angle|triangle)(?![a-zA-Z])\s?\.?"
)
_COLOURS = re.compile(r"\\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}")
_FONT_SIZES = re.compile(
    r"\\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])"
)
_DECORATIONS = re.compile(r"\\(?:boxed|fbox|underline|cancel|uline|emph|pmb)\s?(?=\{)")
_STYLES = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|cal|normal)|text(?:rm|bf|it|sf|normal)?|mbox|hbox|operatorname)\*?\s?(?=\{)"
)
_WRAPPERS = re.compile(
    r"\\(?:boldsymbol|bm|mathbb(?=\{[^RZNQC]))\s?(?=\{)"
    r"|\\(?:vec|hat|overrightarrow)\s?(?=\{ ?[^\d\s])"
)
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "nicefrac": "frac",
    "dbinom": "binom", "dot": "bar", "tbinom": "binom",
    "le": "leq", "leqslant": "leq", "ge": "geq", "geqslant": "geq", "ne": "neq",
    "varnothing": "emptyset", "cdot": "*", "times": "*", "ast": "*", "div": "/", "lt": "<",
    "gt": ">",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "lvert": "|", "rvert": "|",
    "vert": "|", "degree": "circ", "colon": ":", "textdollar": "$", "Reals": "mathbb{R}",
    "R": "mathbb{R}", "dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "percent": "%",
    "backslash": "setminus", "smallsetminus": "setminus", "overline": "bar", "varphi": "phi",
    "varepsilon": "epsilon", "vartheta": "theta", "newline": "\\", "lor": "vee", "land": "wedge",
    "mid": "mid", "pounds": "gbp", "texteuro": "euro", "cent": "cents", "to": "rightarrow",
}  # fmt: skip
_BARE = frozenset("*/<>[]|:")  # aliases that are no commands
_ORDINAL = re.compile(
    "|".join(
        rf"{after}\s?(?:\^\s?)?(?:\{{?\\text\{{\s?{end}\s?\}}\}}?|\{{{end}\}}|{end}\b)"
        for after, end in (
            (r"(?<=1)(?<!11)", "st"),
            (r"(?<=2)(?<!12)", "nd"),
            (r"(?<=3)(?<!13)", "rd"),
            (r"(?<=\d)", "th"),
        )
    )
)
_SHORT_FRACTION = re.compile(r"\\(frac|binom)\s?(\d)\s?(?=[\d{\\a-zA-Z])")
_SHORT_DENOMINATOR = re.compile(r"(\\(?:frac|binom)\{\d+\})\s?(\d)(?!\d)")
_GROUPED = re.compile(r"(?<![\d.,])(\d{1,3})((?:(?:\{,\}|[ '])\d{3})+)(?![\d,])")
_GROUPING_COMMA = re.compile(r"(?<=\d)(?:\{,\}|,) ?\\! ?(?=\d{3}(?!\d))")
_NOT_DIGITS = re.compile(r"\D+")
_BOXED = re.compile(r"\A\\f?box(?:ed)?\s?\{([^{}]*)\}\Z")
_DIGITS_AS_TEXT = re.compile(r"\\text\{\s?([0-9A-F]+)\s?\}(?=_)")
_BASE = re.compile(
    r"(?<![0-9A-F])([0-9A-F]+) ?\(?(?:\\text\{ ?)?\(? ?base ?-?\}? ?(\d{1,2}|[a-z]{3,})\b\)?\}?\)?"
)
_BRACKETED_BASE = re.compile(r"\((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{])")
_INFIX = re.compile(r"\{([^{}\\]*)\\(choose|over)(?![a-z]) ?([^{}\\]*)\}")
_TIMES_TEN = re.compile(r"(?<=\d) ?[xX] ?(?=10 ?\^)")
_TEXT_DOLLARS = re.compile(r"\\text\s?\{\s?\$([^$]*)\$\s?\}")
_REMARK = re.compile(
    r"(?:\\text ?\{ ?)?\((?:approximately|approx\.?|roughly|rounded|remainder \d{1,9})\) ?\}?"
)
_ABBREVIATED = re.compile(
    r"\b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|cm|mm|km|kg|gal|pt|qt|units)\.(?![\w.])"
)
_MOD = re.compile(r"\\text\{ ?mod ?\}|(?<![\\a-zA-Z])mod(?![a-zA-Z])")
_BRACKETED_MOD = re.compile(r"\( ?\\b?mod *(?! )([^()]{1,40})\)")
_COMBINATIONS = re.compile(
    r"(?<![\w.)\]}^])(?:\{\} ?)?(?:[_^]\{?(\d{1,4})\}? ?|(\d{1,4}))C_?\{?(\d{1,4})\}?(?![\w{])"
    r"|(?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])"
)
_BRACKETED_PROVISO = re.compile(r" ?,? ?\( ?([a-z] ?\\in ?\\mathbb\{[NZ]\}) ?\)\Z")
_FRACTION_OF_UNITS = re.compile(
    r"\\frac ?\{ ?\\text ?\{ ?([a-z]{1,20}) ?\} ?\} ?\{ ?\\text ?\{ ?([a-z]{1,20}) ?\} ?\}"
)
_FORMULA_AS_TEXT = re.compile(r"\\text ?(?=\{ ?\\(?:frac|sqrt|pi)(?![a-z]))")
_LAST_STOP = re.compile(r"(?<=[a-z]{3})\. ?\}\Z")
_EMPTY_TEXT = re.compile(r"\\text\{\s*(?:\.\s*)?\}")


def normal(text: str) -> str:
    r"""The text in its canonical spelling.

    Thin spaces, sizes, styles and dollar pairs are gone; synonyms have one name; digits grouped
    by spaces or `{,}` are joined (a group comma stays, since `1,200` may also be a list); a `$`
    that is left is money, spelt `\usd`.
    """
    text = (text if text.isascii() else in_ascii(text)).strip()
    if text.isdigit() and text.isascii():
        return text
    boxed = _BOXED.match(text)
    if boxed:
        text = boxed[1].strip()
    if "\\" in text:
        if r"\begin" not in text:
            text = _DOUBLED.sub(r"\\", text)
        text = _TEXT_DOLLARS.sub(r"\1", text)
        text = _GROUPING_COMMA.sub("", text)
        text = _DELIMITERS.sub("", text)
        text = _SIZES.sub("", text)
        text = _COLOURS.sub("", text)
        text = _FONT_SIZES.sub("", text)
        text = _DECORATIONS.sub("", text)
        text = _STYLES.sub(r"\\text", text)
        text = _WRAPPERS.sub("", text)
        text = _COMMAND.sub(_alias, text)
        text = text.replace(r"\%", "%").replace(r"\$", r"\usd ").replace(r"\#", "#")
        text = text.replace(r"\mathbb R", r"\mathbb{R}")
        text = _DIGITS_AS_TEXT.sub(r"\1", text)
        text = _FRACTION_OF_UNITS.sub(r"\\text{ \1/\2}", text)
        text = _FORMULA_AS_TEXT.sub("", text)
        text = _INFIX.sub(_prefixed, text)
        text = _EMPTY_TEXT.sub(" ", text)
        text = _LAST_STOP.sub("}", text)
    if "$" in text:
        text = _PAIRED_DOLLARS.sub(r"\1", text).replace("$", r"\usd ")
    text = _SPACES.sub(" ", text).strip(' "').replace("Rs.", "Rs ")
    text = " ".join(_ABBREVIATED.sub(r"\1 ", text).split())
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2]
    text = _TIMES_TEN.sub("*", text.replace("**", "^"))
    text = _GROUPED.sub(lambda number: number[1] + _NOT_DIGITS.sub("", number[2]), text)
    text = text.replace("{,}", "." if text.count("{,}") == 1 else ",")
    if "\\frac" in text or "\\binom" in text:
        text = _SHORT_FRACTION.sub(r"\\\1{\2}", text)
        text = _SHORT_DENOMINATOR.sub(r"\1{\2}", text)
    text = _ORDINAL.sub("", text)
    if "mod" in text:
        text = _BRACKETED_MOD.sub(r"\\pmod{\1}", _MOD.sub(r"\\mod ", text))
    if "C" in text:
        text = _COMBINATIONS.sub(_binomial, text)
    if "(" in text:
        text = _REMARK.sub("", text)
        text = _BRACKETED_PROVISO.sub(r", \1", text.rstrip(" ."))
    if "base" in text:
        text = _BASE.sub(r"\1_{\2}", text)
    text = _BRACKETED_BASE.sub(r"\1_", text)
    return text.strip() if text.endswith("...") else text.rstrip(" .,;:\\").lstrip()


def _prefixed(infix: re.Match[str]) -> str:
    name = {"choose": "binom", "over": "frac"}[infix[2]]
    return rf"\{name}{{{infix[1]}}}{{{infix[3]}}}"


def _binomial(found: re.Match[str]) -> str:
    """The binomial that `{}_5C_2`, `5C2` or `C_5^2` is."""
    n, k = (part for part in found.groups() if part)
    return rf"\binom{{{n}}}{{{k}}}"


def _alias(command: re.Match[str]) -> str:
    name = command[1]
    alias = _ALIASES.get(name)
    if alias is None:
        return command[0]
    return alias if alias in _BARE else "\\" + alias
