"""What a quickstart run gained, from its files: numbers with intervals, words and one picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from openrlhf_js.report import panels, runs, style
from openrlhf_js.report.plot import plot
from openrlhf_js.report.runs import Scalars, find_conditions
from openrlhf_js.stats import Estimate, clustered_mean, paired_difference

SHRINKING = ("js", "js_plus", "js1")  # the estimators that find their λ in every batch


def read_scores(path: Path) -> dict[str, float]:
    """The mean score of each prompt in an evaluation of the quickstart."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["prompt"]: fmean(row["scores"]) for row in rows}


def gain(before: Mapping[str, float], after: Mapping[str, float]) -> Estimate:
    """The mean rise from before to after, paired by prompt, with its 95 % interval."""
    return paired_difference([after[p] for p in before], [before[p] for p in before]).estimate


def summarise(run: Path, task: str, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The results of a run, as they go into `summary.json`; `folders` are of the estimators."""
    before = read_scores(run / "evaluation_before.json")
    results = {}
    for estimator, folder in folders.items():
        after = read_scores(folder / "evaluation_after.json")
        logged = Scalars(run / "tensorboard" / estimator)
        mse, mse_rloo = logged[runs.BASELINE_MSE].mean, logged[runs.BASELINE_MSE_RLOO].mean
        reward = logged[runs.REWARD]
        results[estimator] = {
            "after": clustered_mean(list(after.values()))._asdict(),
            "gain": gain(before, after)._asdict(),
            "steps": len(reward.steps),
            "training_reward_last": reward.values[-1] if reward.values else None,
            "shrinkage_mean": logged[runs.SHRINKAGE].mean,
            "gradient_norm_mean": logged[runs.GRADIENT_NORM].mean,
            "baseline_mse_mean": mse,
            "baseline_mse_rloo_mean": mse_rloo,
            "baseline_mse_over_rloo": mse / mse_rloo if mse is not None and mse_rloo else None,
        }
    measured = clustered_mean(list(before.values()))._asdict()
    return {"task": task, "before": measured, "results": results}


def percent(estimate: Mapping[str, float], sign: str = "") -> str:
    """A share with its interval, as `45.1 ± 3.0`; "+" as sign is for differences."""
    of = Estimate(**estimate)
    return f"{100 * of.value:{sign}.1f} ± {100 * of.half_width:.1f}"


def table(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each estimator."""
    return [
        {
            "estimator": estimator,
            "pass@1 before, %": percent(summary["before"]),
            "pass@1 after, %": percent(result["after"]),
            "gain, points": percent(result["gain"], "+"),
            "MSE / RLOO's": result["baseline_mse_over_rloo"],
            "grad norm": result["gradient_norm_mean"],
            "λ": result["shrinkage_mean"] if estimator in SHRINKING else None,
        }
        for estimator, result in summary["results"].items()
    ]


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """What was gained, one sentence after the other."""
    task = summary["task"]
    if len(summary["results"]) > 1:
        return [
            f"pass@1: held-out prompts of {task}, one seed, 95 % intervals over prompts",
            "MSE / RLOO's: estimated squared error of the baseline, over RLOO's on its batches",
            "grad norm: mean over all steps, signal and noise together",
        ]
    ((estimator, result),) = summary["results"].items()
    gained = result["gain"]
    went = "rose" if gained["low"] > 0 else "fell" if gained["high"] < 0 else "went"
    sentences = [
        f"On held-out prompts of {task} pass@1 {went} from {percent(summary['before'])} % to "
        f"{percent(result['after'])} %: {percent(gained, '+')} points (95 % intervals, by prompt)."
    ]
    share = result["baseline_mse_over_rloo"]
    if share is not None and estimator != "rloo":
        sentences.append(
            f"The baseline of {estimator} had an estimated {100 * abs(1 - share):.0f} % "
            f"{'less' if share < 1 else 'more'} squared error than RLOO's on the same batches."
        )
    return sentences


def draw(run: Path, estimators: Iterable[str], path: Path, title: str = "") -> None:
    """Draws reward, pass@1, shrinkage and gradient norm of every estimator over steps, as a PNG."""
    conditions = find_conditions([f"{name}={run / 'tensorboard' / name}" for name in estimators])
    curves = {curve.tag: curve for section in panels.SECTIONS.values() for curve in section}
    tags = runs.REWARD, panels.PASS_AT_1.tag, runs.SHRINKAGE, runs.GRADIENT_NORM
    drawn = [each for tag in tags for each in panels.draw(curves[tag], conditions)]
    figure = plot(
        [row for _, rows in drawn for row in rows],
        {panel.title: panel for panel, _ in drawn},
        x="step",
        xlabel="training step",
        line="run",
        title=title,
    )
    style.save_png(figure, path)
