"""What judging costs and how its games end, while it runs: bill, forecast, budget and tally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from openrlhf_js.common.store import Record
from openrlhf_js.evaluation.arena import protocol
from openrlhf_js.evaluation.arena.pairs import Game
from openrlhf_js.evaluation.arena.verdicts import MARGIN_OF_A, stated_verdict

BYTES_PER_TOKEN = 4  # of English prose and code; formulas have fewer
OUTPUT_TOKENS = 900  # of the official judges' replies, on average
ROUNDING = 1 + 1e-9  # of sums of dollars
PRICE_UNKNOWN = "price unknown"


class CostEstimate(NamedTuple):
    """Games that have no reply yet, and what they may cost."""

    games: int
    tokens_in: float
    tokens_out: float
    dollars: float


@dataclass
class Bill:
    """Tokens of replies; where the endpoint counts none, the text's bytes, which are more."""

    price: protocol.Price | None  # None: nobody knows it
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0

    def add(self, record: Record) -> None:
        """Adds a reply."""
        text = record["text"] + record["thinking"]
        tokens_in = record["prompt_tokens"] or record["prompt_bytes"]
        tokens_out = record["completion_tokens"] or len(text.encode(errors="replace"))
        self.replies += "refused" not in record
        self.prompt_tokens += tokens_in
        self.completion_tokens += tokens_out
        self.dollars += self._dollars(tokens_in, tokens_out, record.get("discount", 0.0))

    def estimate(self, prompt_bytes: Sequence[int], discount: float = 0.0) -> CostEstimate:
        """What games with prompts of these lengths may cost, by the mean reply so far."""
        mean_reply = float(OUTPUT_TOKENS)
        if self.replies:
            mean_reply = self.completion_tokens / self.replies
        tokens_in = sum(prompt_bytes) / BYTES_PER_TOKEN
        tokens_out = len(prompt_bytes) * mean_reply
        return CostEstimate(
            games=len(prompt_bytes),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            dollars=self._dollars(tokens_in, tokens_out, discount),
        )

    def in_words(self, dollars: float) -> str:
        """So many dollars, unless nobody knows the price."""
        return PRICE_UNKNOWN if self.price is None else f"${dollars:,.2f}"

    def about(self, dollars: float) -> str:
        """The same of an estimate."""
        return PRICE_UNKNOWN if self.price is None else f"about ${dollars:,.2f}"

    def _dollars(self, tokens_in: float, tokens_out: float, discount: float) -> float:
        """What so many tokens cost; 0 where nobody knows the price."""
        if self.price is None:
            return 0.0
        return self.price.dollars(tokens_in, tokens_out) * (1 - discount)


@dataclass
class Spending:
    """Which games a budget allows: none that may pass it with those under way."""

    bill: Bill
    estimate: CostEstimate
    budget: float | None
    under_way: int = 0
    out_of_money: bool = False

    def affordable(self, games: Sequence[Game]) -> Iterator[Game]:
        """The games, until one may be too much; each counts as under way."""
        for game in games:
            expected = self.bill.dollars + (self.under_way + 1) * self._mean_dollars
            if self.budget is not None and expected > self.budget * ROUNDING:
                self.out_of_money = True
                return
            self.under_way += 1
            yield game

    def in_words(self, open_games: int) -> str:
        """The bill so far, and what it will be when so many more games have their replies."""
        if self.bill.price is None:
            return PRICE_UNKNOWN
        forecast = self.bill.dollars + open_games * self._mean_dollars
        return f"{self.bill.in_words(self.bill.dollars)} of {self.bill.about(forecast)}"

    @property
    def _mean_dollars(self) -> float:
        """What a game costs: as those so far, or as estimated before there are any."""
        if self.bill.replies:
            return self.bill.dollars / self.bill.replies
        return self.estimate.dollars / self.estimate.games


@dataclass
class Tally:
    """How the games of one call have ended for the models."""

    won: int = 0
    lost: int = 0
    tied: int = 0
    without_verdict: int = 0
    refused: int = 0

    def add(self, record: Record) -> None:
        """Adds a reply, or a refusal. The model is B in the first game, and A in the second."""
        if "refused" in record:
            self.refused += 1
            return
        verdict = stated_verdict(record["text"])
        if verdict is None:
            self.without_verdict += 1
            return
        margin = MARGIN_OF_A[verdict] if record["side"] == 2 else -MARGIN_OF_A[verdict]
        self.won += margin > 0
        self.lost += margin < 0
        self.tied += margin == 0

    def __str__(self) -> str:
        words = f"won {self.won:,}, lost {self.lost:,}, tied {self.tied:,}"
        if self.without_verdict:
            words += f", no verdict {self.without_verdict:,}"
        if self.refused:
            words += f", refused {self.refused:,}"
        return words
