"""Results of pass@k as tables and sentences, and a comparison as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.pages.text import LONGEST_NAME, short_names, with_interval
from paired_eval.passk.summary import Results, is_recorded, items_with, responses_per_item

TRUNCATED_WARNING = 5.0  # per cent
METRICS = {"mean": "pass@1", "majority": "majority vote"}  # others are their own names
STATUSES = ("correct", "wrong", "no_answer", "malformed", "timeout", "error", "truncated")
TaskResults = Mapping[str, Any]  # of one benchmark: items, samples, settings and rows
Table = list[dict[str, Any]]


class PasskRun(NamedTuple):
    """The results of one model, and the folder that holds its samples."""

    label: str  # "A", "B", ... for several models, "" for one
    folder: Path
    results: Results

    def samples_file(self, task: str) -> Path:
        """The store of the samples of a task."""
        return self.folder / "samples" / f"{task}.jsonl"


def scores(results: Mapping[str, Any]) -> Table:
    """One row for each benchmark: its main figures."""
    return [
        {
            "benchmark": name,
            "items": f"{task['items']:,}",
            "k": responses_per_item(task),
            "mean@k %": _share(task, "mean_at_k"),
            "pass@k %": _pass(task, task["samples"]),
            "majority@k %": _share(task, "majority_at_k"),
            "tokens": _number(task, "tokens"),
        }
        for name, task in results["tasks"].items()
    ]


def passes(results: Mapping[str, Any]) -> Table:
    """pass@j of each benchmark, a column for each j."""
    tasks = results["tasks"]
    counts = {row["j"] for task in tasks.values() for row in task["rows"] if row["j"]}
    table = []
    for name, task in tasks.items():
        row = {"pass@j %, j =": name}
        for j in sorted(counts):
            row[str(j)] = _pass(task, j)
        table.append(row)
    return table


def details(results: Mapping[str, Any]) -> Table:
    """Statuses, truncation, refusals if any, and lengths of correct and other responses."""
    statuses = list(STATUSES)
    if any(_refused(task) for task in results["tasks"].values()):
        statuses.append("refused")
    table = []
    for name, task in results["tasks"].items():
        row = {"responses %": name}
        for status in statuses:
            row[status] = _number(task, status, scale=100)
        row["tokens if correct"] = _number(task, "tokens_correct")
        table.append(row)
    return table


def differences(comparison: Mapping[str, Any], label: str) -> Table:
    """One row for each benchmark of a comparison with A, and one for their mean."""
    metric = _metric(comparison)
    return [
        {
            "benchmark": row["task"],
            "items": f"{row['items']:,}",
            "model": label,
            f"{metric}, %": f"{100 * row['b']:.1f}",
            f"{metric} of A, %": f"{100 * row['a']:.1f}",
            "difference to A, points": _difference(row),
            "p": "-" if _without_test(row) else f"{row['p_value']:.2g}",
            "detectable, points": _plain(row["detectable"], scale=100),
        }
        for row in comparison["rows"]
    ]


def conclusion(comparison: Mapping[str, Any], label: str) -> str:
    """One sentence: which of the two models is better, on average over several benchmarks."""
    row = comparison["rows"][-1]
    benchmarks = len(comparison["rows"]) - 1
    average = f" on average over {benchmarks} benchmarks" if benchmarks else f" on {row['task']}"
    other = f"{label} ({comparison['b']})"
    first = f"A ({comparison['a']})"
    if _without_test(row) or row.get("p_holm", row["p_value"]) >= 0.05:
        verdict = f"it is undecided whether {other} or {first} is better"
    else:
        better = "better" if row["value"] > 0 else "worse"
        verdict = f"{other} is {better} than {first}"
    return f"By {_metric(comparison)}, {verdict}{average}: {_difference(row, ' points')}."


def _metric(comparison: Mapping[str, Any]) -> str:
    """The compared metric, by the field's name for it."""
    return METRICS.get(comparison["metric"], comparison["metric"])


def _without_test(row: Mapping[str, Any]) -> bool:
    """Whether no test is possible: one item only, or the same result on every item."""
    return row["low"] is None or row["low"] == row["high"] == 0


def _difference(row: Mapping[str, Any], unit: str = "") -> str:
    """A difference in points with its interval, or why it has none."""
    value = f"{100 * row['value']:+.1f}{unit}"
    ends = _ends(row)
    if ends is None:
        same = "the same difference" if row["value"] else "equal"
        why = "one item" if row["low"] is None else f"{same} on every item"
        return f"{value} (no interval: {why})"
    low, high = ends
    return f"{value} ({low:.1f} to {high:.1f})"


