"""Which curves a report shows, as tidy rows: means over seeds with intervals, and final figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js.report import runs, style
from openrlhf_js.report.plot import Panel, Row
from openrlhf_js.report.runs import Condition
from openrlhf_js.stats import Comparison, Estimate, clustered_mean, differences

MAX_POINTS = 200  # of a line: a picture is no wider, and a page of thousands of steps stays small
UNSMOOTHED = 100  # values; of longer runs a running average takes a share
SMOOTH_SHARE = 0.05
GRADIENT_FLAG = "--js.gradient_variance"
MEMORY_FLAG = "--algo.advantage.estimator js_memory"

Limits = tuple[float | None, float | None]
SHARE: Limits = (0.0, 1.0)
FROM_ZERO: Limits = (0.0, None)
FREE: Limits = (None, None)


class Summary(NamedTuple):
    """A final figure: the mean over the last steps of a run."""

    name: str
    share: float  # of the steps, from the end; at least one step


MEAN = Summary("mean", 1.0)
LAST = Summary("last tenth", 0.1)
FINAL = Summary("final", 0.0)


@dataclass(frozen=True)
class Curve:
    """A scalar that a report shows."""

    tag: str  # a regular expression; what its group matches is added to the title
    title: str
    ylabel: str
    note: str = ""
    limits: Limits = FROM_ZERO
    log: bool = False
    summaries: tuple[Summary, ...] = ()  # in the table of final figures
    format: str = ".3g"
    flag: str = ""  # which has it logged, where not every run does
    divisor: str = ""  # the tag that it is divided by
    sparse: bool = False  # logged at few steps: intervals as bars, no running average
    timing: bool = False  # depends on the machine: neither interval nor difference


# fmt: off
PASS_AT_1 = Curve(
    r"eval/eval_(.+)_pass1", "Held-out pass@1", "share of the responses", limits=SHARE,
    summaries=(FINAL,), format=".1%", sparse=True,
)
SECTIONS: dict[str, tuple[Curve, ...]] = {
    "Learning": (
        Curve(runs.REWARD, "Training reward", "reward, mean over the batch", limits=FREE,
              summaries=(MEAN, LAST), format=".3f"),
        PASS_AT_1,
        Curve("train/rollout/reward_std", "Spread of rewards", "standard deviation over the batch"),
    ),
    "Shrinkage": (
        Curve("train/js/shrinkage_mean", "Shrinkage λ", "λ, 0: rloo, 1: bloo",
              "mean over prompts; without shrinkage, what js would take",
              SHARE, summaries=(MEAN,)),
        Curve("train/js/within_variance", "v: noise of a prompt's mean reward", "squared reward",
              "mean over the prompts of the batch"),
        Curve("train/js/between_variance", "s: spread between prompts", "squared reward",
              "variance of the prompts' mean rewards"),
        Curve("train/js/all_equal_groups", "Degenerate groups", "share of the groups",
              "all responses to the prompt have the same reward", SHARE, summaries=(MEAN,)),
        Curve(runs.BASELINE_MSE, "Error of the baseline over RLOO's", "ratio",
              "estimated mean squared errors in the same batches", summaries=(MEAN,),
              divisor=runs.BASELINE_MSE_RLOO),
        Curve(runs.BASELINE_MSE, "Error of js_memory's baseline over js_plus's", "ratio",
              "estimated mean squared errors in the same batches", summaries=(MEAN,),
              divisor="train/js/baseline_mse_js_plus", flag=MEMORY_FLAG),
        Curve("train/js/memory_share", "Prompts with a past", "share of the prompts",
              "the others are shrunk as by js_plus", SHARE, flag=MEMORY_FLAG),
        Curve("train/js/masked_responses", "Masked responses", "responses in a step",
              summaries=(MEAN,)),
    ),
    "Gradient": (
        Curve("train/js/gradient_variance", "Gradient variance", "squared gradient, log scale",
              "trace of the covariance of a step's gradient", FREE, log=True, summaries=(MEAN,),
              flag=GRADIENT_FLAG),
        Curve("train/js/gradient_snr", "Signal to noise of the gradient", "ratio", "", FREE,
              flag=GRADIENT_FLAG),
        Curve("train/js/gradient_noise_scale", "Gradient noise scale", "responses",
              "batch size at which signal equals noise", FREE, flag=GRADIENT_FLAG),
        Curve("train/actor_grad_norm", "Gradient norm", "norm, before clipping", summaries=(MEAN,)),
    ),
    "Responses": (
        Curve("train/rollout/response_length_mean", "Response length, tokens", "tokens",
              summaries=(LAST,)),
        Curve("train/rollout/truncated_rate", "Truncated responses", "share of the responses",
              limits=SHARE),
        Curve("train/kl", "KL to the reference model", "nats per token", "", FREE,
              summaries=(LAST,), flag="--algo.kl.init_coef"),
        Curve("train/ppo_kl", "KL to the policy that generated", "nats per token", "", FREE),
        Curve("train/entropy_loss", "Entropy of the policy", "nats per token",
              flag="--actor.entropy_coef"),
    ),
    "Grading": (
        Curve("train/status/(.+)", "Graded as", "share of the responses"),
        Curve("train/accuracy/?(.*)", "Correct answers", "share of the responses", limits=SHARE),
        Curve("train/grading_seconds", "Time to grade a response", "seconds, mean"),
    ),
    "Time": (Curve("train/timing/(.+)", "Seconds", "seconds", summaries=(MEAN,), timing=True),),
}
# fmt: on


def by_step(tag: str, condition: Condition) -> pd.DataFrame:
    """(steps, seeds) values, at the steps that all seeds have."""
    logged = {seed: run.logged[tag] for seed, run in condition.by_seed.items()}
    logged = {seed: series for seed, series in logged.items() if len(series)}
    return pd.concat(logged, axis=1, join="inner") if logged else pd.DataFrame()


def averages(curve: Curve, tag: str, condition: Condition, window: int = 1) -> pd.DataFrame:
    """(steps, seeds) means of the last `window` values, or ratios of such means.

    Series that are shorter than the window become one point; a ratio to 0 is left out.
    """
    means = _running_mean(by_step(tag, condition), window)
    if not curve.divisor:
        return means
    ratios = means / _running_mean(by_step(curve.divisor, condition), window)
    return ratios.replace(math.inf, math.nan).dropna()


def _running_mean(values: pd.DataFrame, window: int) -> pd.DataFrame:
    whole_window = max(1, min(window, len(values)))
    return values.rolling(whole_window).mean().dropna()


def titles(curve: Curve, conditions: Sequence[Condition]) -> dict[str, str]:
    """The title of each tag of a curve that somebody logged and that is not always 0."""
    logged = {tag for c in conditions for run in c.runs for tag in run.logged.tags}
    if curve.divisor and curve.divisor not in logged:
        return {}
    tag_titles = {}
    for tag in sorted(logged):
        match = re.fullmatch(curve.tag, tag)
        if match is None:
            continue
        if any(series.any() for condition in conditions for series in condition.series(tag)):
            names = [name for name in match.groups() if name not in ("", "held_out")]
            tag_titles[tag] = ", ".join([curve.title, *names])
    return tag_titles


def estimates(curve: Curve, tag: str, condition: Condition, window: int = 1) -> dict[int, Estimate]:
    """By step (MAX_POINTS at most), the mean over seeds of running averages, or of their ratios."""
    means = averages(curve, tag, condition, window)
    evenly_spaced = np.linspace(len(means) - 1, 0, min(len(means), MAX_POINTS)).round().astype(int)
    shown = means.iloc[np.unique(evenly_spaced)]
    return {
        int(step): clustered_mean(seeds)
        for step, seeds in zip(shown.index, shown.to_numpy(), strict=True)
    }


def draw(
    curve: Curve, conditions: Sequence[Condition], smooth: int | None = None
) -> list[tuple[Panel, list[Row]]]:
    """The panels of a curve with their rows: one for each tag, a `run` for each condition."""
    drawn = []
    for tag, title in titles(curve, conditions).items():
        logging = [condition for condition in conditions if condition.series(tag)]
        window = _window(curve, tag, logging, smooth)
        rows: list[Row] = [
            {"quantity": title, "run": condition.name, "step": step, **estimate._asdict()}
            for condition in logging
            for step, estimate in estimates(curve, tag, condition, window).items()
        ]
        notes = [curve.note] if curve.note else []
        if any(len(condition.runs) > 1 for condition in logging):
            notes.append("95 % intervals over seeds")
        if window > 1:
            notes.append(f"running average of {window}")
        panel = Panel(
            title=title,
            ylabel=curve.ylabel,
            note="; ".join(notes),
            limits=curve.limits,
            log=curve.log,
            reference=1.0 if curve.divisor else None,
            intervals="bars" if curve.sparse else "band",
        )
        if rows:
            drawn.append((panel, rows))
    return drawn


def _window(curve: Curve, tag: str, conditions: Sequence[Condition], smooth: int | None) -> int:
    """How many logged values a running average of this curve takes."""
    if curve.sparse:
        return 1
    if smooth:
        return smooth
    logged = max(len(series) for condition in conditions for series in condition.series(tag))
    return round(SMOOTH_SHARE * logged) if logged > UNSMOOTHED else 1


def final_figures(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    """A row for each condition that has a figure: its value, and its difference from the first."""
    rows: list[dict[str, str]] = []
    for curve in (curve for curves in SECTIONS.values() for curve in curves):
        for tag, title in titles(curve, conditions).items():
            for summary in curve.summaries:
                values = {
                    condition.name: _by_seed(curve, tag, summary.share, condition)
                    for condition in conditions
                }
                rows += _figure(f"{title}, {summary.name}", values, curve)
    return rows


def _figure(
    heading: str, values: Mapping[str, Mapping[str, float]], curve: Curve
) -> list[dict[str, str]]:
    """The rows of one figure, from its values by condition and seed; only the first is headed."""
    reference = next(iter(values))
    known = {name: seeds for name, seeds in values.items() if seeds}
    compared: dict[str, Comparison] = {}
    if reference in known and not curve.timing:
        compared = {comparison.name: comparison for comparison in differences(known, reference)}
    rows: list[dict[str, str]] = []
    for name, seeds in known.items():
        samples = [fmean(seeds.values())] if curve.timing else list(seeds.values())
        value = clustered_mean(samples)
        row = {"": "" if rows else heading, "run": name}
        row["value"] = style.interval(value.value, value.low, value.high, curve.format)
        if len(values) > 1:
            comparison = compared.get(name)
            row[f"difference from {reference}"] = _difference(comparison, curve.format)
            row["p"] = _p_value(comparison)
        rows.append(row)
    return rows


def _by_seed(curve: Curve, tag: str, share: float, condition: Condition) -> dict[str, float]:
    """The mean of each seed over the last steps that all have."""
    last_steps = max(1, round(share * len(by_step(tag, condition))))
    return dict(averages(curve, tag, condition, last_steps).tail(1).mean().dropna())


def _difference(comparison: Comparison | None, form: str) -> str:
    if comparison is None:
        return "-"
    difference = comparison.difference
    text = style.interval(difference.value, difference.low, difference.high, f"+{form}")
    return text if comparison.paired else f"{text}, unpaired"


def _p_value(comparison: Comparison | None) -> str:
    if comparison is None or not math.isfinite(comparison.difference.low):
        return "-"
    return f"{comparison.corrected_p:.2g}"
