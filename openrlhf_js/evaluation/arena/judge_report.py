"""What a call of judging says, line by line: what it would cost, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from openrlhf_js.evaluation.arena.games import Plan
from openrlhf_js.evaluation.arena.job import Job
from openrlhf_js.evaluation.arena.judge import Outcome
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.prices import Bill, dollars, estimate

MOST_REASONS = 5


def before(job: Job, todo: Plan) -> Iterator[str]:
    """What is asked for, and whether that is the official way."""
    parameters = ", ".join(f"{name} {value}" for name, value in job.judge.parameters.items())
    yield f"judge: {job.judge.model} ({parameters}), for {job.folder.judged_by(job.judge.name)}"
    if job.run.deviations:
        yield f"not the official protocol: {'; '.join(job.run.deviations)}"
    games = sum(len(ask.games) for ask in todo.asks.values())
    yield (
        f"{todo.complete:,} judgments are there, {len(todo.pairs):,} are open: {games:,} games "
        f"without a verdict"
        + (f"; {todo.missing:,} more want answers that are missing" if todo.missing else "")
    )


def expected(job: Job, todo: Plan, ledger: Ledger) -> Iterator[str]:
    """What the open games would cost."""
    asks = [ask for ask in todo.asks.values() if ask.key not in ledger.verdicts]
    by_model = Counter(
        todo.pairs[number].answer.model for ask in todo.asks.values() for number, _ in ask.games
    )
    for model, games in by_model.items():
        yield f"{model}: {games:,} games"
    games = by_model.total()
    yield (
        f"to be paid: {len(asks):,} replies; {games - len(asks):,} games cost nothing, since the "
        "ledger has their reply or another game shares it"
    )
    every = sum(ledger.bills.values(), Bill())
    guess = estimate(len(asks), sum(ask.prompt_bytes for ask in asks), every)
    basis = (
        f"from {guess.from_replies:,} replies in the ledger"
        if guess.from_replies
        else "prompts by their bytes / 4, replies as the official judges' (see --help)"
    )
    yield (
        f"tokens: about {guess.prompt_tokens:,.0f} in and {guess.completion_tokens:,.0f} out; "
        f"{basis}"
    )
    if job.price is None:
        yield (
            f"money: unknown; give the price of {job.judge.model} under 'prices' in the settings"
        )
    else:
        cost = dollars(job.price, guess.prompt_tokens, guess.completion_tokens)
        yield (
            f"money: about {money(cost)}, at ${job.price.input:g} in and ${job.price.output:g} "
            "out for a million tokens"
        )
        yield f"paid so far for these models: {money(ledger.paid(job.models).dollars(job.price))}"


def after(
    job: Job, todo: Plan, outcome: Outcome, paid: Bill, ledger: Ledger, retries: int
) -> Iterator[str]:
    """What became of the games.

    Args:
        paid: by this call.
        retries: requests that were sent again.
    """
    yield (
        f"judged: {outcome.games:,} games, {outcome.free:,} of them free (the ledger had "
        f"their reply, or another game shares it); {outcome.judgments:,} judgments written"
    )
    spent = paid.dollars(job.price)
    every = ledger.paid(job.models)
    yield (
        f"paid: {paid.replies:,} replies, {paid.prompt_tokens:,} tokens in and "
        f"{paid.completion_tokens:,} out"
        + (f", {money(spent)}; {money(every.dollars(job.price))} in all" if job.price else "")
    )
    yield f"requests sent again: {retries:,}; replies without a verdict: {outcome.silent:,}"
    if outcome.lost:
        yield (
            f"lost: {outcome.lost:,} replies (a time-out, or an answer that holds none), for which "
            "you may be charged; a budget counts the most that they can have cost"
        )
    if paid.replies > paid.counted:
        yield (
            f"{paid.replies - paid.counted:,} replies came without a count of tokens; their bytes "
            "are counted instead, of which there are more"
        )
    for reason, games in outcome.failures.most_common(MOST_REASONS):
        yield f"open: {games:,} games: {reason}"
    if len(outcome.failures) > MOST_REASONS:
        rest = sum(outcome.failures.values()) - sum(
            games for _, games in outcome.failures.most_common(MOST_REASONS)
        )
        yield f"open: {rest:,} games for other reasons"
    if outcome.dropped:
        yield f"dropped: {outcome.dropped:,} games under way, for which you may be charged"
    left = sum(len(ask.games) for ask in todo.asks.values()) - outcome.games
    if left or todo.missing:
        yield f"left: {left:,} games" + (
            f", and {todo.missing:,} judgments that want answers which are missing"
            if todo.missing
            else ""
        )


def money(amount: float | None) -> str:
    """Dollars for people; small sums with what makes them differ from nothing."""
    if amount is None:
        return "unknown"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
