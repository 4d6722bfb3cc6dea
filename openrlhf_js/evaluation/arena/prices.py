"""What judging costs: tokens that were counted or are expected, money, and a budget."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from openrlhf_js.evaluation.arena.settings import Price
from openrlhf_js.evaluation.replies import Reply

# With gpt-4.1's tokenizer, o200k_base, a token has 4.9 bytes of English prose, 4.1 of Python or of
# Chinese, 3.1 of LaTeX, and 2.3 of tables of numbers.
BYTES_PER_TOKEN = 4
# What the official judges say in a game of either category of v2.0, on average.
OUTPUT_TOKENS = 900


@dataclass
class Bill:
    """What replies cost, in tokens.

    Attributes:
        replies: how many were paid for.
        prompt_tokens, completion_tokens: as the endpoint counts them. Where it does not, or counts
            none in a text, the text's bytes are taken: it has no more tokens than that.
        counted: the replies of which the endpoint counted both, and
        counted_bytes: the bytes that they were asked with,
        counted_prompt, counted_completion: and their tokens.
    """

    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    counted: int = 0
    counted_bytes: int = 0
    counted_prompt: int = 0
    counted_completion: int = 0

    def add(self, reply: Reply, prompt_bytes: int) -> None:
        """Adds a reply to messages of so many bytes."""
        said_bytes = len((reply.text + reply.thinking).encode(errors="replace"))
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        if prompt == 0 < prompt_bytes:
            prompt = None
        if completion == 0 < said_bytes:
            completion = None
        self.replies += 1
        self.prompt_tokens += prompt_bytes if prompt is None else prompt
        self.completion_tokens += said_bytes if completion is None else completion
        if prompt is not None and completion is not None:
            self.counted += 1
            self.counted_bytes += prompt_bytes
            self.counted_prompt += prompt
            self.counted_completion += completion

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(mine + theirs for mine, theirs in zip(_all(self), _all(other), strict=True)))

    def __sub__(self, other: Bill) -> Bill:
        return Bill(*(mine - theirs for mine, theirs in zip(_all(self), _all(other), strict=True)))

    def dollars(self, price: Price | None) -> float | None:
        """None where no price is known."""
        if price is None:
            return None
        return dollars(price, self.prompt_tokens, self.completion_tokens)


def _all(bill: Bill) -> tuple[int, ...]:
    return tuple(vars(bill).values())


class Worst(NamedTuple):
    """What a reply can cost at most, in tokens and dollars."""

    prompt_tokens: int
    completion_tokens: int
    dollars: float


class Estimate(NamedTuple):
    """What games that are still open will cost, in tokens."""

    prompt_tokens: float
    completion_tokens: float
    from_replies: int
    """How many replies the estimate rests on; 0: on what English text and judges usually have."""


def estimate(games: int, prompt_bytes: int, seen: Bill) -> Estimate:
    """What so many games will cost.

    Args:
        prompt_bytes: of the messages of all of them.
        seen: replies of the same judge. If there are any, they say how many tokens its messages
            have for their bytes, and how much it says.
    """
    if not seen.counted:
        return Estimate(prompt_bytes / BYTES_PER_TOKEN, games * OUTPUT_TOKENS, 0)
    return Estimate(
        prompt_bytes * seen.counted_prompt / max(1, seen.counted_bytes),
        games * seen.counted_completion / seen.counted,
        seen.counted,
    )


def dollars(price: Price, prompt_tokens: float, completion_tokens: float) -> float:
    """What so many tokens cost; prices are for a million."""
    return (prompt_tokens * price.input + completion_tokens * price.output) / 1e6


class Budget:
    """Lets games begin while the worst that all games under way can cost is still affordable.

    Args:
        most: dollars; infinity for no budget.
        spent: says what was spent so far, in dollars.

    Attributes:
        used_up: whether a game could not begin for want of money.
    """

    def __init__(self, most: float, spent: Callable[[], float]):
        self.used_up = False
        self._most, self._spent = most, spent
        self._under_way: Counter[float] = Counter()  # how many games by their worst
        self._closed = False
        self._changed = asyncio.Event()

    async def begin(self, worst: float) -> bool:
        """Waits until a game can begin that costs so much at worst; False: none can any more.

        Whoever gets True calls `end` with the same figure.
        """
        while not self._closed:
            if self._at_worst() + worst <= self._most:
                self._under_way[worst] += 1
                return True
            if not self._under_way:
                self.used_up = True
                self.close()
                break
            await self._changed.wait()
        return False

    def end(self, worst: float) -> None:
        """A game is over; what it cost must have been spent before."""
        self._under_way[worst] -= 1
        self._under_way += Counter()  # without those that are over
        self._tell()

    def close(self) -> None:
        """No more games begin."""
        self._closed = True
        self._tell()

    def _at_worst(self) -> float:
        waiting = math.fsum(worst * count for worst, count in self._under_way.items())
        return self._spent() + waiting

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
