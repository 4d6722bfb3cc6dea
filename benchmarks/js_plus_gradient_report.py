"""What js_plus_gradient.py has measured, as rows with intervals over seeds, tables and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from pool_distances import BEST, COMPARED, HISTORY, reductions

from openrlhf_js.stats import Estimate, clustered_mean

RULES = ("js", "js_plus", HISTORY)
PAIRS = (("js_plus", "rloo"), ("js_plus", "js"), (HISTORY, "js_plus"), (HISTORY, "js"))


class Policy(NamedTuple):
    """What `pool_distances.measure` found at one policy of one seed."""

    task: str
    step: int
    seed: int
    mean_reward: float
    seconds: float
    cells: list[dict[str, Any]]


class Row(NamedTuple):
    """Batches of one size at the policies of all seeds after the same step.

    Attributes:
        task, step, n, m: which.
        mean_reward: over the pools of all seeds.
        distance: by rule, the reduction of the squared distance against rloo, in percent.
        error: the same of the baseline's squared error.
        gaps: by pair, how many points of rloo's squared distance the first is below the second.
        best: the mean of the constant coefficients that would have been best.
        best_reduction: what it would have reached, in percent, on the batches that chose it.
        noise: n times rloo's squared distance, a mean over seeds; the same for every n but for
            chance.
    """

    task: str
    step: int
    n: int
    m: int
    mean_reward: float
    distance: dict[str, Estimate]
    error: dict[str, Estimate]
    gaps: dict[tuple[str, str], Estimate]
    best: float
    best_reduction: float
    noise: float

    def plain(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            **self._asdict(),
            "distance": {name: each.plain() for name, each in self.distance.items()},
            "error": {name: each.plain() for name, each in self.error.items()},
            "gaps": {f"{a} below {b}": each.plain() for (a, b), each in self.gaps.items()},
        }

    @property
    def has_history(self) -> bool:
        """Whether there were steps before; without any, HISTORY is js_plus."""
        return self.step > 0

    @property
    def place(self) -> str:
        """Such as `sort, step 25, n = 16, m = 2`."""
        return f"{self.task}, step {self.step}, n = {self.n}, m = {self.m}"


def summarise(policies: Sequence[Policy]) -> list[Row]:
    """One row for each task, step and size of batches; every seed counts alike.

    Args:
        policies: of all seeds, each with the same sizes of batches.
    """
    rows = []
    for task, step in dict.fromkeys((each.task, each.step) for each in policies):
        own = [each for each in policies if (each.task, each.step) == (task, step)]
        mean_reward = fmean(each.mean_reward for each in own)
        for cells in zip(*(each.cells for each in own), strict=True):
            rows.append(_row(task, step, mean_reward, cells))
    return rows


def _row(task: str, step: int, mean_reward: float, cells: Sequence[dict[str, Any]]) -> Row:
    def reduced(field: str, name: str) -> Any:
        return reductions(*([cell[field][each] for cell in cells] for each in (name, "rloo")))

    distance = {name: reduced("distances", name) for name in (*COMPARED, BEST)}
    return Row(
        task,
        step,
        cells[0]["n"],
        cells[0]["m"],
        mean_reward,
        {name: clustered_mean(distance[name]) for name in RULES},
        {name: clustered_mean(reduced("errors", name)) for name in RULES},
        {(a, b): clustered_mean(distance[a] - distance[b]) for a, b in PAIRS},
        fmean(cell["best"] for cell in cells),
        float(distance[BEST].mean()),
        cells[0]["n"] * fmean(cell["distances"]["rloo"] for cell in cells),
    )


def verdicts(rows: Sequence[Row]) -> list[str]:
    """For each pair, in how many rows the first is nearer to the truth, and where it is farther."""
    found = []
    for pair in PAIRS:
        own = [row for row in rows if row.has_history or HISTORY not in pair]
        if not own:
            continue
        better = [row for row in own if row.gaps[pair].low > 0]
        worse = [row for row in own if row.gaps[pair].high < 0]
        mean = fmean(row.gaps[pair].value for row in own)
        sentence = (
            f"{pair[0]} against {pair[1]}: the gradient's variance is lower in {len(better)} of "
            f"{len(own)} settings, higher in {len(worse)}, and in "
            f"{len(own) - len(better) - len(worse)} the seeds cannot tell; on average lower "
            f"by {mean:.1f} points of rloo's."
        )
        if worse:
            places = "; ".join(f"{row.place} ({shown(row.gaps[pair])})" for row in worse)
            sentence += f" Higher: {places}."
        found.append(sentence)
    return found


def markdown(rows: Sequence[Row]) -> str:
    """Tables and verdicts for the docs."""
    lines = [
        *(f"- {sentence}" for sentence in verdicts(rows)),
        "",
        f"Intervals of 95 %, each by itself: of {len(rows)} that hold nothing but noise, about "
        f"{0.05 * len(rows):.0f} would exclude zero. Above zero is lower than the other's; an "
        "interval that holds zero decides nothing. The six sizes of batches share a pool, and the "
        "steps of a seed a training.",
        "",
        "How much lower than rloo's, in percent: the squared distance of a batch's gradient to "
        "the true one. Last, the mean of the constant lambdas that were the best of each seed in "
        "hindsight, with what they save on the very batches that chose them.",
        "",
        f"| task | step (reward) | n | m | {' | '.join(RULES)} | js_plus below js, points | "
        "best constant lambda |",
        f"|---|---|---:|---:|{'---:|' * (len(RULES) + 2)}",
    ]
    for row in rows:
        cells = [
            *_by_rule(row, row.distance),
            shown(row.gaps["js_plus", "js"]),
            f"{row.best_reduction:.1f} with {row.best:.2f}",
        ]
        lines.append(f"{_head(row)} {' | '.join(cells)} |")
    lines += [
        "",
        "The same of the squared error of the baseline to the prompts' values.",
        "",
        f"| task | step (reward) | n | m | {' | '.join(RULES)} |",
        f"|---|---|---:|---:|{'---:|' * len(RULES)}",
    ]
    for row in rows:
        lines.append(f"{_head(row)} {' | '.join(_by_rule(row, row.error))} |")
    sizes = sorted({row.n for row in rows})
    lines += [
        "",
        "How exact this is: n times rloo's squared distance, a mean over seeds, does not depend on "
        "n but for chance.",
        "",
        f"| task | step | m | {' | '.join(f'n = {n}' for n in sizes)} |",
        f"|---|---|---:|{'---:|' * len(sizes)}",
    ]
    noise = {(row.task, row.step, row.m, row.n): row.noise for row in rows}
    for task, step, m in dict.fromkeys(place[:3] for place in noise):
        cells = [f"{noise[task, step, m, n]:.4g}" for n in sizes]
        lines.append(f"| {task} | {step} | {m} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_rule(row: Row, found: Mapping[str, Estimate]) -> list[str]:
    """A cell for each rule; HISTORY's is empty where there is none yet."""
    return [
        shown(found[name]) if row.has_history or name != HISTORY else "none yet" for name in RULES
    ]


def _head(row: Row) -> str:
    return f"| {row.task} | {row.step} ({row.mean_reward:.2f}) | {row.n} | {row.m} |"


def shown(of: Estimate) -> str:
    """Such as 12.3 (10.1 to 14.5)."""
    return f"{of.value:.1f} ({of.low:.1f} to {of.high:.1f})"
