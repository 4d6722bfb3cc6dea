"""What lab_results.py has found, as the part of docs/results.md that it writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Summary = Mapping[str, Any]
RULES = ("js", "js_plus")
ORACLE = "js_fixed"
TITLE = "# Results\n"
BEGIN, END = "<!-- printed by benchmarks/lab_results.py -->", "<!-- end of what it printed -->"
PICTURES = {
    "value": "the values of the prompts",
    "mse": "squared errors of the baselines to these values",
    "gradient": "squared distances of the gradients",
    "sweep": "the same for every lambda",
    "simulate": "squared errors for made-up values",
}


def replace_part(text: str, part: str) -> str:
    """The text of docs/results.md with a new part of ours; what others wrote around it stays.

    Args:
        text: of the file; "" where there is none.
        part: of `markdown`.

    Raises:
        ValueError: the file has only one of our two marks.
    """
    ours = f"{BEGIN}\n\n{part}\n\n{END}\n"
    if (BEGIN in text) != (END in text):
        raise ValueError(f"docs/results.md needs both of {BEGIN} and {END}, or neither")
    if BEGIN not in text:
        return f"{text or TITLE}\n{ours}"
    before, _, rest = text.partition(BEGIN)
    return before + ours + rest.partition(END)[2].removeprefix("\n")


def markdown(found: Mapping[str, Summary], seconds: Mapping[str, float]) -> str:
    """Tables and pictures.

    Args:
        found: the summaries of the lab's programs, one for each of PICTURES.
        seconds: by part of the experiment.
    """
    value, precise = found["value"]["rows"][0], found["gradient"]["precise"]
    batches = found["gradient"]["batches"]
    took = ", ".join(f"{name} {_seconds(each)}" for name, each in seconds.items())
    lines = [
        "## A tiny model on one core",
        "",
        "```bash",
        ".venv/bin/python benchmarks/lab_results.py --write_docs",
        "```",
        "",
        "makes a model of 0.65M parameters, lets it imitate careless demonstrations of the task "
        f"`sort`, samples {value['prompts']} prompts x {value['responses']} responses, and "
        f"measures. It took {sum(seconds.values()) / 60:.1f} minutes ({took}).",
        "",
        f"Mean reward {value['mean_value']:.3f}, standard deviation of the prompts' values "
        f"{value['sd_of_values']:.3f}. Gradients: {batches['batches']} batches of "
        f"{batches['prompts']} prompts for each m, against a gradient of {precise['responses']:,} "
        f"other responses whose own squared error is {precise['relative_error']:.1%} of the "
        "squared norm. It is one model, one seed, and a policy that has only imitated; later ones, "
        "and the gradient over all prompts instead of these, are in "
        "[js_plus_gradient.md](js_plus_gradient.md).",
        "",
        "How much lower than `rloo`'s, in percent, with 95 % intervals (MSE: over prompts; "
        "gradient: over batches):",
        "",
        "| m | baseline | MSE to the value | squared distance of the gradient | mean lambda |",
        "|---:|---|---:|---:|---:|",
    ]
    sweep = {(row["m"], row["point"]): row for row in found["sweep"]["rows"]}
    mse = {(row["responses"], row["estimator"]): row for row in found["mse"]["rows"]}
    gradient = {(row["m"], row["estimator"]): row for row in found["gradient"]["rows"]}
    counts = sorted({m for m, _ in gradient})
    for m in counts:
        for name in RULES:
            errors, distance = mse[m, name], gradient[m, name]
            cells = [
                shown(errors, ""),
                shown(distance, "reduction_"),
                f"{errors['shrinkage']:.2f}",
            ]
            lines.append(f"| {m} | `{name}` | {' | '.join(cells)} |")
    lines += [
        "",
        "The best constant lambda, and what it would save, in percent. Only the truth tells it. "
        "For the MSE it is measured on the batches that chose it, for the gradient on others:",
        "",
        "| m | for the MSE | saves | for the gradient (95 %) | saves (95 %) |",
        "|---:|---:|---:|---:|---:|",
    ]
    for m in counts:
        errors, least = mse[m, ORACLE], sweep[m, "minimum"]
        cells = [
            f"{errors['shrinkage']:.2f}",
            shown(errors, ""),
            f"{least['shrinkage']:.2f} ({least['shrinkage_low']:.2f} to "
            f"{least['shrinkage_high']:.2f})",
            shown(least, "reduction_"),
        ]
        lines.append(f"| {m} | {' | '.join(cells)} |")
    simulated = {(row["m"], row["estimator"]): row for row in found["simulate"]["rows"]}
    lines += [
        "",
        f"Without a model: {found['simulate']['title']}, {found['simulate']['prompts_count']} "
        "prompts. How much lower the MSE is than `rloo`'s, in percent:",
        "",
        "| m | `js` | `js_plus` | best constant lambda |",
        "|---:|---:|---:|---:|",
    ]
    for m in sorted({m for m, _ in simulated}):
        cells = [shown(simulated[m, name], "reduction_") for name in (*RULES, ORACLE)]
        lines.append(f"| {m} | {' | '.join(cells)} |")
    lines += ["", *(f"![{text}](images/results_{name}.png)" for name, text in PICTURES.items())]
    return "\n".join(lines)


def shown(row: Summary, prefix: str) -> str:
    """A row's reduction, such as 12.3 (10.1 to 14.5).

    Args:
        row: of a table of the lab.
        prefix: of its keys `low` and `high`.
    """
    value, low, high = (row[key] for key in ("reduction_percent", f"{prefix}low", f"{prefix}high"))
    return f"{_number(value)} ({_number(low)} to {_number(high)})"


def _number(value: float | None) -> str:
    return "unknown" if value is None or not math.isfinite(value) else f"{value:.1f}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s"
