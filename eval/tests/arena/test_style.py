"""Style counts, and style control against a slow fit, a bootstrap and a known truth."""

import re
import time
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from paired_eval.arena import style
from paired_eval.arena.style import FEATURES, control, differences, metadata, style_of, without_code


def test_counts_by_hand_and_their_order():
    text = (
        "# One\n## Two\n####### no header\n#no header\n"
        "1. first\n  22. second\n3.no item\n- a\n * b\n+ c\n-no item\n"
        "**bold** and __bold__ and **not\nbold**\n"
        "```python\n# comment\n- x\n```\nx # comment"
    )
    found = metadata(text, lambda text: len(text.split()))
    assert list(found) == ["token_len", "header_count", "list_count", "bold_count"]
    assert found["token_len"] == len(text.split())  # of the whole text, code too
    assert found["header_count"] == {"h1": 1, "h2": 1, "h3": 0, "h4": 0, "h5": 0, "h6": 0}
    assert found["list_count"] == {"ordered": 2, "unordered": 3}
    assert found["bold_count"] == {"**": 1, "__": 1}
    assert style_of(found) == (len(text.split()), 2, 5, 2)


def test_what_a_code_block_holds_goes_everywhere():
    assert without_code("a```b```c") == "a``````c"
    assert without_code("x y```x``` x") == " y`````` "
    assert without_code("```unclosed # a") == "```unclosed # a"


# upstream's rule for items: space before one may run over line ends
ORDERED = re.compile(r"^\s*\d+\.\s", re.MULTILINE)
UNORDERED = re.compile(r"^\s*[-*+]\s", re.MULTILINE)


@settings(deadline=None)
@given(st.text(alphabet="1.-* \n\t\r\x0b\x0c\x85\u2028a", max_size=40))
def test_items_as_upstream_finds_them(text):
    found = metadata(text, len)["list_count"]
    assert found == {
        "ordered": len(ORDERED.findall(text)),
        "unordered": len(UNORDERED.findall(text)),
    }


def test_a_million_empty_lines_take_no_time():
    began = time.process_time()
    assert metadata("\n" * 1_000_000 + "1. x", len)["list_count"]["ordered"] == 1
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("bench", "name"), [("arena-hard-v0.1", "cl100k_base"), ("arena-hard-v2.0", "o200k_base")]
)
def test_the_tokenizer_of_a_bench(monkeypatch, bench, name):
    encoding = Mock(encode=lambda text, disallowed_special: list(text))
    monkeypatch.setattr("tiktoken.get_encoding", {name: encoding}.__getitem__)
    assert style.load_tokenizer(bench)("<|endoftext|>") == 13
    monkeypatch.setattr("tiktoken.get_encoding", Mock(side_effect=OSError))
    assert style.load_tokenizer(bench) is None


def test_differences_by_hand():
    found = differences(
        np.array([[300.0, 3, 6, 0], [0] * 4]), np.array([[100.0, 1, 0, 5], [0] * 4])
    )
    # 3 / 300 and 1 / 100 are the same density; empty answers do not differ
    expected = [[200 / 400, 0, 0.02 / 1.02, -0.05 / 1.05], [0] * 4]
    assert found == pytest.approx(np.array(expected))


def pool_of(models=3, questions=40, seed=0):
    """Games of models of rising strength that two of the features help."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=questions)
    rows = []
    for model in range(models):
        for uid in range(questions):
            features = rng.normal(size=4) * [1, 0.1, 0.5, 2] + 0.3
            style_helps = 0.5 * features[0] - features[2]
            for _ in range(2):
                eta = model - 1 + ease[uid] + style_helps + rng.normal()
                margin = int(np.clip(round(eta), -2, 2))
                row = {
                    "model": f"m{model}",
                    "uid": f"q{uid}",
                    "points": (np.sign(margin) + 1) / 2,
                    "weight": 3.0 if abs(margin) == 2 else 1.0,
                }
                rows.append(row | dict(zip(FEATURES, features, strict=True)))
    return pd.DataFrame(rows)


def slow_fit(rows, features):
    """As the official script sets it up: a row for each weighted game, z-scored columns."""
    names = sorted(rows.model.unique())
    copies = rows.loc[rows.index.repeat(rows.weight.astype(int))]
    one_hot = pd.get_dummies(copies.model)[names].to_numpy(float)
    x = copies[list(features)].to_numpy()
    x = (x - x.mean(0)) / x.std(0, ddof=1)
    x, y = np.hstack([one_hot, x]), copies.points.to_numpy()

    def loss(theta):
        eta = x @ theta
        return np.logaddexp(0, eta).sum() - y @ eta

    def gradient(theta):
        return x.T @ (special.expit(x @ theta) - y)

    start = np.zeros(x.shape[1])
    return optimize.minimize(loss, start, jac=gradient, tol=1e-12).x


def test_control_is_the_fit_on_single_rows():
    rows = pool_of()
    logits = slow_fit(rows, FEATURES)
    for score, logit in zip(control(rows).values(), logits, strict=False):
        assert score.value == pytest.approx(special.expit(logit), abs=2e-5)


def test_intervals_are_those_of_a_bootstrap_by_question():
    rows = pool_of(questions=80)
    rng = np.random.default_rng(1)
    questions = dict(list(rows.groupby("uid")))
    bootstraps = []
    for _ in range(80):
        resample = []
        for number, uid in enumerate(rng.choice(list(questions), len(questions))):
            resample.append(questions[uid].assign(uid=number))
        scores = control(pd.concat(resample))
        bootstraps.append({model: special.logit(score.value) for model, score in scores.items()})
    standard_errors = pd.DataFrame(bootstraps).std(ddof=0)
    for model, score in control(rows).items():
        low, high = special.logit([score.low, score.high])
        half_width = special.stdtrit(79, 0.975) * standard_errors[model]
        assert (high - low) / 2 == pytest.approx(half_width, rel=0.25)


def test_what_cannot_be_fitted():
    constant = pool_of().assign(bold=0.4)
    assert np.isfinite(list(control(constant).values())).all()
    decided = pool_of().assign(points=lambda rows: (rows.length > 0).astype(float))
    with pytest.raises(ValueError, match="style decides every game"):
        control(decided)
