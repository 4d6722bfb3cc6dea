"""What a reward server says becomes a reward only if it is one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.plugin.errors import BadReward
from openrlhf_js.plugin.reward_answers import BadAnswer, read_answer


def body(**content) -> bytes:
    return json.dumps(content).encode()


def test_a_reward_with_its_score_and_figures():
    answer = read_answer(body(rewards=[0.5], scores=[2], extra_logs={"a": [1.5], "b": 3}))
    assert answer == (0.5, 2.0, {"a": 1.5, "b": 3.0})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"rewards": [-7]}, (-7.0, -7.0, {})),
        ({"rewards": 0.25, "scores": None}, (0.25, 0.25, {})),
        ({"rewards": [1e30], "scores": [0], "extra_logs": None}, (1e30, 0.0, {})),
        ({"rewards": [1], "extra_logs": {"a": "x", "b": [1, 2], "c": math.nan}}, (1.0, 1.0, {})),
        ({"rewards": [1], "extra_logs": {str(i): i for i in range(1000)}}, None),
    ],
)
def test_what_upstream_takes_is_taken(content, expected):
    answer = read_answer(body(**content))
    assert answer == expected if expected else len(answer.logs) == 64


@pytest.mark.parametrize("value", [None, [None], math.nan, [math.inf], [-math.inf], 10**400])
@pytest.mark.parametrize("key", ["rewards", "scores"])
def test_a_reward_that_the_model_did_not_get_is_none(key, value):
    if key == "scores" and value is None:
        return  # no score of its own
    with pytest.raises(BadReward):
        read_answer(body(**{"rewards": [1.0], key: value}))


BAD = [
    b"",
    b"<html><body>502 Bad Gateway</body></html>",
    b"\xff\xfe\x00",
    b'{"rewards": [1.0]',
    b"[" * 100_000,
    b"9" * 10_000,
    b"1.0",
    b"[1.0]",
    b"null",
    body(),
    body(scores=[1.0]),
    body(rewards=[]),
    body(rewards=[1.0, 2.0]),
    body(rewards=["1.0"]),
    body(rewards="1.0"),
    body(rewards=[True]),
    body(rewards=[[1.0]]),
    body(rewards={"0": 1.0}),
    body(rewards=[1.0], scores=[]),
    body(rewards=[1.0], scores=["good"]),
    body(rewards=[1.0], scores=False),
]


@pytest.mark.parametrize("came", BAD, ids=lambda came: repr(came[:30]))
def test_anything_else_is_no_answer(came):
    with pytest.raises(BadAnswer) as caught:
        read_answer(came)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(rewards=JSON, scores=JSON, logs=JSON)
def test_only_finite_numbers_ever_come_out(rewards, scores, logs):
    try:
        answer = read_answer(body(rewards=rewards, scores=scores, extra_logs=logs))
    except (BadAnswer, BadReward):
        return
    assert all(map(math.isfinite, [answer.reward, answer.score, *answer.logs.values()]))
    (value,) = rewards if isinstance(rewards, list) else [rewards]
    assert answer.reward == value and not isinstance(value, bool)


@given(st.binary())
def test_no_bytes_break_it(came):
    with pytest.raises((BadAnswer, BadReward)):
        read_answer(came)
