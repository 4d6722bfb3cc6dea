"""The benchmarks: their categories, what each is compared with, and who judges officially."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

# sha256 of the system message that the official repository gives its judge, as UTF-8 without
# anything around it (`utils/judge_utils.py`; the same text is in v0.1's `judge_config.yaml`).
HARD_SYSTEM = "03f68010febd7a6405102ef882b4dd5a9700c56b2e1ff286d3b38f5d3a929bbf"
CREATIVE_SYSTEM = "171489efbca7f19fb520e1b3c23783c76af7c723e770fe897a55f391684aa358"
# sha256 of `prompt_template` as YAML gives it, with {QUESTION}, {ANSWER_A} and {ANSWER_B}.
TEMPLATE = "80fb20ab2eaae6d38a19f707f3f051f0456bcb977b0086bebe15f9bd23ce45f8"

MUCH_WEIGHT = 3  # rows that a verdict with ">>" counts as, in all official benches
EVERY = "*"  # the category that stands for all that are not named


class Category(NamedTuple):
    """Questions that have one baseline and one judge prompt.

    Attributes:
        name: as in the questions' file.
        baseline: the model whose answers all others are compared with.
        questions: how many the official set has; 0 where it says nothing.
        system_sha256: of the official judge's system message; "" where there is none.
        official_baseline: the baseline that the official protocol has; "" where there is none.
    """

    name: str
    baseline: str
    questions: int = 0
    system_sha256: str = ""
    official_baseline: str = ""


class Judge(NamedTuple):
    """A judge with the parameters of the official settings."""

    name: str
    temperature: float
    max_tokens: int


class Bench(NamedTuple):
    """A set of questions and how it is judged.

    Attributes:
        name: of its folder, too.
        categories: by name. Empty for a bench of one's own, which takes any.
        official_ci: "v0.1": 100 bootstraps, percentiles 2.5 and 97.5. "v2.0": 5 and 95, and the
            score is the bootstraps' mean.
        judges: the official ones; none for a bench of one's own.
        baseline: for categories that are not listed; "" where all are.
        weight: the rows that a verdict with ">>" counts as.
    """

    name: str
    categories: Mapping[str, Category]
    official_ci: Literal["v0.1", "v2.0"] = "v2.0"
    judges: tuple[Judge, ...] = ()
    baseline: str = ""
    weight: int = MUCH_WEIGHT

    def category(self, name: str) -> Category:
        """The category of a question.

        Raises:
            ValueError: the bench has no such category.
        """
        if name in self.categories:
            return self.categories[name]
        if self.baseline:
            return Category(name, self.baseline)
        raise ValueError(
            f"{self.name} has no category {name!r}; it has {', '.join(self.categories)}. For "
            "questions of your own, put them into a folder of another name and give a baseline"
        )


def _category(name: str, baseline: str, questions: int, system_sha256: str) -> Category:
    return Category(name, baseline, questions, system_sha256, baseline)


_V2 = (
    _category("hard_prompt", "o3-mini-2025-01-31", 500, HARD_SYSTEM),
    _category("creative_writing", "gemini-2.0-flash-001", 250, CREATIVE_SYSTEM),
    # in the official settings, without questions of their own so far
    _category("coding", "o3-mini-2025-01-31", 0, HARD_SYSTEM),
    _category("math", "o3-mini-2025-01-31", 0, HARD_SYSTEM),
)

BENCHES: dict[str, Bench] = {
    "arena-hard-v0.1": Bench(
        "arena-hard-v0.1",
        {"arena-hard-v0.1": _category("arena-hard-v0.1", "gpt-4-0314", 500, HARD_SYSTEM)},
        "v0.1",
        (Judge("gpt-4-1106-preview", 0.0, 4096),),
    ),
    "arena-hard-v2.0": Bench(
        "arena-hard-v2.0",
        {each.name: each for each in _V2},
        "v2.0",
        (Judge("gpt-4.1", 0.0, 16000), Judge("gemini-2.5", 1.0, 32000)),
    ),
}


def bench_of(name: str, baselines: Mapping[str, str] | str = "") -> Bench:
    """The bench of a name: an official one, or one's own.

    Args:
        name: of the folder with the questions.
        baselines: other baselines than the bench's: one for all categories, or by category, with
            `EVERY` for the rest. Some are needed where the bench is not an official one.

    Raises:
        ValueError: no such bench and no baseline, or a baseline of a category that is not there.
    """
    named = {EVERY: baselines} if isinstance(baselines, str) else dict(baselines)
    every = named.pop(EVERY, "")
    bench = BENCHES.get(name)
    if bench is None:
        own = {category: Category(category, model) for category, model in named.items()}
        if not own and not every:
            raise ValueError(
                f"{name!r} is none of {', '.join(BENCHES)}: for a bench of your own, say which "
                "model its answers are compared with (--baseline MODEL)"
            )
        return Bench(name, own, baseline=every)
    strange = set(named) - set(bench.categories)
    if strange:
        raise ValueError(
            f"a baseline is given for {', '.join(sorted(strange))}, but {name} has the categories "
            f"{', '.join(bench.categories)}"
        )
    categories = {
        key: category._replace(baseline=named.get(key) or every or category.baseline)
        for key, category in bench.categories.items()
    }
    return bench._replace(categories=categories)


def baseline_of(category: str) -> str:
    """The official baseline of a category, whatever bench it is of; "" where there is none."""
    for bench in BENCHES.values():
        if category in bench.categories:
            return bench.categories[category].baseline
    return ""
