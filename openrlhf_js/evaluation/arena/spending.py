"""What judging costs and how its games end: bill, forecast, budget and tally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from openrlhf_js.common.store import Record
from openrlhf_js.evaluation.arena import protocol
from openrlhf_js.evaluation.arena.pairs import Game
from openrlhf_js.evaluation.arena.verdicts import MARGIN_OF_A, stated_verdict

BYTES_PER_TOKEN = 4  # of English prose and code; formulas have fewer
OUTPUT_TOKENS = 900  # of the official judges' replies, on average
ROUNDING = 1 + 1e-9  # of sums of dollars
OUTCOMES = ("won", "lost", "tied", "no verdict", "refused")


class CostEstimate(NamedTuple):
    """Games that have no reply yet, and what they may cost."""

    games: int
    tokens_in: float
    tokens_out: float
    dollars: float


@dataclass
class Spending:
    """What the replies of a judge have cost, and which games a budget allows.

    Where the endpoint counts no tokens they are the text's bytes, which are more.
    """

    price: protocol.Price | None  # None: nobody knows it
    budget: float | None = None  # dollars for all replies, those of earlier calls too
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    under_way: int = 0
    out_of_money: bool = False
    tally: Counter[str] = field(default_factory=Counter)  # of this call's games

    def add(self, record: Record) -> None:
        """Adds a reply to the bill; a refusal costs nothing."""
        if "refused" in record:
            return
        text = record["text"] + record["thinking"]
        self.replies += 1
        self.prompt_tokens += record["prompt_tokens"] or record["prompt_bytes"]
        self.completion_tokens += record["completion_tokens"] or len(text.encode(errors="replace"))

    @property
    def dollars(self) -> float:
        """The bill; 0 where nobody knows the price."""
        return self._dollars(self.prompt_tokens, self.completion_tokens)

    def estimate(self, prompt_bytes: Sequence[int]) -> CostEstimate:
        """What games with prompts of these lengths may cost, by the mean reply so far."""
        mean_reply = self.completion_tokens / self.replies if self.replies else OUTPUT_TOKENS
        tokens_in = sum(prompt_bytes) / BYTES_PER_TOKEN
        tokens_out = len(prompt_bytes) * mean_reply
        return CostEstimate(
            games=len(prompt_bytes),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            dollars=self._dollars(tokens_in, tokens_out),
        )

    def affordable(self, games: Sequence[Game]) -> Iterator[Game]:
        """The games, until one may pass the budget with those under way."""
        for game in games:
            mean_dollars = self._mean_dollars(game)
            expected = self.dollars + (self.under_way + 1) * mean_dollars
            if self.budget is not None and expected > self.budget * ROUNDING:
                self.out_of_money = True
                return
            self.under_way += 1
            yield game

    def in_words(self, dollars: float) -> str:
        """So many dollars, unless nobody knows the price."""
        return "price unknown" if self.price is None else f"${dollars:,.2f}"

    def progress(self, open_games: int) -> str:
        """The bill so far, what it will be with so many more games, and how games ended."""
        cost = self.in_words(self.dollars)
        if self.price and self.replies:
            forecast = self.dollars * (1 + open_games / self.replies)
            cost += f" of about {self.in_words(forecast)}"
        return f"{cost}; {self.outcomes()}"

    def outcomes(self) -> str:
        """How the games of this call have ended for the models."""
        counts = [
            f"{outcome} {self.tally[outcome]:,}"
            for number, outcome in enumerate(OUTCOMES)
            if number < 3 or self.tally[outcome]
        ]
        return ", ".join(counts)

    def _mean_dollars(self, game: Game) -> float:
        """What a game costs: as those so far, or as estimated before there are any."""
        if self.replies:
            return self.dollars / self.replies
        return self.estimate([game.prompt_bytes]).dollars

    def _dollars(self, tokens_in: float, tokens_out: float) -> float:
        """What so many tokens cost."""
        if self.price is None:
            return 0.0
        return (tokens_in * self.price.input + tokens_out * self.price.output) / 1e6


def outcome_of(record: Record) -> str:
    """How a game ended for the model, which is B in the first one and A in the second."""
    if "refused" in record:
        return "refused"
    verdict = stated_verdict(record["text"])
    if verdict is None:
        return "no verdict"
    margin = MARGIN_OF_A[verdict] if record["side"] == 2 else -MARGIN_OF_A[verdict]
    if margin == 0:
        return "tied"
    return "won" if margin > 0 else "lost"
