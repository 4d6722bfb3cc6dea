"""Read what stands alone in an expression: numbers, names, functions, and what brackets hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from openrlhf_js.tasks.equivalence.cursor import Cursor
from openrlhf_js.tasks.equivalence.tokens import FUNCTIONS, NotRead, Token, recurring
from openrlhf_js.tasks.equivalence.tree import Tree, number

OPENING = {
    "(": ")",
    "[": "]",
    "]": "[",
    "\\{": "\\}",
    "langle": "rangle",
    "lfloor": "rfloor",
    "lceil": "rceil",
}
CONSTANTS = frozenset((
    "pi", "theta", "alpha", "beta", "gamma", "delta", "lambda", "mu", "omega", "phi",
    "epsilon", "sigma", "rho", "tau", "psi", "xi", "eta", "zeta", "kappa", "nu", "chi",
    "Gamma", "Delta", "Theta", "Lambda", "Phi", "Psi", "Omega", "Sigma", "ell",
))  # fmt: skip
_OF_BASE = frozenset(("log", "ln", "lg"))  # the functions that a lower index gives a base


class Atoms(Cursor):
    """Reads single values; sums, brackets and commands are read by the classes that extend it."""

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
        """An expression with its plus and minus signs."""
        raise NotImplementedError

    def factor(self) -> Tree:
        """A value with its powers and percent signs."""
        raise NotImplementedError

    def starts_factor(self) -> bool:
        """Whether what comes next multiplies what stands before it."""
        raise NotImplementedError

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
        if token.kind == "command" and token.text in CONSTANTS:
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
        if base is not None and name not in _OF_BASE:
            raise NotRead(f"{name} with a base")
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
