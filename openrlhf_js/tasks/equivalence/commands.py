"""Read what a LaTeX command takes: fractions, roots, binomials, sums over an index, matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from openrlhf_js.tasks.equivalence.terms import Terms
from openrlhf_js.tasks.equivalence.tokens import NotRead
from openrlhf_js.tasks.equivalence.tree import Tree, determinant, number, rectangular

_MATRICES = frozenset(
    ("matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "array", "smallmatrix")
)


def _letters(tree: Tree) -> str:
    """The names that the tree is a product of, or nothing."""
    if tree.kind == "sym":
        return str(tree.args[0])
    parts = [_letters(arg) for arg in tree.args] if tree.kind == "mul" else []
    return "".join(parts) if all(parts) else ""


class Commands(Terms):
    """Reads expressions with commands in them."""

    def fraction(self) -> Tree:
        return Tree("div", (self.braced(), self.braced()))

    def root(self) -> Tree:
        degree = number(2)
        if self.takes("["):
            degree = self.sum()
            self.expect("]")
        return Tree("call", ("root", self.braced(), degree))

    def series(self, name: str) -> Tree:
        """`\\sum_{k=1}^{n} term`, where the term is the product that follows."""
        self.expect("_")
        self.expect("{")
        variable = self.symbol(self.take().text)
        self.expect("=")
        first = self.sum()
        self.expect("}")
        self.expect("^")
        last = self.exponent()
        return Tree("series", (variable, first, last, self.product(), name))

    def matrix(self) -> Tree:
        self.expect("{")
        kind = "".join(self.take_until("}"))
        if kind == "cases":  # a system: its lines are a list
            tree = self.listed()
            self.expect("end")
            self.take_until("}")
            return tree
        if kind not in _MATRICES:
            raise NotRead(f"environment {kind[:20]!a}")
        if kind == "array" and self.takes("{"):
            self.take_until("}")
        rows: list[tuple[Tree, ...]] = []
        while not self.takes("end"):
            row = [self.sum()]
            while self.takes("&"):
                row.append(self.sum())
            rows.append(tuple(row))
            while self.takes("\\\\"):
                pass
        self.expect("{")
        self.take_until("}")
        tree = rectangular(rows)
        return determinant(tree.args) if kind == "vmatrix" else tree

    def barred(self) -> Tree:
        r"""A segment, `\overline{AB}`, or a name of its own: `\bar{x}`, `\overline{abc}`."""
        tree = self.braced()
        name = _letters(tree)
        if not name:
            raise NotRead("a bar over what is no name")
        return tree if tree.kind == "mul" and name.isupper() else Tree("sym", (f"\\bar {name}",))

    def field(self) -> Tree:
        self.expect("{")
        return Tree("field", ("".join(self.take_until("}")),))

    commands: ClassVar[dict[str, Callable[..., Tree]]] = {
        "frac": fraction,
        "sqrt": root,
        "binom": lambda parser: Tree("call", ("binom", parser.braced(), parser.braced())),
        "sum": lambda parser: parser.series("sum"),
        "prod": lambda parser: parser.series("prod"),
        "bar": barred,
        "ldots": lambda parser: Tree("sym", ("...",)),
        "infty": lambda parser: Tree("inf", ()),
        "emptyset": lambda parser: Tree("empty", ()),
        "begin": matrix,
        "mathbb": field,
    }
