"""A place in an answer's tokens, and the caps on how deep and how long it may be."""

from __future__ import annotations

from openrlhf_js.tasks.equivalence.tokens import NotRead, Token

MAX_DEPTH = 40
MAX_LINKS = 200  # operations in one answer: what walks over a tree goes as deep as a chain of them


class Cursor:
    """Tokens and the one that is next."""

    def __init__(self, found: list[Token]):
        self.tokens = found
        self.at = 0
        self.depth = 0
        self.bars = sum(token.text == "|" for token in found)  # that are still to come
        self.in_set = False
        self.links = 0

    @property
    def next(self) -> Token:
        """The token that is read next."""
        return self.tokens[self.at]

    def take(self) -> Token:
        """Moves past the next token and returns it; the end is never passed."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        self.bars -= token.text == "|"
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these signs or commands."""
        token = self.next
        return token.text in texts and token.kind in ("sign", "command")

    def takes(self, *texts: str) -> bool:
        """Moves past the next token if it is one of these signs or commands."""
        found = self.sees(*texts)
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        """Moves past a token that must have this text or kind."""
        token = self.take()
        if token.text != text and token.kind != text:
            raise NotRead(f"expected {text} before {token.text or 'the end'!a}")

    def take_until(self, text: str) -> list[str]:
        """The texts up to a sign, which is passed too."""
        pieces = []
        while not self.sees(text) and self.next.kind != "end":
            pieces.append(self.take().text)
        self.expect(text)
        return pieces

    def link(self) -> None:
        """Counts an operation."""
        self.links += 1
        if self.links > MAX_LINKS:
            raise NotRead(f"more than {MAX_LINKS} operations")

    def enter(self) -> None:
        """Counts a level of nesting, until `leave`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotRead(f"nested deeper than {MAX_DEPTH}")

    def leave(self) -> None:
        """Ends a level of nesting."""
        self.depth -= 1
