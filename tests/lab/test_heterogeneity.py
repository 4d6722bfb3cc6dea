"""Groups of prompts and their mix."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.lab.gradient import measure
from openrlhf_js.lab.heterogeneity import MIX, compare, joined, moments, select, sets
from openrlhf_js.lab.policy_gradient import ScoreSum
from openrlhf_js.lab.small_batches import Plan
from openrlhf_js.lab.sweep import GRID, SWEPT

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import pool, small_model


def test_every_group_gives_as_many_as_the_smallest_and_the_mix_equal_shares():
    found = sets(["b", "a", "b", "a", "b", "a", "a", "b", "b"])
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "a": [1, 3, 5, 6],
        "b": [0, 2, 4, 7],
        "mix": [1, 3, 0, 2],
    }


@given(st.lists(st.sampled_from("abc"), min_size=9, max_size=40))
def test_sets_hold_their_own_group_and_the_mix_all(groups):
    counts = {name: groups.count(name) for name in set(groups)}
    if len(counts) < 2 or min(counts.values()) < len(counts):
        with pytest.raises(ValueError):
            sets(groups)
        return
    found = sets(groups)
    assert list(found) == [*sorted(counts), MIX]
    for name, rows in found.items():
        of = [groups[i] for i in rows]
        if name == MIX:
            assert len({of.count(each) for each in counts}) == 1 and len(set(rows)) == len(rows)
            assert min(counts.values()) - len(counts) < len(rows) <= min(counts.values())
        else:
            assert of == [name] * min(counts.values())


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 4, "one group, .*two or more groups"),
        (["a", "b", "b"], "'a' has 1 prompts, too few for a mix of 2 groups; give 2"),
        (["a", "mix"], "rename it"),
    ],
)
def test_groups_that_cannot_be_mixed(groups, message):
    with pytest.raises(ValueError, match=message):
        sets(groups)


def test_the_moments_of_a_pool():
    rewards = np.array([[1.0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    found = moments(rewards, 3)
    sigma2 = (1 / 3 + 0 + 1 / 4) / 3
    means = [0.5, 1.0, 0.25]
    assert found.value.value == pytest.approx(np.mean(means))
    assert found.v == pytest.approx(sigma2 / 2)
    assert found.s == pytest.approx(np.var(means, ddof=1) - sigma2 / 4)
    assert moments(np.array([[1.0, 0], [1, 0]]), 2).s == 0


def test_several_files_are_groups():
    one, other = pool(prompts=2), pool(prompts=3, seed=1)
    found = joined({"easy": one, "hard": other})
    assert found.groups == ["easy"] * 2 + ["hard"] * 3
    assert found.rewards.tolist() == [*one.rewards.tolist(), *other.rewards.tolist()]
    assert found.prompt_tokens[2:] == other.prompt_tokens
    assert found.settings["temperature"] == 1 and set(found.settings["groups"]) == {"easy", "hard"}
    assert found.greedy_rewards is not None and len(found.greedy_rewards) == 5
    half = joined({"easy": one, "hard": other._replace(greedy_rewards=None)})
    assert half.greedy_rewards is None


def test_prompts_that_are_selected_keep_all_they_have():
    samples = pool()
    found = select(samples, np.array([4, 1]))
    assert found.prompts == ["prompt 4", "prompt 1"]
    assert found.prompt_tokens == [samples.prompt_tokens[4], samples.prompt_tokens[1]]
    assert all(
        a is b for a, b in zip(found.response_tokens[1], samples.response_tokens[1], strict=True)
    )
    assert np.array_equal(found.rewards, samples.rewards[[4, 1]])
    assert found.greedy_rewards.tolist() == samples.greedy_rewards[[4, 1]].tolist()


def test_each_set_is_measured_by_itself(tmp_path):
    samples = pool(prompts=8, responses=30)._replace(groups=["easy", "hard"] * 4)
    plan = Plan(batches=3, prompts=3, responses=(3,))
    scores, asked = ScoreSum(small_model()), {}

    def measured(own, name):
        asked[name] = own
        return measure(scores, own, plan, SWEPT, tmp_path)

    summary, arrays = compare(samples, plan, measured)
    assert {name: own.groups for name, own in asked.items()} == {
        "easy": ["easy"] * 4,
        "hard": ["hard"] * 4,
        "mix": ["easy"] * 2 + ["hard"] * 2,
    }
    assert [(row["prompts"], row["estimator"]) for row in summary["rows"]] == [
        (name, each) for name in ("easy", "hard", "mix") for each in ("js", "js_plus")
    ]
    hard = summary["rows"][2]
    assert hard["value"] == pytest.approx(samples.rewards[1::2].mean())
    alone = measure(scores, asked["hard"], plan, SWEPT, tmp_path / "alone")
    js, rloo = (alone.distances[SWEPT.index(name), 0].mean() for name in ("js", "rloo"))
    assert hard["reduction_percent"] == pytest.approx(100 * (1 - js / rloo), rel=1e-3)
    assert arrays["sets"].tolist() == ["easy", "hard", "mix"]
    assert arrays["reduction_percent"].shape == (3, len(GRID))
    assert summary["finding"].startswith("At m = 3, js lowers the squared distance of rloo's")
