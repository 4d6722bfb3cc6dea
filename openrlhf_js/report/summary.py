"""What a quickstart run gained: numbers with intervals, a table, and plain words."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from openrlhf_js.report import scalars
from openrlhf_js.report.scalars import Scalars
from openrlhf_js.uncertainty import Estimate, clustered_mean, paired_difference

SHRINKING = ("js", "js_plus", "js1")  # the estimators that find their λ in every batch


def read_scores(path: Path) -> dict[str, float]:
    """The mean score of each prompt in a file of `tiny.evaluate.write_scores`."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["prompt"]: fmean(row["scores"]) for row in rows}


def gain(before: dict[str, float], after: dict[str, float]) -> Estimate:
    """The mean rise from before to after, paired by prompt, with its 95 % interval.

    Raises:
        ValueError: the two were measured on different prompts.
    """
    if before.keys() != after.keys():
        raise ValueError("before and after were measured on different prompts")
    return paired_difference([after[p] for p in before], [before[p] for p in before]).estimate


def summarise(run: Path, task: str, folders: dict[str, Path]) -> dict[str, Any]:
    """The results of a run, from its files.

    Args:
        run: holds `evaluation_before.json` and `tensorboard/<estimator>/`.
        task: what was learned.
        folders: for each estimator the folder that holds its `evaluation_after.json`.

    Returns:
        What goes into `summary.json`; rewards, pass@1 and gains are in [0, 1].
    """
    before = read_scores(run / "evaluation_before.json")
    results = {}
    for estimator, folder in folders.items():
        after = read_scores(folder / "evaluation_after.json")
        logged = Scalars(run / "tensorboard" / estimator)
        mse, mse_rloo = logged[scalars.BASELINE_MSE].mean, logged[scalars.BASELINE_MSE_RLOO].mean
        reward = logged[scalars.REWARD]
        results[estimator] = {
            "after": clustered_mean(list(after.values()))._asdict(),
            "gain": gain(before, after)._asdict(),
            "steps": len(reward.steps),
            "training_reward_last": reward.values[-1] if reward.values else None,
            "shrinkage_mean": logged[scalars.SHRINKAGE].mean,
            "gradient_norm_mean": logged[scalars.GRADIENT_NORM].mean,
            "baseline_mse_mean": mse,
            "baseline_mse_rloo_mean": mse_rloo,
            "baseline_mse_over_rloo": mse / mse_rloo if mse is not None and mse_rloo else None,
        }
    return {
        "task": task,
        "before": clustered_mean(list(before.values()))._asdict(),
        "results": results,
    }


def percent(estimate: dict[str, float]) -> str:
    """An estimate as `45.1 % ± 3.0`."""
    of = Estimate(**estimate)
    return f"{100 * of.value:.1f} % ± {100 * of.half_width:.1f}"


def points(estimate: dict[str, float]) -> str:
    """A difference in percentage points, as `+45.1 ± 3.0`."""
    of = Estimate(**estimate)
    return f"{100 * of.value:+.1f} ± {100 * of.half_width:.1f}"


COLUMNS = (
    *("estimator", "pass@1 before", "pass@1 after", "gain, points"),
    *("MSE / RLOO's", "grad norm", "λ"),
)


def table(summary: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row for each estimator, under `COLUMNS`."""
    return [
        (
            estimator,
            percent(summary["before"]),
            percent(result["after"]),
            points(result["gain"]),
            _decimal(result["baseline_mse_over_rloo"]),
            _decimal(result["gradient_norm_mean"]),
            _decimal(result["shrinkage_mean"] if estimator in SHRINKING else None),
        )
        for estimator, result in summary["results"].items()
    ]


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def in_words(summary: dict[str, Any]) -> list[str]:
    """What was gained, one sentence after the other."""
    task, before = summary["task"], percent(summary["before"])
    if len(summary["results"]) > 1:
        return [
            f"pass@1 is on held-out prompts of {task}, and its intervals (95 %, by prompt) are of "
            "one seed: differences inside them are noise.",
            "MSE is the estimated squared distance of the baseline from the value of its prompt, "
            "as a share of RLOO's on the same batches: below 1, it is nearer.",
            "The gradient norm, a mean over all steps, holds both the signal and the noise.",
        ]
    ((estimator, result),) = summary["results"].items()
    gained = result["gain"]
    went = "rose" if gained["low"] > 0 else "fell" if gained["high"] < 0 else "went"
    sentences = [
        f"On held-out prompts of {task} pass@1 {went} from {before} to {percent(result['after'])}: "
        f"{points(gained)} points (95 % intervals, by prompt)."
    ]
    if (share := result["baseline_mse_over_rloo"]) is not None and estimator != "rloo":
        compared = "less" if share < 1 else "more"
        sentences.append(
            f"The baseline of {estimator} had an estimated {100 * abs(1 - share):.0f} % {compared} "
            "squared error than RLOO's would have had on the same batches."
        )
    return sentences
