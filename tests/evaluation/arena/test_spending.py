"""What judging costs and how games end, worked out by hand."""

import pytest

from openrlhf_js.evaluation.arena.protocol import Price
from openrlhf_js.evaluation.arena.spending import Spending, outcome_of

MILLION = 10**6


def reply_record(text="[[A>B]]", side=1, tokens_in=1000, tokens_out=500, **fields):
    return {
        "text": text,
        "thinking": "",
        "side": side,
        "prompt_bytes": 4000,
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        **fields,
    }


def test_the_bill_counts_tokens_or_else_bytes_and_no_refusals():
    spending = Spending(Price(input=2, output=8))
    spending.add(reply_record(tokens_in=MILLION, tokens_out=MILLION))
    spending.add(reply_record("", refused="no"))
    assert spending.in_words(spending.dollars) == "$10.00"
    uncounted = Spending(Price(input=1, output=1))
    uncounted.add(reply_record("\u00e4\u00e4", tokens_in=None, tokens_out=None))
    assert (uncounted.prompt_tokens, uncounted.completion_tokens) == (4000, 4)


def test_an_estimate_takes_the_mean_reply():
    spending = Spending(Price(input=2, output=8))
    first = spending.estimate([4 * MILLION, 4 * MILLION])
    assert first == (2, 2 * MILLION, 1800, pytest.approx(4 + 0.0144))
    spending.add(reply_record(tokens_out=100))
    assert spending.estimate([8]).tokens_out == 100


def test_the_forecast_is_the_bill_and_the_mean_reply_for_each_open_game():
    spending = Spending(Price(input=1000, output=2000))
    spending.add(reply_record())
    spending.add(reply_record(tokens_out=1500))
    expected = "$6.00 of about $30.00; won 0, lost 0, tied 0"  # 2 and 4: 3 a game
    assert spending.progress(open_games=8) == expected
    unpriced = Spending(price=None)
    unpriced.add(reply_record())
    assert unpriced.dollars == unpriced.estimate([4000]).dollars == 0.0
    assert unpriced.progress(open_games=3).startswith("price unknown; ")


@pytest.mark.parametrize(
    ("text", "side", "outcome"),
    [
        ("[[A>>B]]", 1, "lost"),  # A is the baseline
        ("[[A>B]]", 2, "won"),  # A is the model
        ("[[B>A]]", 1, "won"),
        ("[[A=B]]", 2, "tied"),
        ("<think>[[A>B]]</think> well", 1, "no verdict"),
    ],
)
def test_a_game_ends_as_the_model_fared(text, side, outcome):
    assert outcome_of(reply_record(text, side)) == outcome
    assert outcome_of(reply_record(text, side, refused="flagged")) == "refused"
