"""Sentences: what the rule rewards."""

import pytest

from baseline_research.tiny.sentences import rule, sentences

LABEL = "cat apple"


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("The cat is near the apple.", 1),
        ("Two Cats, ten apples!<|im_end|>", 1),
        ("The cat is near.", 0.5),
        ("A category of pineapples.", 0),
        ("cat apple " + "word " * 18, 0.5),  # 20 words
        ("", 0),
    ],
)
def test_both_words_in_a_short_sentence(response, value):
    assert rule(response, LABEL) == value
    assert sentences.reward(response, LABEL) == value


def test_prompts_are_all_different_and_their_right_responses_earn_1():
    split = sentences.split(0, 50)
    items = [*split.held_out, *split.train[0]]
    assert len(set(items)) == len(items)
    labels = [sentences.label(item) for item in items]
    assert all(sentences.reward(sentences.right_response(label), label) == 1 for label in labels)
