"""Read sums, products, powers and mixed numbers: the lower half of an answer's grammar."""

from __future__ import annotations

from openrlhf_js.tasks.equivalence.atoms import CONSTANTS, Atoms
from openrlhf_js.tasks.equivalence.tokens import FUNCTIONS
from openrlhf_js.tasks.equivalence.tree import Tree, added, multiplied

_FACTORS = FUNCTIONS | CONSTANTS
_FACTORS |= {"frac", "sqrt", "binom", "sum", "prod", "lfloor", "lceil", "bar", "begin"}


class Terms(Atoms):
    """Reads expressions; what brackets and commands hold is read by the classes that extend it."""

    def sum(self) -> Tree:
        tree = self.signed()
        while self.sees("+", "-", "pm", "mp"):
            sign = self.take().text
            right = self.product()
            tree = added(tree, sign, right)
            self.link()
        return tree

    def signed(self) -> Tree:
        if self.sees("+", "-", "pm", "mp"):
            sign = self.take().text
            return added(None, sign, self.signed_once())
        return self.product()

    def signed_once(self) -> Tree:
        if self.takes("-"):
            return Tree("neg", (self.product(),))
        return self.product()

    def product(self) -> Tree:
        tree = self.factor()
        plain_ratio = False  # a/b of two numbers: what follows multiplies the whole
        while True:
            if self.takes("*"):
                tree = multiplied(tree, self.signed_factor())
            elif self.sees("/") and self.tokens[self.at + 1].kind == "word":
                return tree  # a price per hour
            elif self.takes("/"):
                right = self.signed_factor()
                plain_ratio = tree.kind == "num" and right.kind == "num"
                while not plain_ratio and self.starts_factor():
                    right = Tree("mul", (right, self.factor()))
                    self.link()
                tree = Tree("div", (tree, right))
            elif self.mixed(tree):
                tree = self.with_fraction(tree)
            elif self.starts_factor():
                tree = multiplied(tree, self.factor())
            elif self.takes("bmod"):
                tree = Tree("call", ("mod", tree, self.factor()))
            else:
                return tree
            self.link()

    def with_fraction(self, tree: Tree) -> Tree:
        """The mixed number that goes on with `\\frac{1}{2}` or `1/2`, and its percent sign."""
        part = self.primary()
        part = Tree("div", (part, self.primary())) if self.takes("/") else part
        return self.postfixed(Tree("add", (tree, part)))

    def mixed(self, tree: Tree) -> bool:
        """Whether a proper fraction follows a whole number: `3\\frac{1}{2}`, `3 1/2`."""
        whole = tree.kind == "num" and tree.args[0].denominator == 1
        if not whole or self.tokens[self.at - 1].kind != "number":
            return False
        ahead = self.tokens[self.at : self.at + 7]
        kinds = [token.kind for token in ahead]
        if kinds[:3] == ["number", "sign", "number"] and ahead[1].text == "/":
            return 0 < ahead[0].value < ahead[2].value
        shape = [token.text if token.kind != "number" else "0" for token in ahead]
        if shape == ["frac", "{", "0", "}", "{", "0", "}"]:
            return 0 < ahead[2].value < ahead[5].value
        return False

    def signed_factor(self) -> Tree:
        return Tree("neg", (self.factor(),)) if self.takes("-") else self.factor()

    def starts_factor(self) -> bool:
        token = self.next
        if token.kind == "name":
            return True
        if token.kind == "command":
            return token.text in _FACTORS
        if token.kind == "number":  # beside another it is no product, save after a bracket
            before = self.tokens[self.at - 1].text
            return before == "!" or (before in (")", "}", "]") and not token.spaced)
        return token.text in ("(", "{") or (
            token.text == "|" and self.bars % 2 == 0 and self.bars > 0
        )

    def factor(self) -> Tree:
        return self.postfixed(self.primary())

    def postfixed(self, tree: Tree) -> Tree:
        while True:
            if self.sees("^"):
                self.take()
                if self.takes("circ") or self.degree():
                    tree = Tree("deg", (tree,))
                else:
                    tree = Tree("pow", (tree, self.exponent()))
            elif self.takes("!"):
                double = self.takes("!")
                tree = Tree("call", ("fact2", tree)) if double else Tree("fact", (tree,))
            elif self.takes("%"):
                tree = Tree("pct", (tree,))
            else:
                return tree
            self.link()

    def degree(self) -> bool:
        found = [token.text for token in self.tokens[self.at : self.at + 3]] == ["{", "circ", "}"]
        self.at += 3 * found
        return found
