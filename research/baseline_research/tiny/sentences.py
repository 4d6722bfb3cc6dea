"""Sentences with two given words, for a small pretrained model: rewards between 0 and 1.

The rule is the share of the words that the sentence has, times its brevity. A reward model that has
learnt the rule from preferences is a proxy for it.
"""

from __future__ import annotations

import random
import re

from answer_graders.answers import without_end_marks
from answer_graders.record import Score
from answer_graders.tasks.questions import WORDS
from baseline_research.tiny.record import TinySplit, TinyTask

TRAINING_ITEMS = 5000
MOST_WORDS = 10  # of a sentence that is short enough


def _split(seed: int, held_out: int) -> TinySplit:
    """Pairs of words, those held out in no training prompt."""
    rng = random.Random(seed)
    words = WORDS.split()
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    while len(pairs) < held_out + TRAINING_ITEMS:
        first, second = rng.sample(words, 2)
        pairs.setdefault(frozenset((first, second)), (first, second))
    items = list(pairs.values())
    return TinySplit([items[held_out:]], items[:held_out])


def rule(response: str, label: str) -> float:
    """The share of the label's words in a response, times 10 over its number of words above 10."""
    words = re.findall(r"[a-z]+", without_end_marks(response).lower())
    present = [word for word in label.split() if word in words or f"{word}s" in words]
    brevity = min(1.0, MOST_WORDS / max(1, len(words)))
    return len(present) / len(label.split()) * brevity


def _score(response: str, label: str) -> Score:
    value = rule(response, label)
    return Score(value, "correct" if value == 1 else "wrong", f"{response!r:.60}")


def _right_response(label: str) -> str:
    first, second = label.split()
    return f"The {first} is near the {second}."


sentences = TinyTask(
    tokens=(),
    slips=(),
    slip=0.0,
    warm_start_steps=0,  # the model as it comes
    max_prompt_tokens=40,
    max_new_tokens=28,
    split=_split,
    prompt=lambda words: f"Write one short sentence with the words {words[0]} and {words[1]}.",
    label=" ".join,
    right_response=_right_response,
    score=_score,
)
