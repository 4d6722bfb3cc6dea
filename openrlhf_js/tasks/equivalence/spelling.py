r"""Spell an answer in one way: LaTeX, unicode and plain text become the same short ASCII text.

Only spelling changes here (`\dfrac`, `½`, `1\,000`, `$5$`, `\text{ and }`); `syntax` reads what the
text means. Every pattern takes time in proportion to the text, whatever it holds.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

_SIGNS = r"""
− – — ‐ ‑ ‒ - × · ⋅ ∙ ∗ ✕ * ÷ ⁄ ∕ / √ \sqrt ∛ \sqrt[3] ∜ \sqrt[4] ∞ \infty ° º ˚ ^{\circ} ≤ ⩽ \leq
≥ ⩾ \geq ≠ \neq ≈ \approx ≡ \equiv ± \pm ∓ \mp ∪ \cup ∩ \cap ∖ \setminus ∈ \in ∅ \emptyset
⟨ \langle ⟩ \rangle ⌊ \lfloor ⌋ \rfloor ⌈ \lceil ⌉ \rceil ℝ \mathbb{R} ℤ \mathbb{Z} ℕ \mathbb{N}
ℚ \mathbb{Q} ℂ \mathbb{C} € \euro £ \gbp ¥ \yen ¢ \cents ’ ‘ ` ´ ′ ' “ ” " ， 、 , ； ; 。 . ∶ :
∠ △ \, → \rightarrow ∨ \vee ∧ \wedge ¬ \neg ℏ \hbar α \alpha β \beta γ \gamma δ \delta ε \epsilon
θ \theta λ \lambda μ \mu π \pi ρ \rho σ \sigma τ \tau φ \phi ω \omega Δ \Delta Σ \Sigma Ω \Omega
"""
_TRANSLATED: dict[int, str] = {}
for _sign in reversed(_SIGNS.split()):  # each run of signs stands before its spelling
    if _sign.isascii():
        _spelling = f" {_sign} " if _sign[0] == "\\" else _sign
    else:
        _TRANSLATED[ord(_sign)] = _spelling

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
# Rules in their order: what a text must hold for the rule to be tried, a pattern, and what stands
# in its place, or the name of a function for that. The first table is for LaTeX alone.
_LATEX = r"""
,      (?<=\d)(?:\{,\}|,) ?\\! ?(?=\d{3}(?!\d))                         =>
\      (?<!\\)\\[()\[\]!]                                               =>
\      \\(?:left|right|[bB]igg?[lrm]?|(?:measured)?angle|triangle)(?![a-zA-Z])\s?\.?  =>
color  \\(?:text)?color\s?(?:\[[a-zA-Z]{1,20}\])?\s?\{[^{}]{1,40}\}     =>
\      \\(?:tiny|small|normalsize|large|Large|LARGE|[hH]uge|bf|it|rm)(?![a-zA-Z])  =>
{      \\(?:boxed|fbox|underline|cancel|uline|emph|pmb|boldsymbol|bm)\s?(?=\{)  =>
{      \\(?:(?:math|text)(?:rm|bf|it|sf|cal|normal)?|[mh]box|operatorname)\*?\s?(?=\{)  =>  \\text
{      \\(?:vec|hat|overrightarrow|mathbb(?=\{[^RZNQC]))\s?(?=\{ ?[^\d\s])  =>
\      \{([^{}\\]*)\\(over|choose)(?![a-z]) ?([^{}\\]*)\}                 =>  \\\2{\1}{\3}
\      \\([a-zA-Z]+)                                                    =>  alias
\      \\([%#|])                                                        =>  \1
\      \\\$                                                             =>  \\usdSPACE
circ   \^ ?\{ ?\\circ ?\}                                               =>  ^\\circ
prime  \^ ?(?:\\prime(?![a-z])|\{ ?\\prime ?\})                         =>  '
end    (?:\\\\\s*)*\\end\{cases\}                                          =>  ]
end    (?:\\\\\s*)*\\end\{(?:[pbB]?matrix|smallmatrix|array)\}               =>  ])
begin  (?:\\\\\s*)+                                                        =>  ],[
begin  ,?\s*&                                                            =>  ,
begin  \\begin\{cases\}                                                  =>  [
begin  \\begin\{(?:[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?      =>  ([
frac   \\frac\{ ?\\text\{(PHRASE)\} ?\} ?\{ ?\\text\{(PHRASE)\} ?(POWER) ?\}  =>  \\text{ \1/\2}\3
frac   (?<=[\d}]) ?\\?[ ,]?\\frac\{(LENGTH)\} ?\{(h|hr|s|min|hour|l|L|g)\}  =>  \\text{ \1/\2}
forall  \\forall(?![a-z])                                               =>  for allSPACE
text   (?<=[\d)}])(?<![A-Z]\})[ ~]?\\text\{[ ~]?([ABCFJKLNVWghlms])(?![A-Za-z])  =>  \\text{ \\\1
text   \\text\{([^{}]*)\}                                               =>  SPACE\1SPACE
text   \\text(?=\{)                                                      =>
_      \ +(?=_)                                                         =>
"""
_PLAIN = r"""
<      </?answer>                                                       =>
$      (?<=\$)(or|and)(?=\$)                                              =>  SPACE\1SPACE
$$     (?<!\\)\$\$                                                       =>  $
$      (?<!\\)\$([^$\\]*(?:\\[^$][^$\\]*)*)\$(?!\d)                     =>  \1
$      \$                                                               =>  \\usdSPACE
\      (?<!\\)\\[ ,;:>]                                                 =>  SPACE
\      \\(?:q?quad|(?:thin|en)space|hfill|(?:display|text)style|limits)(?![a-zA-Z])  =>  SPACE
@      ~|\s                                                             =>  SPACE
.      \b(sq|cu|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|[ckm]m|kg|gal|pt|qt|units)\.(?![\w.])  =>  \1
@      \ {2,}                                                           =>  SPACE
**     \A ?\*\*(.*)\*\* ?\Z                                             =>  \1
**     \*\*                                                             =>  ^
^      (?<=\d) ?[xX] ?(?=10 ?\^)                                        =>  *
@      (?<![\d.,])(\d{1,3})((?:(?:\{,\}|[ '])\d{3})+)(?![\d,])          =>  joined
mph    \bmph\b                                                           =>  miles per hour
for    [ ,]+for (?:all|any|every) (?:(?:real|positive|values|numbers?|integers?|of) )*VARIABLE\Z  =>
\      \\(frac|binom)\s?(\d)\s?(?=[\d{\\a-zA-Z])                        =>  \\\1{\2}
\      (\\(?:frac|binom)\{\d+\})\s?(\d)(?!\d)                           =>  \1{\2}
@      (\d) ?\^? ?\{? ?(st|nd|rd|th)\b(?: ?\})?                          =>  \1\2
@      (?<=(?<!1)1)st\b|(?<=(?<!1)2)nd\b|(?<=(?<!1)3)rd\b|(?<=\d)th\b   =>
.      (\.\d{0,6}?)(?:(\d)\2\2+|(\d{2,6}?)\3+) ?(?:\.\.\.|\\ldots(?![a-z]))  =>  \1\\bar{\2\3}
circ   (\d{1,4}) ?\^\\circ ?(\d{1,2})'(?: ?(\d{1,2})(?:''|"))?                        =>  minutes
^      (?<=\^)([2-9])(?=[1-9]\d*\^)                                      =>  {\1}
circ   \^\\circ ?C(?![A-Za-z])                                            =>  SPACEcelsius
(      (?<![\w\\])[A-Z] ?(?=\([^()]*,[^()]*\)(?! ?=))                    =>
^      (?<![a-z])(sin|cos|tan) ?\^ ?(?:\{ ?-1 ?\}|-1(?![\d.]))          =>  arc\1
m/s    (?<=[\d}] )m(?=/s(?![a-z]))                                      =>  \\m
sqrt   \\sqrt ?\[([^\[\]]+)\]                                            =>  \\root{\1}
C      (?<![\w.)\]}^])(?:\{\} ?)?_?\{?(\d{1,4})\}? ?C_?\{?(\d{1,4})\}?(?![\w{])  =>  \\binom{\1}{\2}
(      \((?:approx(?:\.|imately)?|roughly|rounded|remainder \d{1,9})\)  =>
C      (?<![\w}])C_\{?(\d{1,4})\}? ?\^ ?\{?(\d{1,4})\}?(?![\w{])        =>  \\binom{\1}{\2}
mod    (?:(\( ?)\\?b?|\\p?)mod ?\{? ?(\d+) ?\}?(?(1) ?\))                   =>  \\pmod{\2}
_      (?<=[0-9A-F])_ ?\{ ?\(?(?:base ?)?([a-z\d]{1,8}) ?\)? ?\}           =>  _{\1}
frac   (?<![\d.,^_/}])(\d{1,9}) ?(\\frac\{(\d{1,9})\}\{(\d{1,9})\})           =>  mixed
/      (?<![\d.,^_/}])(\d{1,9}) ((\d{1,9})/(\d{1,9}))(?![\d.]|,\d)              =>  mixed
base   (?<![0-9A-F])([0-9A-F]+) ?\(? ?base ?-? ?(\w+)\b ?\)?            =>  \1_{\2}
_      \((?=[A-F]*\d)([0-9A-F]+)\)_(?=[\d{])                            =>  \1_
@      (?<![A-Za-z])\\?(CURRENCY)\b\.? ?AMOUNT(?= ?(?:AFTER))     =>  \2 \1
\      \\(usd|euro|gbp|yen|cents)(?![a-z])                              =>  \1
\in    \A([^<>]*(?<![a-z\\])([kmn])(?![a-z])[^<>]*)[,(] ?\2 ?\\in ?\\mathbb\{[NZ]\}[ .)]*\Z  =>  \1
|      \|([^|]+)\|                                                      =>  \\abs(\1)
:      (\\\{ ?\(?[a-z][^{}:]*(?:\{[A-Z]\})?[^{}:]*):                        =>  \1\\mid SPACE
R      \\mathbb\{R\}(?!\^)                                               =>  (-\\infty,\\infty)
real   \A ?(?:[aA]ll )?reals?(?: numbers)?[ .]*\Z                        =>  (-\\infty,\\infty)
@      \A ?(?i:NOTHING)[ .]*\Z                             =>  \\emptyset
\pi    \A([^,]*(?<![a-zA-Z\\]))[km] ?(\\pi(?![^,]*[a-z]))                  =>  \1n\2
"""
_PARTS = {
    "PHRASE": "[a-z ]{1,20}",
    "POWER": r"(?:\^ ?\{? ?\d ?\}?)?",
    "LENGTH": "km|cm|mm|mi|ft|kg|mg|mL|meters|miles|feet|dollars",
    "VARIABLE": r"[a-zA-Z](?![a-zA-Z])(?: ?(?:\\?in\b|[<>,!]|and )[^={}]{0,40}(?:\{[A-Z]\})?)?",
    "AMOUNT": r"(?=[-\d.{\\(]|[a-z]\b)((?:[^,;=]|,(?=\d{3}))*?)",
    "AFTER": r",(?!\d{3})|[;=]|\b(?:and|or|per)\b|/ ?[a-z]|\Z",
    "NOTHING": r"(?:there (?:is|are|exists?) |has )?no (?:(?:real|such|possible|valid|integer"
    r"|positive) )*(?:solutions?|roots?|values?|numbers?|integers?)(?: exists?)?|none|empty set",
    "CURRENCY": "usd|euro|gbp|yen|USD|EUR|GBP|CAD|AUD|JPY|CNY|INR|CHF|Rs",
}
_NAMED: dict[str, str | Callable[[re.Match[str]], str]] = {
    "alias": lambda m: _ALIASES.get(m[1], m[0]),
    "minutes": lambda m: f"{{{m[1]}+{m[2]}/60+{m[3] or 0}/3600}}^\\circ",
    "mixed": lambda m: f"{{{m[1]}+{m[2]}}}" if 0 < int(m[3]) < int(m[4]) else m[0],
    "joined": lambda number: number[1] + re.sub(r"\D", "", number[2]),
}
_compatible = functools.partial(unicodedata.normalize, "NFKC")


class _Rule(NamedTuple):
    """Where the guard is in a text, the pattern's matches are spelt otherwise."""

    guard: str
    pattern: re.Pattern[str]
    spelling: str | Callable[[re.Match[str]], str]


def _rules(table: str) -> list[_Rule]:
    """The rules of a table, in their order."""
    rules = []
    for line in table.strip().splitlines():
        condition, _, replacement = line.partition("  =>")
        guard, pattern = condition.strip().split(None, 1)
        for name, expression in _PARTS.items():
            pattern = pattern.replace(name, expression)
        spelling = replacement.strip().replace("SPACE", " ")
        rules.append(_Rule(guard.strip("@"), re.compile(pattern), _NAMED.get(spelling, spelling)))
    return rules


_PLAIN_RULES = _rules(_PLAIN)
_ALL_RULES = _rules(_LATEX) + _PLAIN_RULES


def normal(text: str) -> str:
    r"""The text in its canonical spelling; a `$` that is no delimiter is money, spelt `\usd`."""
    text = (text if text.isascii() else _in_ascii(text)).strip()
    if text.isascii() and text.isdigit():
        return text
    if "\\\\" in text and r"\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    for guard, pattern, spelling in _ALL_RULES if "\\" in text else _PLAIN_RULES:
        if guard in text:
            text = pattern.sub(spelling, text)
    is_decimal_comma = text.count("{,}") == 1
    text = text.strip(' "').replace("{,}", "." if is_decimal_comma else ",")
    return text.rstrip(" .,;:\\").lstrip()


def _in_ascii(text: str) -> str:
    """The text with LaTeX in the place of mathematical signs, and without invisible characters."""
    text = re.sub("[⁰ⁱ¹²³⁴-⁹⁺⁻⁽⁾ⁿ]+", lambda run: f"^{{{_compatible(run[0])}}}", text)
    text = re.sub("[₀-₉₊₋]+", lambda run: f"_{{{_compatible(run[0])}}}", text)
    text = re.sub("([¼-¾⅐-⅞])", r" \1 ", text)
    text = _compatible(text.translate(_TRANSLATED)).replace("⁄", "/")
    return "".join(char for char in text if unicodedata.category(char) != "Cf")
