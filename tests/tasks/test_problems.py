"""Rows become problems: each once, with one answer, and a bad row is named."""

import warnings

import pytest

from openrlhf_js.tasks.problems import distinct, text


def make(rows, expected=None):
    return list(
        distinct(
            rows,
            "some set",
            lambda row: {"problem": text(row, "problem"), "answer": text(row, "answer")},
            lambda item: item["problem"],
            lambda item: item["answer"],
            expected,
        )
    )


def test_each_problem_once_in_the_order_of_the_rows():
    rows = [
        {"problem": "b\u00e9  1", "answer": "1"},
        {"problem": "a", "answer": "2"},
        {"problem": " be\u0301\n1", "answer": "1"},
        {"problem": "A", "answer": "2"},  # case tells problems apart
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [item["problem"] for item in make(rows, 3)] == ["b\u00e9  1", "a", "A"]
        assert make(rows) == make(rows, 3)


def test_an_unexpected_number_of_problems_is_told():
    rows = [{"problem": "a", "answer": "1"}] * 1200
    with pytest.warns(
        UserWarning, match="some set: 1 distinct problems in 1,200 rows; 2 are expec"
    ):
        assert len(make(rows, 2)) == 1


def test_a_problem_with_two_answers_is_left_out():
    rows = [
        {"problem": "a", "answer": "1"},
        {"problem": "b", "answer": "1"},
        {"problem": "a", "answer": "2"},
        {"problem": "a", "answer": "1"},
    ]
    with pytest.warns(UserWarning, match="1 distinct problems in 4 rows; 1 more were left out"):
        assert [item["problem"] for item in make(rows)] == ["b"]


def test_half_a_character_is_refused():
    with pytest.raises(ValueError, match=r"row 1: 'problem' holds '\\ud800', half a character"):
        make([{"problem": "a \ud800 b", "answer": "1"}])


@pytest.mark.parametrize("answer", [None, 5, "", " \n"])
def test_a_refused_row_is_named(answer):
    rows = [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": answer}]
    with pytest.raises(ValueError, match="some set, row 2: 'answer' must be text"):
        make(rows)
