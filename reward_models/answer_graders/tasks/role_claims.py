"""Reads who has which role from answers to Knights and Knaves: in words, lists or tables.

Names are compared in one Unicode form, so that combining and composed accents are the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

MAX_ANSWER_CHARACTERS = 10_000

# The truthful and the lying role of each pair; a role belongs to one pair.
ROLES = (
    ("knight", "knave"),
    ("sage", "fool"),
    ("saint", "sinner"),
    ("hero", "villain"),
    ("angel", "devil"),
    ("altruist", "egoist"),
    ("pioneer", "laggard"),
)
PAIRS = {role: pair for pair in ROLES for role in pair}


def plural(role: str) -> str:
    """The plural of a role."""
    return role + ("es" if role.endswith("o") else "s")


def other_role(role: str) -> str:
    """The other role of the pair."""
    truthful, lying = PAIRS[role]
    return lying if role == truthful else truthful


_SINGULAR = {word: role for role in PAIRS for word in (role, plural(role))}
_LAYOUT = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}(?:\{[lcr|]*\})?"
    r"|\\(?:text|math|boxed|q?quad|left|right|emph|hline|(?:top|mid|bottom)rule)[a-z]*"
    r"|\\c(?:line|midrule)(?:\([lr]*\))?\{[0-9-]*\}|\\\\\[[0-9.a-z]*\]"
    r"|\\(?:[^\w&]|(?=&))|[{}$*]|(?<!\w)\d+[.)](?=\s)"  # the last: numbers of list items
)
# Python's \w excludes combining marks, which remain where no composed letter exists.
_MARKS = "".join(
    chr(code) for code in range(0x300, 0x3100) if unicodedata.category(chr(code))[0] == "M"
)
_LETTERS = rf"[^\W_](?:[^\W_]|[{_MARKS}])*"
_WORD = re.compile(rf"{_LETTERS}(?:['-]{_LETTERS})*|\S")
_JOINTS = {"is", "are", "and", "but", "while", "both", "so", "thus", "hence", "therefore"}
_JOINTS |= set('",;.:=>&()[]-\u2013\u2014\u2192')
_ARTICLES = ("a", "an", "the")
_BETWEEN_NAMES = {",", "and", "&"}
_ROLE = rf"\b({'|'.join(_SINGULAR)})\b"
_HEADING = re.compile(rf"(?:\bthe\s+)?{_ROLE}\s*(?::|(?:is|are)\b\s*:?)")
# What a role means, in brackets behind it: "knight (truth-teller)".
_MEANING = re.compile(
    rf"{_ROLE}([\s*}}]*)\((?:an?\s)?(?:always\s)?"
    r"(?:(truth[- ]?tellers?|truthful|tells?\sthe\struth)|liars?|lies?|lying)\)"
)
_ENDS = " \t\r\n,;.-"  # around names under headings


# What tables are made of.
_RULE = re.compile(r"[\s|+:=-]+")  # a line between the rows of a Markdown table
_BEGIN = re.compile(r"\\begin\{(\w+\*?)\}")
_COLUMNS = re.compile(r"(?:\[\w*\])?(?:\{(?:[^{}]|\{[^{}]*\})*\}){0,2}")  # after \begin{tabular}
_ROW_END = re.compile(r"\\\\(?:\[[0-9.a-z]*\])?")
_CELL_END = re.compile(r"(?<!\\)&")
_CELL_ENDS = " \t\r\n\\_`\ufe0f"  # around the text of a cell
_NAME_END = re.compile(r"[,&]|\band\b")
_YES = {"✓", "✔", "✅", "☑", "checkmark", "yes", "true"}
_NO = {"✗", "✘", "✕", "❌", "×", "times", "no", "false", "-", "\u2013", "\u2014", "", "x"}  # noqa: RUF001

# Headings that table columns may have, without words for roles.
_NAME_HEADINGS = {"", "name", "names", "person", "people", "speaker", "inhabitant", "character"}
_NAME_HEADINGS |= {"who", "islander", "individual", "resident", "villager"}
_ROLE_HEADINGS = {"", "role", "roles", "type", "kind", "identity", "status", "person", "conclusion"}
_ROLE_HEADINGS |= {"answer", "final role"}
_OTHER_HEADINGS = {"", "#", "no", "number", "why", "reason", "reasons", "reasoning", "statement"}
_OTHER_HEADINGS |= {"says", "explanation", "justification"}

Table = Sequence[Sequence[str]]  # rows of cells
RoleOfNames = tuple[str, str]  # names with commas between them, and their role


def normal(text: str) -> str:
    """A text in the form in which names and roles are compared: lower case, one Unicode form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def claims_of(answer: str) -> dict[str, str]:
    """The role of everyone that an answer names, as `normal` text; ValueError if it is unclear.

    Roles may follow names ("Ann and Bob are fools", "Eve is not a sage"), be headings ("Sages: Eve;
    the fools are Ann and Bob"), or be in a table. Names that share a role have only commas or "and"
    between them. Outside tables, a person with two roles gets "both".
    """
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise ValueError(f"an answer of {len(answer)} characters")
    text = _MEANING.sub(_without_meaning, normal(answer))
    words = _WORD.findall(_table_in_words(text) or _without_headings(_LAYOUT.sub(" ", text)))
    claims: dict[str, str] = {}
    waiting: list[str] = []  # names, until a role follows them
    negated = False
    joints: set[str] = set()  # the words since the last name or role
    for word, following in zip(words, [*words[1:], ""], strict=True):
        # "a" is an article only before a role; otherwise it is the person A.
        if word in _JOINTS or (word in _ARTICLES and following in _SINGULAR):
            joints.add(word)
            continue
        if word == "not" and len(waiting) == 1 and not negated:
            negated = True
        elif word in _SINGULAR and waiting and not (negated and "both" in joints):
            role = other_role(_SINGULAR[word]) if negated else _SINGULAR[word]
            for name in waiting:
                claims[name] = role if claims.get(name, role) == role else "both"
            waiting = []
            negated = False
        elif word in _SINGULAR or word == "not" or negated:
            raise ValueError(f"cannot read {word[:40]!r} as a name or role here")
        else:
            if waiting and (not joints or joints - _BETWEEN_NAMES):
                raise ValueError(f"no role follows {waiting[-1][:40]!r}")
            waiting.append(word)
        joints = set()
    if waiting:
        raise ValueError(f"no role follows {waiting[-1][:40]!r}")
    return claims


