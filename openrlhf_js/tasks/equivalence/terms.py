"""Read sums, products, powers, functions and numbers: the lower half of an answer's grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from openrlhf_js.tasks.equivalence.cursor import Cursor
from openrlhf_js.tasks.equivalence.tokens import FUNCTIONS, NotRead, Token, recurring
from openrlhf_js.tasks.equivalence.tree import Tree, added, multiplied, number

OPENING = {
    "(": ")",
    "[": "]",
    "]": "[",
    "\\{": "\\}",
    "langle": "rangle",
    "lfloor": "rfloor",
    "lceil": "rceil",
}
_CONSTANTS = frozenset((
    "pi", "theta", "alpha", "beta", "gamma", "delta", "lambda", "mu", "omega", "phi",
    "epsilon", "sigma", "rho", "tau", "psi", "xi", "eta", "zeta", "kappa", "nu", "chi",
    "Gamma", "Delta", "Theta", "Lambda", "Phi", "Psi", "Omega", "Sigma", "ell",
))  # fmt: skip
_FACTORS = FUNCTIONS | _CONSTANTS
_FACTORS |= {"frac", "sqrt", "binom", "sum", "prod", "lfloor", "lceil", "bar", "begin"}


class Terms(Cursor):
    """Reads expressions; what brackets and commands hold is read by the classes that extend it."""

    commands: ClassVar[dict[str, Callable[..., Tree]]] = {}

    def items(self) -> list[Tree]:
        """What stands between two brackets."""
        raise NotImplementedError

    def listed(self) -> Tree:
        """The same as one tree."""
        raise NotImplementedError

    def group(self, opening: str) -> Tree:
        """What a bracket opens, to its end."""
        raise NotImplementedError

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

    def exponent(self) -> Tree:
        if self.takes("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        return Tree("neg", (self.primary(),)) if self.takes("-") else self.primary()

    def primary(self) -> Tree:
        self.enter()
        tree = self.atom(self.take())
        self.leave()
        return tree

    def atom(self, token: Token) -> Tree:
        if token.kind == "number":
            return self.dotted(token)
        if token.kind == "base":
            return Tree("base", (token.value, token.text))
        if token.kind == "name":
            return self.symbol(token.text)
        if token.kind == "command" and token.text in self.commands:
            return self.commands[token.text](self)
        if token.text in ("max", "min") and self.sees("="):  # which is what was asked for
            return self.symbol(token.text)
        if token.kind == "command" and token.text in FUNCTIONS:
            return self.call(token.text)
        if token.kind == "command" and token.text in _CONSTANTS:
            return self.symbol("\\" + token.text)
        if token.text in OPENING and token.kind in ("sign", "command"):
            return self.group(token.text)
        if token.text == "...":
            return Tree("sym", ("...",))
        if token.text == "{":
            tree = self.listed()
            self.expect("}")
            return tree
        if token.text == "|":
            tree = self.sum()
            self.expect("|")
            return Tree("call", ("abs", tree))
        raise NotRead(f"unexpected {ascii(token.text) if token.text else 'end'}")

    def dotted(self, token: Token) -> Tree:
        """A number, which is a recurring decimal if dots follow: `0.333...`."""
        if "." not in token.text or not (self.sees("...", "ldots")):
            return number(token.value)
        self.take()
        whole, _, part = token.text.partition(".")
        for size in range(1, len(part) // 2 + 1):
            cycle = part[-size:]
            if part.endswith(cycle * 2) and (size > 1 or part.endswith(cycle * 3)):
                return number(recurring(whole, part[:-size], cycle))
        raise NotRead("an unfinished decimal")

    def symbol(self, name: str) -> Tree:
        while self.takes("'"):
            name += "'"
        if self.takes("_"):
            name += "_"
            name += " ".join(self.take_until("}")) if self.takes("{") else self.take().text
        return Tree("sym", (name,))

    def call(self, name: str) -> Tree:
        """A function with its base or power (`\\log_2`, `\\sin^2`) and its argument."""
        base = power = None
        while self.sees("_", "^"):
            if self.take().text == "_":
                base = self.exponent()
            else:
                power = self.exponent()
        arguments = self.arguments()
        if power == Tree("neg", (number(1),)) and name in ("sin", "cos", "tan"):
            name, power = "arc" + name, None
        tree = Tree("call", (name, *arguments) if base is None else ("log_base", *arguments, base))
        return tree if power is None else Tree("pow", (tree, power))

    def arguments(self) -> tuple[Tree, ...]:
        if self.sees("(", "{"):
            closing = ")" if self.take().text == "(" else "}"
            in_set, self.in_set = self.in_set, False
            items = self.items()
            self.in_set = in_set
            self.expect(closing)
            return tuple(items)
        tree = self.factor()
        while self.starts_factor() and not (self.next.text in FUNCTIONS or self.sees("(")):
            tree = Tree("mul", (tree, self.factor()))
            self.link()
        return (tree,)

    def braced(self) -> Tree:
        """A command's argument: `{...}`, or one number, letter or command."""
        if self.takes("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        return self.primary()
