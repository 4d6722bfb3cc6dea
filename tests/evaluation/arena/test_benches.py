from __future__ import annotations

import pytest

from openrlhf_js.evaluation.arena.benches import BENCHES, baseline_of, bench_of


def test_the_official_ones() -> None:
    v1, v2 = BENCHES["arena-hard-v0.1"], bench_of("arena-hard-v2.0")
    assert {each.name: each.baseline for each in v2.categories.values()} == {
        "hard_prompt": "o3-mini-2025-01-31",
        "creative_writing": "gemini-2.0-flash-001",
        "coding": "o3-mini-2025-01-31",
        "math": "o3-mini-2025-01-31",
    }
    assert [each.questions for each in v2.categories.values()] == [500, 250, 0, 0]
    assert v1.category("arena-hard-v0.1").baseline == "gpt-4-0314"
    assert (v1.official_ci, v2.official_ci) == ("v0.1", "v2.0")
    assert baseline_of("creative_writing") == "gemini-2.0-flash-001"
    assert baseline_of("poems") == ""


def test_other_baselines() -> None:
    every = bench_of("arena-hard-v2.0", "b")
    assert {each.baseline for each in every.categories.values()} == {"b"}
    one = bench_of("arena-hard-v2.0", {"creative_writing": "b"})
    assert one.category("creative_writing").baseline == "b"
    assert one.category("creative_writing").official_baseline == "gemini-2.0-flash-001"
    assert one.category("hard_prompt").baseline == "o3-mini-2025-01-31"
    assert bench_of("arena-hard-v2.0").category("hard_prompt").baseline == "o3-mini-2025-01-31"
    both = bench_of("arena-hard-v2.0", {"creative_writing": "b", "*": "c"})
    assert [each.baseline for each in both.categories.values()] == ["c", "b", "c", "c"]


def test_a_bench_of_ones_own() -> None:
    own = bench_of("poems", "b")
    assert own.category("anything").baseline == "b"
    assert own.judges == () and own.weight == 3
    assert bench_of("poems", {"*": "b"}) == own
    assert bench_of("poems", {"rhyme": "b"}).category("rhyme").baseline == "b"


@pytest.mark.parametrize(
    ("name", "baselines", "told"),
    [
        ("poems", "", r"'poems' is none of arena-hard-v0\.1, arena-hard-v2\.0: .* \(--baseline"),
        ("arena-hard-v2.0", {"poems": "b"}, "a baseline is given for poems, but"),
    ],
)
def test_what_cannot_be(name: str, baselines: str | dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bench_of(name, baselines)


def test_a_category_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="has no category 'poems'; it has hard_prompt, "):
        bench_of("arena-hard-v2.0").category("poems")
