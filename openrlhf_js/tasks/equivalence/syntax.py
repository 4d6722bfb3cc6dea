r"""Read an answer's canonical text into a tree: lists, sets, relations, matrices, and units.

A hand-written recursive descent over a fixed grammar: it builds tuples and calls nothing, so a text
can do no more than be refused. Depth and length are capped.
"""

from __future__ import annotations

from fractions import Fraction

from openrlhf_js.tasks.equivalence.atoms import OPENING
from openrlhf_js.tasks.equivalence.commands import Commands
from openrlhf_js.tasks.equivalence.tokens import NotRead, tokens
from openrlhf_js.tasks.equivalence.tree import Tree, number, rectangular
from openrlhf_js.tasks.equivalence.units import unit as measured_in

_RELATIONS = {"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!="}
_RELATIONS |= {"leq": "<=", "geq": ">=", "neq": "!=", "in": "in", "rightarrow": "="}
_RELATIONS |= {"equiv": "=", "approx": "~", "sim": "~"}
_REALS = Tree("field", ("R",))
_SET_SIGNS = {"cup": "union", "setminus": "minus", "cap": "meet"}
_MANY = {"ten": 10, "dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6}
_MANY |= {"billion": 10**9, "trillion": 10**12, "score": 20, "gross": 144}
_PARTS = (
    "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth",
)  # fmt: skip
_SHARES = {f"{part}s": Fraction(1, size) for size, part in enumerate(_PARTS, 3)}
_SHARES |= {f"{word}ths": Fraction(1, size) for word, size in _MANY.items()}
_SHARES |= {"half": Fraction(1, 2), "halves": Fraction(1, 2), "quarters": Fraction(1, 4)}
_MANY |= {f"{word}s": size for word, size in _MANY.items()}


def read(text: str, grouped: bool = True) -> Tree:
    """The tree of a canonical text (`text.normal`).

    Args:
        text: the text.
        grouped: whether `1,234` is one number rather than two.

    Raises:
        NotRead: if the grammar has no place for it.
    """
    parser = _Parser(tokens(text, grouped))
    tree = parser.listed()
    parser.expect("end")
    return tree


def _size(word: str, count: Tree) -> Fraction | int | None:
    """How much each of `3 million` or `2 thirds` is; `12 third graders` are no fraction."""
    one = _SHARES.get(f"{word}s") if count == number(1) else None
    return _MANY.get(word) or _SHARES.get(word) or one


class _Parser(Commands):
    def listed(self) -> Tree:
        items = self.items()
        return items[0] if len(items) == 1 else Tree("list", tuple(items))

    def items(self) -> list[Tree]:
        items = [self.relation()]
        while self.separator():
            items.append(self.relation())
        return items

    def separator(self) -> bool:
        start = self.at
        while self.next.kind == "separator" or self.sees(",", ";", "\\\\", "vee"):
            self.take()
        return self.at > start

    def relation(self) -> Tree:
        if self.sees("=", "approx"):  # `= 5`
            self.take()
        sides, operators = [self.side()], []
        while self.next.text in _RELATIONS and self.next.kind in ("sign", "command"):
            operators.append(_RELATIONS[self.take().text])
            sides.append(self.side())
        return Tree("rel", (tuple(operators), *sides)) if operators else sides[0]

    def side(self) -> Tree:
        tree = self.union()
        if not self.takes("mod", "pmod"):
            return tree
        modulus = self.braced()
        if modulus.kind not in ("num", "sym"):
            raise NotRead("a modulus that is no number or name")
        return Tree("residue", (tree, modulus))

    def union(self) -> Tree:
        tree = self.ratio()
        while self.next.kind == "command" and self.next.text in _SET_SIGNS:
            tree = Tree(_SET_SIGNS[self.take().text], (tree, self.ratio()))
            self.link()
        return tree

    def ratio(self) -> Tree:
        parts = [self.measure()]
        while not self.in_set and self.sees(":"):
            self.take()
            parts.append(self.measure())
        return parts[0] if len(parts) == 1 else Tree("ratio", tuple(parts))

    def measure(self) -> Tree:
        """A sum with units behind it (`5 feet 6 inches`) or money before it; or words alone."""
        if self.next.kind == "word":
            return Tree("text", (" ".join(self.words()),))
        parts = []
        while True:
            negative = (
                self.sees("-") and self.tokens[self.at + 1].kind == "money" and bool(self.take())
            )
            money = self.take().text if self.next.kind == "money" else ""
            value = self.sum()
            value = Tree("neg", (value,)) if negative else value
            unit = self.unit()
            while size := _size(unit.partition(" ")[0].lower(), value):
                value, unit = Tree("mul", (value, number(size))), unit.partition(" ")[2]
                self.link()
            if money and unit not in ("", "usd", "dollars"):
                unit = f"{money} {unit}"
            parts.append((value, unit or money))
            if unit and self.smaller_part(unit):
                self.take()
            if not (unit and self.next.kind == "number"):
                break
        if parts == [(parts[0][0], "")]:
            return parts[0][0]
        return Tree("measure", tuple(parts))

    def smaller_part(self, unit: str) -> bool:
        """Whether a part in a smaller unit comes after an `and`: `2 hours and 30 minutes`."""
        ahead = self.tokens[self.at : self.at + 3]
        if [token.kind for token in ahead] != ["separator", "number", "word"]:
            return False
        whole, part = measured_in(unit), measured_in(ahead[2].text)
        return whole.dimensions == part.dimensions and whole.factor > part.factor

    def words(self) -> list[str]:
        words = []
        while self.next.kind in ("word", "name", "number") or self.sees("'"):
            words.append(self.take().text)
        return words

    def unit(self) -> str:
        pieces: list[str] = []
        while self.next.kind in ("word", "money") or (
            (pieces or self.sees("/")) and self.unit_sign()
        ):
            pieces.append(self.take().text)
            if pieces[-1] == "^":
                braced = self.takes("{")
                minus = "-" if self.takes("-") else ""
                pieces.append(minus + self.take().text)
                if braced:
                    self.expect("}")
        return " ".join(pieces)

    def unit_sign(self) -> bool:
        after = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.sees("/", "*"):
            return after.kind in ("word", "name")
        return self.sees("^") or (
            self.next.kind == "name" and self.tokens[self.at - 1].text in "/*"
        )

    def group(self, opening: str) -> Tree:
        braces = opening == "\\{"
        in_set, self.in_set = self.in_set, braces
        if opening == "\\{" and self.takes("\\}"):
            tree = Tree("empty", ())
        else:
            items = self.items()
            if braces and self.takes("mid", "|", ":"):  # set builder: what holds of x is the set
                provisos = [item for item in items if item.kind == "rel"]
                items = [*self.items(), *(item for item in provisos if item.args[2] != _REALS)]
                self.expect("\\}")
                tree = items[0] if len(items) == 1 else Tree("list", tuple(items))
            else:
                tree = self.closed(opening, items)
        self.in_set = in_set
        return tree

    def closed(self, opening: str, items: list[Tree]) -> Tree:
        closing = self.take().text
        if opening in ("lfloor", "lceil"):
            if closing != OPENING[opening] or len(items) > 1:
                raise NotRead(f"expected {OPENING[opening]}")
            return Tree("call", (opening[1:], items[0]))
        if opening in "([" and len(items) == 1 and closing == OPENING[opening]:
            bare = opening == "(" or items[0].kind == "matrix"
            return items[0] if bare else Tree("group", ("[", "]", items[0]))
        if (
            opening == "["
            and closing == "]"
            and all(item.kind == "group" and item.args[:2] == ("[", "]") for item in items)
        ):
            return rectangular([item.args[2:] for item in items])
        if len(items) == 2 and opening in ("[", "]") and closing in ("[", "]"):  # `]0, 1]`
            opening = "(" if opening == "]" else opening
            closing = ")" if closing == "[" else closing
        half_open = opening in "([" and closing in (")", "]") and len(items) == 2
        if closing != OPENING[opening] and not half_open:
            raise NotRead(f"{opening} closed by {closing or 'nothing'}")
        pair = ("(", ")") if opening == "langle" else (opening, closing)
        return Tree("group", (*pair, *items))
