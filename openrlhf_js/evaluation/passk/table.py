"""Results as words: rows of tables, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Estimate = Mapping[str, float | None]
Rows = list[tuple[str, ...]]
WHOLE = 100  # tokens, from which on tenths of one say nothing

Table = tuple[tuple[str, ...], Rows]  # names of the columns, and rows


def share(of: Estimate) -> str:
    """A share in per cent with its interval, such as `42.1 (38.0 to 46.3)`."""
    return f"{_percent(of['value'])} ({_percent(of['low'])} to {_percent(of['high'])})"


def scores(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark."""
    columns = (
        *("benchmark", "items", "k", "mean@k %", "pass@k %", "majority@k %"),
        *("truncated %", "no answer %", "tokens", "tokens/s"),
    )
    rows: Rows = []
    for name, task in found["tasks"].items():
        k, length, speed = task["samples"], task["tokens"]["all"], task["tokens_per_second"]
        rows.append(
            (
                name,
                _items(task),
                str(k),
                share(task["mean_at_k"]),
                share(task["pass_at"][str(k)]),
                share(task["majority_at_k"]),
                _percent(task["truncated"]["value"]),
                _percent(task["statuses"]["no_answer"]["value"]),
                _length(length),
                "-" if speed is None else f"{speed:,.0f}",
            )
        )
    return columns, rows


def passes(found: Mapping[str, Any]) -> Table:
    """pass@j of each benchmark, one column for each j."""
    every = sorted({int(j) for task in found["tasks"].values() for j in task["pass_at"]})
    rows = [
        (name, *(share(at) if (at := task["pass_at"].get(str(j))) else "-" for j in every))
        for name, task in found["tasks"].items()
    ]
    return ("pass@j %, j =", *map(str, every)), rows


def details(found: Mapping[str, Any]) -> Table:
    """Statuses, and lengths of right and other responses."""
    statuses = [*next(iter(found["tasks"].values()))["statuses"]]
    columns = ("responses %", *(each.replace("_", " ") for each in statuses))
    rows = []
    for name, task in found["tasks"].items():
        rates = (_percent(task["statuses"][each]["value"]) for each in statuses)
        lengths = (_length(task["tokens"][kind]) for kind in ("correct", "not_correct"))
        rows.append((name, *rates, *lengths))
    return (*columns, "tokens if correct", "tokens if not"), rows


def settings(found: Mapping[str, Any]) -> Table:
    """How each benchmark was sampled."""
    tasks = found["tasks"]
    names = [name for name in next(iter(tasks.values()))["settings"] if name != "versions"]
    rows = [
        (name.replace("_", " "), *(str(task["settings"].get(name, "-")) for task in tasks.values()))
        for name in names
    ]
    return ("sampled with", *tasks), rows


def differences(found: Mapping[str, Any]) -> Table:
    """One row for each benchmark of a comparison, and their mean."""
    columns = (
        *("benchmark", "items", "A %", "B %", "B - A, points"),
        *("p", "detectable, points"),
    )
    rows: Rows = []
    for row in found["rows"]:
        seen = row["detectable"]
        rows.append(
            (
                row["task"],
                f"{row['items']:,}",
                _percent(row["a"]),
                _percent(row["b"]),
                share(row["difference"]),
                f"{row['p_value']:.2g}",
                "-" if seen is None else f"{100 * seen:.1f}",
            )
        )
    return columns, rows


def markdown(title: str, tables: Iterable[Table], sentences: Sequence[str] = ()) -> str:
    """A page of tables and sentences."""
    parts = [f"# {_escaped(title)}"]
    for columns, rows in tables:
        lines = [_line(columns), _line(["---"] + ["---:"] * (len(columns) - 1))]
        parts.append("\n".join([*lines, *map(_line, rows)]))
    if sentences:
        parts.append("\n".join(f"- {_escaped(each)}" for each in sentences))
    return "\n\n".join(parts) + "\n"


def notes(found: Mapping[str, Any]) -> list[str]:
    """What a reader should know of the figures, in sentences."""
    said = ["Intervals are 95 %, by item."]
    for name, task in found["tasks"].items():
        if gone := len(task.get("left_out", ())):
            said.append(
                f"{name}: {gone:,} of {task['items'] + gone:,} items are left out of every figure, "
                "since the server refuses them."
            )
        most = task["truncated"]["value"]
        if most >= 0.05:
            limit = task["settings"]["max_new_tokens"]
            said.append(
                f"{name}: {_percent(most)} % of the responses were cut off at {limit:,} tokens; a "
                "larger --max_new_tokens may raise the score."
            )
        ungraded = sum(task["statuses"][each]["value"] for each in ("timeout", "error"))
        if ungraded > 0:
            said.append(
                f"{name}: {100 * ungraded:.2f} % of the responses could not be graded, and count "
                "as not correct; the same command tries again."
            )
        if task["distinct_items"] < task["items"]:
            again = task["items"] - task["distinct_items"]
            said.append(f"{name}: {again} items repeat another one, and count with it.")
    return said


def _items(task: Mapping[str, Any]) -> str:
    there, gone = task["items"], len(task.get("left_out", ()))
    return f"{there:,} of {there + gone:,}" if gone else f"{there:,}"


def _length(of: Estimate | None) -> str:
    value = None if of is None else of["value"]
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    printed = "".join(each if each.isprintable() else " " for each in text)
    return printed.replace("|", "\\|").replace("<", "&lt;")