def is_name(text: str) -> bool:
    """Whether a `normal` text can be read as a name: one word without another meaning."""
    other_words = _SINGULAR.keys() | _JOINTS | {"not"}
    return bool(_WORD.fullmatch(text)) and text not in other_words


def _without_meaning(match: re.Match[str]) -> str:
    """A role without its meaning behind it; unchanged if it is the other role's."""
    role, between, says_truth = match.groups()
    is_truthful = PAIRS[_SINGULAR[role]][0] == _SINGULAR[role]
    return f"{role}{between}" if is_truthful == bool(says_truth) else match[0]


def _without_headings(answer: str) -> str:
    """Moves the headings of an answer behind their names: "sages: eve" becomes "eve sages"."""
    before, *sections = _HEADING.split(answer)
    if not sections or before.strip(_ENDS):
        return answer
    headings = sections[::2]
    names_below = [names.strip(_ENDS) for names in sections[1::2]]
    words_below = set(_WORD.findall("; ".join(names_below)))
    if words_below & {*_SINGULAR, "not"}:
        raise ValueError("it holds a role or a negation below a heading")
    pairs = zip(names_below, headings, strict=True)
    return "; ".join(f"{names} {heading}" for names, heading in pairs)


def _table_in_words(text: str) -> str:
    """A table in words, such as "eve is sage; ann is fool", or "" if the text is no table.

    ValueError if it gives a person two roles.
    """
    rows = _markdown_rows(text) or _latex_rows(text)
    table = [[_LAYOUT.sub(" ", cell).strip(_CELL_ENDS) for cell in row] for row in rows]
    table = [row for row in table if any(row)]
    if not table or len({len(row) for row in table}) > 1 or len(table[0]) < 2:
        return ""
    columns = list(zip(*table, strict=True))
    for read in (_by_marks, _by_headings, _by_role_column):
        pairs = read(table) or read(columns)
        if pairs:
            _check_roles_agree(pairs)
            return "; ".join(f"{names} is {role}" for names, role in pairs)
    return ""


def _markdown_rows(text: str) -> list[list[str]]:
    """The rows of a Markdown table, with or without outer pipes; [] if it is no table."""
    lines = [line.strip() for line in text.splitlines() if not _RULE.fullmatch(line)]
    lines = [line for line in lines if line]
    if "\\begin{" in text or not all("|" in line for line in lines):
        return []
    return [line.removeprefix("|").removesuffix("|").split("|") for line in lines]


def _latex_rows(text: str) -> list[list[str]]:
    """The rows of a LaTeX environment that is the whole text; [] if it is not one."""
    begin = _BEGIN.search(text)
    end = text.rfind(f"\\end{{{begin[1]}}}") if begin else -1
    if not begin or end < begin.end():
        return []
    around = text[: begin.start()] + text[end:]
    if _LAYOUT.sub(" ", around).strip(_ENDS):
        return []
    has_columns = begin[1].startswith(("array", "tabular", "longtable"))
    columns = _COLUMNS.match(text, begin.end()) if has_columns else None
    cells = text[columns.end() if columns else begin.end() : end]
    return [_CELL_END.split(row) for row in _ROW_END.split(cells)]


