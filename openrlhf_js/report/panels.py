"""Which curves a report shows, as tidy rows: means over seeds with intervals, and final figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from openrlhf_js.report import runs, style
from openrlhf_js.report.plot import Panel, Row
from openrlhf_js.report.runs import Condition
from openrlhf_js.stats import Comparison, Estimate, clustered_mean, differences

MAX_POINTS = 200  # of a line: a picture is no wider, and a page of thousands of steps stays small
UNSMOOTHED = 100  # values; of longer runs a running average takes a share
SMOOTH_SHARE = 0.05
# Final figures: the share of the steps, from the end, whose mean they are.
MEAN, LAST, FINAL = (("mean", 1.0),), (("last tenth", 0.1),), (("final", 0.0),)
SHARE, FROM_ZERO, FREE = (0.0, 1.0), (0.0, None), (None, None)  # limits of an axis
GRADIENT_FLAG, MEMORY_FLAG = "--js.gradient_variance", "--algo.advantage.estimator js_memory"


@dataclass(frozen=True)
class Curve:
    """A scalar that a report shows."""

    tag: str  # a regular expression; what its group matches is added to the title
    title: str
    ylabel: str
    note: str = ""
    limits: tuple[float | None, float | None] = FROM_ZERO
    log: bool = False
    summary: tuple[tuple[str, float], ...] = ()  # in the table of final figures
    format: str = ".3g"
    how: str = ""  # the flag that has it logged, where not every run does
    over: str = ""  # the tag that it is divided by


# fmt: off
PASS_AT_1 = Curve(
    r"eval/eval_(.+)_pass1", "Held-out pass@1", "share of the responses", limits=SHARE,
    summary=FINAL, format=".1%",
)
SECTIONS: dict[str, tuple[Curve, ...]] = {
    "Learning": (
        Curve(runs.REWARD, "Training reward", "reward, mean over the batch", limits=FREE,
              summary=MEAN + LAST, format=".3f"),
        PASS_AT_1,
        Curve("train/rollout/reward_std", "Spread of rewards", "standard deviation over the batch"),
    ),
    "Shrinkage": (
        Curve("train/js/shrinkage_mean", "Shrinkage λ", "λ, 0: rloo, 1: bloo",
              "mean over prompts; without shrinkage, what js would take",
              SHARE, summary=MEAN),
        Curve("train/js/within_variance", "v: noise of a prompt's mean reward", "squared reward",
              "mean over the prompts of the batch"),
        Curve("train/js/between_variance", "s: spread between prompts", "squared reward",
              "variance of the prompts' mean rewards"),
        Curve("train/js/all_equal_groups", "Degenerate groups", "share of the groups",
              "all responses to the prompt have the same reward", SHARE, summary=MEAN),
        Curve(runs.BASELINE_MSE, "Error of the baseline over RLOO's", "ratio",
              "estimated mean squared errors in the same batches", summary=MEAN,
              over=runs.BASELINE_MSE_RLOO),
        Curve(runs.BASELINE_MSE, "Error of js_memory's baseline over js_plus's", "ratio",
              "estimated mean squared errors in the same batches", summary=MEAN,
              over="train/js/baseline_mse_js_plus", how=MEMORY_FLAG),
        Curve("train/js/memory_share", "Prompts with a past", "share of the prompts",
              "the others are shrunk as by js_plus", SHARE, how=MEMORY_FLAG),
        Curve("train/js/masked_responses", "Masked responses", "responses in a step",
              summary=MEAN),
    ),
    "Gradient": (
        Curve("train/js/gradient_variance", "Gradient variance", "squared gradient, log scale",
              "trace of the covariance of a step's gradient", FREE, log=True, summary=MEAN,
              how=GRADIENT_FLAG),
        Curve("train/js/gradient_snr", "Signal to noise of the gradient", "ratio", "", FREE,
              how=GRADIENT_FLAG),
        Curve("train/js/gradient_noise_scale", "Gradient noise scale", "responses",
              "batch size at which signal equals noise", FREE, how=GRADIENT_FLAG),
        Curve("train/actor_grad_norm", "Gradient norm", "norm, before clipping", summary=MEAN),
    ),
    "Responses": (
        Curve("train/rollout/response_length_mean", "Response length, tokens", "tokens",
              summary=LAST),
        Curve("train/rollout/truncated_rate", "Truncated responses", "share of the responses",
              limits=SHARE),
        Curve("train/kl", "KL to the reference model", "nats per token", "", FREE, summary=LAST,
              how="--algo.kl.init_coef"),
        Curve("train/ppo_kl", "KL to the policy that generated", "nats per token", "", FREE),
        Curve("train/entropy_loss", "Entropy of the policy", "nats per token",
              how="--actor.entropy_coef"),
    ),
    "Grading": (
        Curve("train/status/(.+)", "Graded as", "share of the responses"),
        Curve("train/accuracy/?(.*)", "Correct answers", "share of the responses", limits=SHARE),
        Curve("train/grading_seconds", "Time to grade a response", "seconds, mean"),
    ),
    "Time": (Curve("train/timing/(.+)", "Seconds", "seconds", summary=MEAN),),
}
# fmt: on


def by_step(tag: str, condition: Condition) -> pd.DataFrame:
    """(steps, seeds) values, at the steps that all seeds have."""
    logged = {seed: run.logged[tag] for seed, run in condition.by_seed.items()}
    seeds = {seed: series for seed, series in logged.items() if len(series)}
    return pd.concat(seeds, axis=1, join="inner") if seeds else pd.DataFrame()


def averages(curve: Curve, tag: str, condition: Condition, window: int = 1) -> pd.DataFrame:
    """(steps, seeds) means of the last `window` values, or ratios of such means.

    Series that are shorter than the window become one point; a ratio to 0 is left out.
    """
    means, below = (
        steps.rolling(max(1, min(window, len(steps)))).mean().dropna()
        for steps in (by_step(tag, condition), by_step(curve.over, condition))
    )
    return (means / below).replace(math.inf, math.nan).dropna() if curve.over else means


def titles(curve: Curve, conditions: Sequence[Condition]) -> dict[str, str]:
    """The title of each tag of a curve that somebody logged and that is not always 0."""
    found, logged = {}, {tag for c in conditions for run in c.runs for tag in run.logged.tags}
    for tag in sorted(logged) if curve.over in ("", *logged) else ():
        match = re.fullmatch(curve.tag, tag)
        if match and any(any(s) for c in conditions for s in c.series(tag)):
            names = [name for name in match.groups() if name not in ("", "held_out")]
            found[tag] = ", ".join([curve.title, *names])
    return found


def estimates(curve: Curve, tag: str, condition: Condition, window: int = 1) -> dict[int, Estimate]:
    """By step (MAX_POINTS at most), the mean over seeds of running averages, or of their ratios."""
    means = averages(curve, tag, condition, window)
    drawn = np.linspace(len(means) - 1, 0, min(len(means), MAX_POINTS)).round().astype(int)
    shown = means.iloc[sorted(set(drawn.tolist()))]
    return {int(step): clustered_mean(seeds) for step, *seeds in shown.itertuples()}


def draw(
    curve: Curve, conditions: Sequence[Condition], smooth: int | None = None
) -> list[tuple[Panel, list[Row]]]:
    """The panels of a curve with their rows: one for each tag, a `run` for each condition."""
    drawn = []
    for tag, title in titles(curve, conditions).items():
        shown = [c for c in conditions if c.series(tag)]
        logged = max(len(series) for c in shown for series in c.series(tag))
        window = smooth or (round(SMOOTH_SHARE * logged) if logged > UNSMOOTHED else 1)
        window = 1 if curve is PASS_AT_1 else window
        rows: list[Row] = [
            {"quantity": title, "run": c.name, "step": step, **estimate._asdict()}
            for c in shown
            for step, estimate in estimates(curve, tag, c, window).items()
        ]
        notes = {
            curve.note: True,
            "95 % intervals over seeds": any(len(c.runs) > 1 for c in shown),
            f"running average of {window}": window > 1,
        }
        note = "; ".join(note for note, holds in notes.items() if note and holds)
        one = 1.0 if curve.over else None
        panel = Panel(title, curve.ylabel, note, curve.limits, curve.log, one)
        drawn.append((replace(panel, intervals="bars") if curve is PASS_AT_1 else panel, rows))
    return [(panel, rows) for panel, rows in drawn if rows]


def final_figures(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    """A row for each condition that has a figure: its value, and its difference from the first."""
    rows: list[dict[str, str]] = []
    names = [condition.name for condition in conditions]
    for curve in (curve for section in SECTIONS.values() for curve in section):
        timed = curve in SECTIONS["Time"]
        for (tag, title), (summary, share) in product(
            titles(curve, conditions).items(), curve.summary
        ):
            seeds = {c.name: _by_seed(curve, tag, share, c) for c in conditions}
            seeds = {name: values for name, values in seeds.items() if values}
            compared = differences(seeds, names[0]) if names[0] in seeds and not timed else []
            apart = {each.name: _apart(each, curve.format) for each in compared}
            heading = f"{title}, {summary}"
            for name, own in seeds.items():
                value = clustered_mean([fmean(own.values())] if timed else list(own.values()))
                row = {"": heading, "run": name, "value": style.interval(*value, curve.format)}
                if len(names) > 1:
                    columns = (f"difference from {names[0]}", "p")
                    row |= zip(columns, apart.get(name, ("-", "-")), strict=True)
                rows.append(row)
                heading = ""
    return rows


def _by_seed(curve: Curve, tag: str, share: float, condition: Condition) -> dict[Any, float]:
    """The mean of each seed over the last steps that all have."""
    last = max(1, round(share * len(by_step(tag, condition))))
    return dict(averages(curve, tag, condition, last).tail(1).mean().dropna())


def _apart(compared: Comparison, form: str) -> tuple[str, str]:
    """A difference and its p-value, as the table has them."""
    value, low, high, *_ = compared.difference
    unpaired = "" if compared.paired else ", unpaired"
    p = f"{compared.corrected_p:.2g}" if math.isfinite(low) else "-"
    return style.interval(value, low, high, f"+{form}") + unpaired, p