def _ends(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of a difference of shares in points, within -100 to 100."""
    if row["low"] is None or row["low"] == row["high"]:
        return None
    return max(-100.0, 100 * row["low"]), min(100.0, 100 * row["high"])


def forest(comparisons: Sequence[tuple[str, Mapping[str, Any]]]) -> Forest:
    """The differences of labelled models from the first one, by benchmark."""
    first = comparisons[0][1]
    metric = _metric(first)
    models = [first["a"], *(comparison["b"] for _, comparison in comparisons)]
    short = short_names(models, LONGEST_NAME - len(" (A)"))
    names = {label: f"{short[comparison['b']]} ({label})" for label, comparison in comparisons}
    rows = []
    for label, comparison in comparisons:
        for row in comparison["rows"]:
            low, high = _ends(row) or (None, None)
            forest_row = ForestRow(
                heading=row["task"],
                name=names[label],
                value=100 * row["value"],
                low=low,
                high=high,
            )
            rows.append(forest_row)
    return Forest(
        title=f"Difference of {metric} from {short[first['a']]} (A)",
        note="paired by item, 95 % intervals",
        xlabel=f"points of {metric} over A",
        rows=rows,
        series=list(names.values()),
        form="+.1f",
        reference=0,
    )


def notes(results: Mapping[str, Any]) -> list[str]:
    """What a reader should know about the figures."""
    lines = ["Intervals are 95 %, by item."]
    for name, task in results["tasks"].items():
        for line in (
            _refused(task),
            _uneven(task),
            _fewer_items(task),
            _truncated(task),
            _ungraded(task),
        ):
            if line:
                lines.append(f"{name}: {line}")
    return lines


def _refused(task: TaskResults) -> str:
    """How many responses were refused, and what the score is if they count as not correct."""
    answered = task["per_item"]["answered"]
    samples = task["items"] * task["samples"]
    refused = samples - sum(answered)
    if not refused or is_recorded(task):
        return ""
    score = 100 * sum(task["per_item"]["correct"]) / samples
    return (
        f"{refused:,} of {samples:,} responses were refused and are in no figure "
        f"({answered.count(0)} items have no other); if they count as not correct, mean@k is "
        f"{score:.1f} %. --retry_failed asks them again."
    )


def _uneven(task: TaskResults) -> str:
    """How uneven numbers of responses affect the figures."""
    responses = responses_per_item(task)
    if responses == str(task["samples"]):
        return ""
    return (
        f"items have {responses} responses. mean@k gives every item the same weight; majority@k "
        "is of as many votes as an item has."
    )


def _fewer_items(task: TaskResults) -> str:
    """Each pass@j with fewer items than pass@1, since some items have fewer than j responses."""
    items = items_with(task, 1)
    counts = {row["j"]: items_with(task, row["j"]) for row in task["rows"] if row["j"]}
    fewer = [f"pass@{j} of {count:,}" for j, count in counts.items() if count < items]
    if not fewer:
        return ""
    return (
        f"some items have too few responses: {', '.join(fewer)} items, the others of {items:,}. "
        "Do not compare these figures with each other."
    )


def _truncated(task: TaskResults) -> str:
    truncated = _per_cent(task, "truncated")
    if truncated < TRUNCATED_WARNING:
        return ""
    return (
        f"{truncated:.1f} % were cut off at {task['settings']['max_new_tokens']:,} tokens; a "
        "larger --max_new_tokens may raise the score."
    )


def _ungraded(task: TaskResults) -> str:
    ungraded = _per_cent(task, "timeout") + _per_cent(task, "error")
    if not ungraded:
        return ""
    return f"{ungraded:.2f} % could not be graded and count as not correct; run it again to retry."


def value_of(task: TaskResults, quantity: str, j: int | None = None) -> Mapping[str, Any]:
    """One figure of a benchmark with its interval; None where there is none."""
    for row in task["rows"]:
        if row["quantity"] == quantity and row["j"] == j:
            return row
    return {"value": None, "low": None, "high": None}


def _per_cent(task: TaskResults, quantity: str) -> float:
    return 100 * (value_of(task, quantity)["value"] or 0)


def _pass(task: TaskResults, j: int) -> str:
    """pass@j, with its number of items where that is not the benchmark's."""
    count = items_with(task, j)
    cell = _share(task, "pass_at", j)
    return cell if count in (0, items_with(task, 1)) else f"{cell} of {count:,} items"


def _share(task: TaskResults, quantity: str, j: int | None = None) -> str:
    return _interval(value_of(task, quantity, j))


def _interval(row: Mapping[str, Any]) -> str:
    return with_interval(row["value"], row["low"], row["high"], ".1f", 100)


def _number(task: TaskResults, quantity: str, scale: float = 1) -> str:
    return _plain(value_of(task, quantity)["value"], scale)


def _plain(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{scale * value:.1f}"