def _by_role_column(table: Table) -> list[RoleOfNames]:
    """The names and roles of a table with one column of each; [] if in doubt.

    A first row without a role is a heading.
    """
    has_heading = not any(map(_role_of, table[0]))
    columns = list(zip(*table[has_heading:], strict=True))
    headings = [_heading(cell) if has_heading else "" for cell in table[0]]
    places = [place for place, column in enumerate(columns) if all(map(_role_of, column))]
    if len(places) != 1 or headings[places[0]] not in _ROLE_HEADINGS:
        return []
    names = _names_beside(places, headings, columns)
    roles = map(_role_of, columns[places[0]])
    return list(zip(names, roles, strict=True)) if names else []


def _names_beside(places: Iterable[int], headings: Sequence[str], columns: Table) -> list[str]:
    """The names in the only column of names; the columns at `places` hold roles. [] if in doubt.

    Of two columns of names, one must have such a heading. Others may only number rows or give
    reasons.
    """
    others = [place for place in range(len(columns)) if place not in places]
    names = [place for place in others if all(map(_names_of, columns[place]))]
    if len(names) > 1:
        names = [place for place in names if headings[place] and headings[place] in _NAME_HEADINGS]
    if len(names) != 1 or headings[names[0]] not in _NAME_HEADINGS:
        return []
    for place in set(others) - set(names):
        cells = set(columns[place])
        are_marks = not headings[place] and cells != {""} and cells <= _YES | _NO
        if headings[place] not in _OTHER_HEADINGS or are_marks:
            return []
    return [_names_of(cell) for cell in columns[names[0]]]


def _heading(cell: str) -> str:
    """The heading of a column, without roles: "role" for "The role (knight or knave)"."""
    left_out = {*_SINGULAR, *_ARTICLES, "or", "/", "?", "."}
    return " ".join(word for word in _words_of(cell) if word not in left_out)


def _by_headings(table: Table) -> list[RoleOfNames]:
    """The names and roles of a table whose headings are all roles; [] for other tables."""
    headings = [_role_of(cell) for cell in table[0]]
    cells = [cell for row in table[1:] for cell in row]
    are_names = all(_names_of(cell) or cell in _NO for cell in cells)
    if not all(headings) or len(set(headings)) < len(headings) or not are_names:
        return []
    return [
        (_names_of(cell), role)
        for row in table[1:]
        for role, cell in zip(headings, row, strict=True)
        if _names_of(cell)
    ]


def _by_marks(table: Table) -> list[RoleOfNames]:
    """The names and roles of a table with check marks below two roles; [] for other tables.

    Each row has a name and one check mark. An x is a check mark only if all other cells are empty;
    beside check marks it means no.
    """
    heading, *body = table
    places = {place: role for place, role in enumerate(map(_role_of, heading)) if role}
    marks = {row[place] for row in body for place in places}
    checks = marks & _YES or {"x"}
    is_readable = marks <= checks | _NO if checks != {"x"} else marks == {"x", ""}
    names = _names_beside(places, list(map(_heading, heading)), list(zip(*body, strict=True)))
    if len(set(places.values())) != 2 or not is_readable or not names:
        return []
    pairs = []
    for row_names, row in zip(names, body, strict=True):
        roles = [role for place, role in places.items() if row[place] in checks]
        if len(roles) != 1:
            return []
        pairs.append((row_names, roles[0]))
    return pairs


def _check_roles_agree(pairs: Iterable[RoleOfNames]) -> None:
    """Raises ValueError if somebody has two roles."""
    roles: dict[str, str] = {}
    for names, role in pairs:
        for name in names.split(", "):
            if roles.setdefault(name, role) != role:
                raise ValueError(f"two roles of {name[:40]!r}")


def _words_of(cell: str) -> list[str]:
    return [word for word in _WORD.findall(cell) if word not in _JOINTS]


def _role_of(cell: str) -> str:
    """The role in a cell that holds nothing else, such as "a knight" or "not a knave", or ""."""
    words = [word for word in _words_of(cell) if word not in _ARTICLES]
    if len(words) == 1:
        return _SINGULAR.get(words[0], "")
    is_negation = len(words) == 2 and words[0] == "not" and words[1] in _SINGULAR
    return other_role(_SINGULAR[words[1]]) if is_negation else ""


def _names_of(cell: str) -> str:
    """The names in a cell that holds nothing else, joined by commas, or ""."""
    names = []
    for part in _NAME_END.split(cell):
        words = _words_of(part)
        if len(words) != 1 or not words[0][0].isalpha() or not is_name(words[0]):
            return ""
        names.append(words[0])
    return ", ".join(names)
