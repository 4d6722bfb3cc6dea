"""Draws are the same everywhere, and what has come already is told exactly."""

import itertools
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.tasks.draws import TEST_SHARE, Draws, Seen, first, split_of


def shuffled(draws, values):
    """Fisher and Yates' shuffle of a copy."""
    pool = list(values)
    for i in range(len(pool)):
        j = i + draws.below(len(pool) - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool


@given(st.integers(0, 30), st.text(max_size=3))
def test_a_sample_is_the_beginning_of_a_shuffle(count, seed):
    values = range(100, 130)
    assert Draws(seed).sample(values, count) == shuffled(Draws(seed), values)[:count]


def test_all_samples_are_equally_likely():
    draws = Draws("even")
    found = Counter(tuple(draws.sample("abcd", 2)) for _ in range(12_000))
    assert set(found) == set(itertools.permutations("abcd", 2))
    assert min(found.values()) > 850 and max(found.values()) < 1150  # 1000 expected, 5 deviations


def test_a_sample_of_very_many_takes_no_room():
    drawn = Draws("many").sample(range(10**12), 5)
    assert len(set(drawn)) == 5 and max(drawn) < 10**12


def test_streams_differ_by_task_split_and_seed():
    names = [("maze", "train", 1), ("maze", "test", 1), ("maze", "train", 2), ("other", "train", 1)]
    assert len({Draws.of_split(*name).random() for name in names}) == 4
    assert Draws.of_split(*names[0]).random() == Draws.of_split(*names[0]).random()
    with pytest.raises(ValueError, match="split must be train or test, got 'dev'"):
        Draws.of_split("maze", "dev", 1)


@given(st.lists(st.text(max_size=2)))
def test_a_key_is_new_once(keys):
    seen, before = Seen(), set()
    for key in keys:
        assert seen.add(key) == (key not in before)
        before.add(key)


def test_every_key_stays_known_however_many_there_are_in_little_memory():
    seen = Seen()
    tracemalloc.start()
    assert all(seen.add(str(number)) for number in range(50_000))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert not any(seen.add(str(number)) for number in range(50_000))
    assert seen.add("50000")
    assert held < 24 * 50_000


def test_one_key_in_so_many_is_a_test_key():
    splits = Counter(split_of(str(number)) for number in range(20_000))
    assert splits["test"] / 20_000 == pytest.approx(1 / TEST_SHARE, rel=0.1)
    assert set(splits) == {"train", "test"}


def test_the_first_that_is_something_is_found_within_the_tries():
    values = [None, None, 0, 1]
    assert first(3, iter(values).__next__) == 0
    assert first(2, iter(values).__next__) is None
