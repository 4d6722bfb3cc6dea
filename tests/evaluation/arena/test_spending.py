"""What judging costs and how games end, worked out by hand."""

import pytest

from openrlhf_js.evaluation.arena.protocol import Price
from openrlhf_js.evaluation.arena.spending import Bill, Spending, Tally

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


def test_a_bill_adds_tokens_and_takes_the_discount_off():
    bill = Bill(Price(input=2, output=8))
    bill.add(reply_record(tokens_in=MILLION, tokens_out=MILLION))
    bill.add(reply_record(tokens_in=MILLION, tokens_out=MILLION, discount=0.5))
    assert bill.dollars == pytest.approx(10 + 5)
    assert bill.in_words(bill.dollars) == "$15.00"
    bill.add(reply_record(text="", tokens_in=0, tokens_out=0, refused="no", prompt_bytes=0))
    assert bill.replies == 2
    assert bill.dollars == 15.0


def test_tokens_that_nobody_counts_are_the_bytes_of_the_text():
    bill = Bill(Price(input=1, output=1))
    bill.add(reply_record("\u00e4\u00e4", tokens_in=None, tokens_out=None))
    assert bill.prompt_tokens == 4000
    assert bill.completion_tokens == 4


def test_an_estimate_takes_the_mean_reply_and_the_discount():
    bill = Bill(Price(input=2, output=8))
    first = bill.estimate([4 * MILLION, 4 * MILLION], discount=0.5)
    assert first == (2, 2 * MILLION, 1800, pytest.approx((4 + 0.0144) / 2))
    bill.add(reply_record(tokens_out=100))
    assert bill.estimate([8]).tokens_out == 100


def test_without_a_price_no_sum_is_said():
    bill = Bill(price=None)
    bill.add(reply_record())
    estimate = bill.estimate([4000])
    assert bill.dollars == 0.0
    assert estimate.dollars == 0.0
    spending = Spending(bill, estimate, budget=None)
    words = [bill.in_words(0.0), bill.about(0.0), spending.in_words(open_games=3)]
    assert words == ["price unknown"] * 3


def test_the_forecast_is_the_bill_and_the_mean_reply_for_each_open_game():
    bill = Bill(Price(input=1000, output=2000))
    spending = Spending(bill, bill.estimate([4000] * 10), budget=None)
    assert spending.in_words(open_games=10) == "$0.00 of about $28.00"  # 1 + 1.8 a game
    bill.add(reply_record())
    bill.add(reply_record(tokens_out=1500))
    assert spending.in_words(open_games=8) == "$6.00 of about $30.00"  # 2 and 4: 3 a game


def test_a_tally_is_in_the_models_view():
    tally = Tally()
    for text, side in (
        ("[[A>>B]]", 1),  # A is the baseline
        ("[[A>B]]", 2),  # A is the model
        ("[[B>A]]", 1),
        ("[[A=B]]", 2),
        ("<think>[[A>B]]</think> well", 1),
    ):
        tally.add(reply_record(text, side))
    assert str(tally) == "won 2, lost 1, tied 1, no verdict 1"
    tally.add(reply_record("", refused="flagged"))
    assert str(tally) == "won 2, lost 1, tied 1, no verdict 1, refused 1"
