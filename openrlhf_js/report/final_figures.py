"""The final figures of each run, for a table: numbers with intervals where there are any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from openrlhf_js.report import scalars
from openrlhf_js.report.bands import average, final, overall_ratio
from openrlhf_js.report.pass_panel import PASS_AT_1, pass_at_1
from openrlhf_js.report.runs import Condition
from openrlhf_js.report.special_panels import GRADIENT_VARIANCE
from openrlhf_js.uncertainty import Estimate

Row = tuple[str, ...]
NONE = "-"
FINAL: dict[str, tuple[str, str]] = {  # column -> tag, format; means over the last tenth
    "reward": (scalars.REWARD, ".3f"),
    "length, tokens": ("train/rollout/response_length_mean", ".4g"),
    "KL": ("train/kl", ".3g"),
}
AVERAGE = {  # means over all steps
    "λ": (scalars.SHRINKAGE, ".2f"),
    "degenerate groups": ("train/js/all_equal_groups", ".2f"),
    "masked responses": ("train/js/masked_responses", ".3g"),
    "gradient variance": (GRADIENT_VARIANCE, ".3g"),
    "seconds a step": ("train/timing/step_total", ".3g"),
}
NOTE = (
    "Reward, length and KL are means over the last tenth of the steps, pass@1 is the last one "
    "measured, and the rest are means over all steps; λ of an estimator that does not shrink is "
    "what js would take. Brackets: 95 % intervals, over seeds; of "
    "pass@1 of a single seed over held-out prompts, of a ratio of single seeds over steps."
)


def figures(conditions: Sequence[Condition]) -> tuple[Row, list[Row]]:
    """A column for each condition, and a row for each figure that one of them has."""
    found: dict[str, list[str]] = {}
    for name, (tag, form) in FINAL.items():
        found[name] = [estimate(final(c.series(tag)), form) for c in conditions]
        if set(found[name]) <= {NONE, "0"}:  # a KL that is not measured is logged as 0
            del found[name]
    for tag in sorted({tag for c in conditions for tag in c.tags if PASS_AT_1.fullmatch(tag)}):
        found[f"pass@1, {PASS_AT_1.fullmatch(tag)['source']}"] = [  # type: ignore[index]
            estimate(_last_pass_at_1(c, tag, conditions), ".1%") for c in conditions
        ]
    for name, (tag, form) in AVERAGE.items():
        found[name] = [estimate(average(c.series(tag)), form) for c in conditions]
    logged = [c for c in conditions if c.series(GRADIENT_VARIANCE)]
    if len(logged) > 1:
        found[f"variance over that of {logged[0].name}"] = [
            estimate(_variance_ratio(c, logged[0]), ".3f") for c in conditions
        ]
    rows = [(name, *cells) for name, cells in found.items() if set(cells) != {NONE}]
    return ("", *(condition.name for condition in conditions)), rows


def _last_pass_at_1(
    condition: Condition, tag: str, conditions: Sequence[Condition]
) -> Estimate | None:
    if not condition.series(tag):
        return None
    alone = len({t for c in conditions for t in c.tags if PASS_AT_1.fullmatch(t)}) == 1
    found = pass_at_1(condition, tag, alone)
    return found[max(found)] if found else None


def _variance_ratio(condition: Condition, first: Condition) -> Estimate | None:
    ours = condition.series(GRADIENT_VARIANCE)
    if condition is first or not ours:
        return None
    return overall_ratio(ours, first.series(GRADIENT_VARIANCE))


def estimate(of: Estimate | None, form: str) -> str:
    """An estimate as `0.71 [0.69, 0.73]`; without brackets where there is no interval."""
    if of is None:
        return NONE
    say: Callable[[float], str] = lambda value: format(value, form)  # noqa: E731
    if not (math.isfinite(of.low) and math.isfinite(of.high)):
        return say(of.value)
    return f"{say(of.value)} [{say(of.low)}, {say(of.high)}]"
