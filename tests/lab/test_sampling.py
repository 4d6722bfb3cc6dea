import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.lab.rewards import Grader, RewardFailed
from openrlhf_js.lab.sampling import grade_anew, plan, sample
from openrlhf_js.lab.store import Store, open_samples
from openrlhf_js.sampling.engines import key

sys.path.insert(0, str(Path(__file__).parent))
from sampling_kit import DIGITS, SETTINGS, Formula, decode, digits, policy, prompts, run


class Lacking:
    """Stands in for a store: so many responses are there already."""

    def __init__(self, greedy, sampled):
        self.there = {"greedy": np.array(greedy), "sampled": np.array(sampled)}

    def missing(self, kind, n, m):
        return np.maximum(0, m - self.there[kind])


def ranges(pieces, kind):
    return sorted(
        (i, j)
        for piece in pieces
        if piece.kind == kind
        for i in range(piece.prompt, piece.prompt + piece.prompts)
        for j in range(piece.draw, piece.draw + piece.draws)
    )


@given(
    there=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    m=st.integers(1, 9),
    rows=st.integers(1, 30),
)
def test_every_missing_response_is_planned_once(there, m, rows):
    pieces = plan(Lacking([1] * len(there), there), len(there), m, rows)
    wanted = [(i, j) for i, had in enumerate(there) for j in range(had, m)]
    assert ranges(pieces, "sampled") == wanted
    assert ranges(pieces, "greedy") == []
    assert all(piece.prompts * piece.draws <= rows for piece in pieces)


@given(n=st.integers(1, 9), m=st.integers(1, 9), rows=st.integers(1, 30), data=st.data())
def test_stopped_after_any_piece_the_rest_is_planned_as_before(n, m, rows, data):
    pieces = plan(Lacking([0] * n, [0] * n), n, m, rows)
    done = data.draw(st.integers(0, len(pieces)))
    there = {"greedy": np.zeros(n, int), "sampled": np.zeros(n, int)}
    for piece in pieces[:done]:
        there[piece.kind][piece.prompt : piece.prompt + piece.prompts] += piece.draws
    rest = plan(Lacking(there["greedy"], there["sampled"]), n, m, rows)
    assert rest == pieces[done:]


def same(a, b):
    assert a.rewards.tolist() == b.rewards.tolist()
    assert a.finished.tolist() == b.finished.tolist()
    assert a.greedy_rewards.tolist() == b.greedy_rewards.tolist()
    tokens = [
        [[each.tolist() for each in group] for group in found.response_tokens] for found in (a, b)
    ]
    assert tokens[0] == tokens[1]


@settings(max_examples=15, deadline=None)
@given(stop=st.integers(0, 8), rows=st.sampled_from([1, 4, 100]))
def test_interrupted_and_gone_on_is_as_uninterrupted(tmp_path_factory, stop, rows):
    whole, broken = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("broken")
    calls = run(whole, rows=rows).calls
    if stop < calls:
        with pytest.raises(KeyboardInterrupt):
            run(broken, rows=rows, engine=Formula(stop_after=stop))
        assert run(broken, rows=rows).calls == calls - stop
    else:
        run(broken, rows=rows)
    same(open_samples(whole), open_samples(broken))


def test_more_of_everything_keeps_what_is_there(tmp_path):
    run(tmp_path / "grown", n=3, m=2)
    first = open_samples(tmp_path / "grown")
    run(tmp_path / "grown", n=3, m=5)
    run(tmp_path / "grown", n=6, m=5)
    run(tmp_path / "once", n=6, m=5, rows=100)
    grown = open_samples(tmp_path / "grown")
    same(grown, open_samples(tmp_path / "once"))
    same(grown.first(3, 2), first)
    assert run(tmp_path / "grown", n=4, m=3).calls == 0


def test_responses_differ_by_prompt_draw_and_seed(tmp_path):
    keys = {key(s, i, j) for s in range(5) for i in range(20) for j in range(20)}
    assert len(keys) == 5 * 20 * 20
    assert all(0 <= each < 2**63 for each in keys)
    run(tmp_path / "a", seed=0)
    run(tmp_path / "b", seed=1)
    a, b = (open_samples(tmp_path / name).rewards for name in "ab")
    assert (a != b).mean() > 0.5


def test_progress_is_told(tmp_path):
    told = []
    with Store(tmp_path, SETTINGS) as store:
        wanted = store.record(prompts(3))
        pieces = plan(store, 3, 4, 4)
        sample(
            store,
            pieces,
            wanted,
            Formula(),
            policy(),
            decode,
            DIGITS,
            0,
            lambda *it: told.append(it),
        )
    assert told == [(3, 15), (7, 15), (11, 15), (15, 15)]


def broken(queries, texts, labels):
    if "l1" in labels:
        raise KeyError("no such label")
    return digits(queries, texts, labels)


def test_a_reward_function_that_fails_costs_no_sampling(tmp_path):
    grader = Grader(broken, "broken.py", "b1")
    with pytest.raises(RewardFailed, match=r"broken.py: KeyError: 'no such label'\nfor the prompt"):
        run(tmp_path, grader=grader)
    mended = Grader(digits, "mended.py", "b2")
    with Store(tmp_path, SETTINGS) as store:
        there = store.record(prompts(5))
        assert grade_anew(store, there, decode, mended, lambda *_: None) == 4  # greedy ones
        assert grade_anew(store, there, decode, mended, lambda *_: None) == 0
    again = run(tmp_path, grader=mended)
    assert again.calls == run(tmp_path / "new").calls - 1
    same(open_samples(tmp_path), open_samples(tmp_path / "new"))


def test_another_reward_function_grades_anew(tmp_path):
    run(tmp_path)
    halved = Grader(lambda *lists: [each / 2 for each in digits(*lists)["rewards"]], "h.py", "h")
    before = open_samples(tmp_path)
    with Store(tmp_path, SETTINGS) as store:
        count = grade_anew(store, store.record(prompts(2)), decode, halved, lambda *_: None)
    after = open_samples(tmp_path)
    assert count == 5 * 6 + 5
    assert after.rewards == pytest.approx(before.rewards / 2)
    assert after.greedy_rewards == pytest.approx(before.greedy_rewards / 2)


def test_labels_bear_their_data_source(tmp_path):
    seen = []

    def by_source(queries, texts, labels):
        seen.extend((str(label), label.datasource) for label in labels)
        return digits(queries, texts, labels)

    run(tmp_path, n=2, m=1, grader=Grader(by_source, "s.py", "s"))
    assert set(seen) == {("l0", "g0"), ("l1", "g1")}
