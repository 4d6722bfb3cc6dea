"""Results of pass@k as tables, sentences and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openrlhf_js.report import style
from openrlhf_js.report.plot import Panel, plot

TRUNCATED_WARNING = 0.05
Table = list[dict[str, Any]]


def scores(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark: its main figures."""
    return [
        {
            "benchmark": name,
            "items": f"{task['items']:,}",
            "k": str(task["samples"]),
            "mean@k %": _share(task, "mean_at_k"),
            "pass@k %": _share(task, "pass_at", task["samples"]),
            "majority@k %": _share(task, "majority_at_k"),
            "tokens": _number(task, "tokens"),
        }
        for name, task in found["tasks"].items()
    ]


def passes(found: Mapping[str, Any]) -> Table:
    """pass@j of each benchmark, a column for each j."""
    every = sorted({row["j"] for task in found["tasks"].values() for row in task["rows"]} - {None})
    return [
        {"pass@j %, j =": name, **{str(j): _share(task, "pass_at", j) for j in every}}
        for name, task in found["tasks"].items()
    ]


def details(found: Mapping[str, Any]) -> Table:
    """Statuses, truncation, and lengths of correct and other responses."""
    statuses = ("correct", "wrong", "no_answer", "malformed", "timeout", "error", "truncated")
    return [
        {
            "responses %": name,
            **{status: _percent(value_of(task, status)["value"]) for status in statuses},
            "tokens if correct": _number(task, "tokens_correct"),
            "tokens if not": _number(task, "tokens_not_correct"),
        }
        for name, task in found["tasks"].items()
    ]


def differences(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark of a comparison, and their mean."""
    return [
        {
            "benchmark": row["task"],
            "items": f"{row['items']:,}",
            "A %": _percent(row["a"]),
            "B %": _percent(row["b"]),
            "B - A, points": _interval(row),
            "p": f"{row['p_value']:.2g}",
            "detectable, points": _percent(row["detectable"]),
        }
        for row in found["rows"]
    ]


def notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader should know of the figures."""
    said = ["Intervals are 95 %, by item."]
    for name, task in found["tasks"].items():
        if gone := value_of(task, "refused")["value"]:
            said.append(f"{name}: {_percent(gone)} % were refused, and count as not correct.")
        truncated = value_of(task, "truncated")["value"]
        if truncated >= TRUNCATED_WARNING:
            said.append(
                f"{name}: {_percent(truncated)} % of the responses were cut off at "
                f"{task['settings']['max_new_tokens']:,} tokens; a larger --max_new_tokens may "
                "raise the score."
            )
        ungraded = sum(value_of(task, each)["value"] for each in ("timeout", "error"))
        if ungraded > 0:
            said.append(
                f"{name}: {100 * ungraded:.2f} % of the responses could not be graded and count as "
                "not correct; the same command tries again."
            )
    return said


def markdown(title: str, tables: Sequence[Table], sentences: Sequence[str]) -> str:
    """A page of tables and sentences."""
    parts = [f"# {_escaped(title)}"]
    for table in tables:
        columns = list(table[0])
        lines = [_line(columns), _line(["---"] + ["---:"] * (len(columns) - 1))]
        lines += [_line([row[column] for column in columns]) for row in table]
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {_escaped(each)}" for each in sentences))
    return "\n\n".join(parts) + "\n"


def draw(found: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path) -> Path:
    """Draws pass@j over j, a panel for each benchmark and a line for each model, as a PNG."""
    rows = [
        {**row, "benchmark": benchmark, "model": name}
        for results, name in zip(found, names, strict=True)
        for benchmark, task in results["tasks"].items()
        for row in task["rows"]
        if row["quantity"] == "pass_at"
    ]
    panels = {
        name: Panel(name, "pass@j", f"{task['items']:,} items", limits=(0, 1))
        for name, task in found[0]["tasks"].items()
    }
    figure = plot(
        rows,
        panels,
        x="j",
        xlabel="samples j (bands: 95 %, by item)",
        line="model",
        panel="benchmark",
        scale="log2",
        columns=3,
    )
    return style.save_png(figure, path)


def value_of(task: Mapping[str, Any], quantity: str, j: int | None = None) -> Mapping[str, Any]:
    """One figure of a benchmark with its interval; None where there is none."""
    found = (row for row in task["rows"] if row["quantity"] == quantity and row["j"] == j)
    return next(found, {"value": None, "low": None, "high": None})


def _share(task: Mapping[str, Any], quantity: str, j: int | None = None) -> str:
    return _interval(value_of(task, quantity, j))


def _interval(row: Mapping[str, Any]) -> str:
    return style.interval(row["value"], row["low"], row["high"], ".1f", 100)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _number(task: Mapping[str, Any], quantity: str) -> str:
    value = value_of(task, quantity)["value"]
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    printed = "".join(each if each.isprintable() else " " for each in text)
    return printed.replace("|", "\\|").replace("<", "&lt;")
