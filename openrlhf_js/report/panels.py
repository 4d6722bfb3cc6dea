"""Which curves a report shows, as tidy rows: means over seeds with intervals, and final figures."""

from __future__ import annotations

import itertools
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
SELECTION_FLAG = "--js.prompt_selection"
CHOSEN = "Chosen prompts"

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


HELD_OUT = Curve(
    tag=r"eval/eval_(.+)_pass1",
    title="Held-out mean reward",
    ylabel="mean reward",
    note="pass@1 where rewards are 0 or 1; responses to a prompt: --eval.n_samples_per_prompt",
    limits=FREE,
    summaries=(FINAL,),
    format=".3f",
    sparse=True,
)
SECTIONS: dict[str, tuple[Curve, ...]] = {
    "Learning": (
        Curve(
            tag=runs.REWARD,
            title="Training reward",
            ylabel="reward, mean over the batch",
            limits=FREE,
            summaries=(MEAN, LAST),
            format=".3f",
        ),
        HELD_OUT,
        Curve(
            tag="train/rollout/reward_std",
            title="Spread of rewards",
            ylabel="standard deviation over the batch",
        ),
    ),
    "Shrinkage": (
        Curve(
            tag="train/js/shrinkage_mean",
            title="Shrinkage λ",
            ylabel="λ, 0: rloo, 1: bloo",
            note="mean over prompts; without shrinkage, what js would take",
            limits=SHARE,
            summaries=(MEAN,),
        ),
        Curve(
            tag="train/js/within_variance",
            title="v: noise of a prompt's mean reward",
            ylabel="squared reward",
            note="mean over the prompts of the batch",
        ),
        Curve(
            tag="train/js/between_variance",
            title="s: spread between prompts",
            ylabel="squared reward",
            note="variance of the prompts' mean rewards",
        ),
        Curve(
            tag="train/js/all_equal_groups",
            title="Degenerate groups",
            ylabel="share of the groups",
            note="all responses to the prompt have the same reward",
            limits=SHARE,
            summaries=(MEAN,),
        ),
        Curve(
            tag=runs.BASELINE_MSE,
            title="Error of the baseline over RLOO's",
            ylabel="ratio",
            note="estimated mean squared errors in the same batches",
            summaries=(MEAN,),
            divisor=runs.BASELINE_MSE_RLOO,
        ),
        Curve(
            tag="train/js/gradient_noise",
            title="Noise of the gradient over RLOO's",
            ylabel="ratio",
            note="estimated from the log-probabilities of the sampled tokens",
            summaries=(MEAN,),
        ),
        Curve(
            tag="train/js/masked_responses",
            title="Masked responses",
            ylabel="responses in a step",
            summaries=(MEAN,),
        ),
    ),
    "Gradient": (
        Curve(
            tag="train/js/gradient_variance",
            title="Gradient variance",
            ylabel="squared gradient, log scale",
            note="trace of the covariance of a step's gradient",
            limits=FREE,
            log=True,
            summaries=(MEAN,),
            flag=GRADIENT_FLAG,
        ),
        Curve(
            tag="train/js/gradient_snr",
            title="Signal to noise of the gradient",
            ylabel="ratio",
            limits=FREE,
            flag=GRADIENT_FLAG,
        ),
        Curve(
            tag="train/js/gradient_noise_scale",
            title="Gradient noise scale",
            ylabel="responses",
            note="batch size at which signal equals noise",
            limits=FREE,
            flag=GRADIENT_FLAG,
        ),
        Curve(
            tag="train/actor_grad_norm",
            title="Gradient norm",
            ylabel="norm, before clipping",
            summaries=(MEAN,),
        ),
    ),
    "Responses": (
        Curve(
            tag="train/rollout/response_length_mean",
            title="Response length, tokens",
            ylabel="tokens",
            summaries=(LAST,),
        ),
        Curve(
            tag="train/rollout/truncated_rate",
            title="Truncated responses",
            ylabel="share of the responses",
            limits=SHARE,
        ),
        Curve(
            tag="train/kl",
            title="KL to the reference model",
            ylabel="nats per token",
            limits=FREE,
            summaries=(LAST,),
            flag="--algo.kl.init_coef",
        ),
        Curve(
            tag="train/ppo_kl",
            title="KL to the policy that generated",
            ylabel="nats per token",
            limits=FREE,
        ),
        Curve(
            tag="train/entropy_loss",
            title="Entropy of the policy",
            ylabel="nats per token",
            flag="--actor.entropy_coef",
        ),
    ),
    "Grading": (
        Curve(
            tag="train/status/(.+)",
            title="Graded as",
            ylabel="share of the responses",
        ),
        Curve(
            tag="train/accuracy/?(.*)",
            title="Correct answers",
            ylabel="share of the responses",
            limits=SHARE,
        ),
        Curve(
            tag="train/grading_seconds",
            title="Time to grade a response",
            ylabel="seconds, mean",
        ),
    ),
    CHOSEN: (
        Curve(
            tag="train/js/effective_prompts",
            title="Effective number of prompts",
            ylabel="prompts",
            note="so many, drawn uniformly, would be as concentrated",
            flag=SELECTION_FLAG,
        ),
        Curve(
            tag="train/js/oldest_prompt",
            title="Longest wait of a prompt",
            ylabel="steps since its last visit",
            flag=SELECTION_FLAG,
        ),
    ),
}
CURVES = tuple(itertools.chain(*SECTIONS.values()))
TIMINGS = (
    Curve(
        tag="train/timing/(.+)",
        title="Seconds",
        ylabel="seconds",
        summaries=(MEAN,),
        timing=True,
    ),
)


def by_step(tag: str, condition: Condition) -> pd.DataFrame:
    """(steps, seeds) values, at the steps that all seeds have."""
    logged = {}
    for seed, run in condition.by_seed.items():
        series = run.logged[tag]
        if len(series):
            logged[seed] = series
    if not logged:
        return pd.DataFrame()
    return pd.concat(logged, axis=1, join="inner")


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
    logged: set[str] = set()
    for condition in conditions:
        for run in condition.runs:
            logged.update(run.logged.tags)
    if curve.divisor and curve.divisor not in logged:
        return {}
    tag_titles = {}
    for tag in sorted(logged):
        match = re.fullmatch(curve.tag, tag)
        if match and _is_ever_nonzero(tag, conditions):
            names = [name for name in match.groups() if name not in ("", "held_out")]
            tag_titles[tag] = ", ".join([curve.title, *names])
    return tag_titles


def _is_ever_nonzero(tag: str, conditions: Sequence[Condition]) -> bool:
    """Whether somebody logged anything but 0, which stands for what was not measured."""
    return any(series.any() for condition in conditions for series in condition.series(tag))


def estimates(curve: Curve, tag: str, condition: Condition, window: int = 1) -> dict[int, Estimate]:
    """By step (MAX_POINTS at most), the mean over seeds of running averages, or of their ratios."""
    means = averages(curve, tag, condition, window)
    points = min(len(means), MAX_POINTS)
    evenly_spaced = np.linspace(len(means) - 1, 0, points)
    places = np.unique(evenly_spaced.round().astype(int))
    by_shown_step = {}
    for step, seeds in means.iloc[places].iterrows():
        by_shown_step[int(step)] = clustered_mean(seeds.to_numpy())
    return by_shown_step


def draw(
    curve: Curve, conditions: Sequence[Condition], smooth: int | None = None
) -> list[tuple[Panel, list[Row]]]:
    """The panels of a curve with their rows: one for each tag, a `run` for each condition."""
    drawn = []
    for tag, title in titles(curve, conditions).items():
        logging = [condition for condition in conditions if condition.series(tag)]
        window = _window(curve, tag, logging, smooth)
        rows: list[Row] = []
        for condition in logging:
            for step, estimate in estimates(curve, tag, condition, window).items():
                row = {"quantity": title, "run": condition.name, "step": step}
                rows.append(row | estimate._asdict())
        panel = Panel(
            title=title,
            ylabel=curve.ylabel,
            note=_note(curve, logging, window),
            limits=curve.limits,
            log=curve.log,
            reference=1.0 if curve.divisor else None,
            intervals="bars" if curve.sparse else "band",
        )
        if rows:
            drawn.append((panel, rows))
    return drawn


def _note(curve: Curve, conditions: Sequence[Condition], window: int) -> str:
    """What the lines and bands of a curve are."""
    notes = []
    if curve.note:
        notes.append(curve.note)
    if any(len(condition.runs) > 1 for condition in conditions):
        notes.append("95 % intervals over seeds")
    if window > 1:
        notes.append(f"running average of {window}")
    return "; ".join(notes)


def _window(curve: Curve, tag: str, conditions: Sequence[Condition], smooth: int | None) -> int:
    """How many logged values a running average of this curve takes."""
    if curve.sparse:
        return 1
    if smooth:
        return smooth
    logged = max(len(series) for condition in conditions for series in condition.series(tag))
    return round(SMOOTH_SHARE * logged) if logged > UNSMOOTHED else 1


def final_figures(conditions: Sequence[Condition], curves: Sequence[Curve]) -> list[dict[str, str]]:
    """Final figures with a column for each condition.

    Under each figure that several have is a row of its differences from the first condition's.
    """
    rows: list[dict[str, str]] = []
    for curve in curves:
        for tag, title in titles(curve, conditions).items():
            for summary in curve.summaries:
                values = {
                    condition.name: _by_seed(curve, tag, summary.share, condition)
                    for condition in conditions
                }
                if any(values.values()):
                    rows.append(_figure(f"{title}, {summary.name}", values, curve))
                    rows += _differences(values, curve)
    return rows


def _figure(
    heading: str, values: Mapping[str, Mapping[str, float]], curve: Curve
) -> dict[str, str]:
    """One figure of each condition, from its values by seed; "-" where it logged none."""
    row = {"": heading}
    for name, seeds in values.items():
        samples = list(seeds.values())
        if curve.timing and samples:
            samples = [fmean(samples)]
        row[name] = "-"
        if samples:
            value = clustered_mean(samples)
            row[name] = style.interval(value.value, value.low, value.high, curve.format)
    return row


def _differences(values: Mapping[str, Mapping[str, float]], curve: Curve) -> list[dict[str, str]]:
    """The row of differences from the first condition; nothing where none can be taken."""
    reference = next(iter(values))
    known = {name: seeds for name, seeds in values.items() if seeds}
    if curve.timing or reference not in known:
        return []
    row = {"": f"less that of {reference}"}
    for name in values:
        row[name] = ""
    comparisons = differences(known, reference)
    for comparison in comparisons:
        row[comparison.name] = _difference(comparison, curve.format)
    return [row] if comparisons else []


def _by_seed(curve: Curve, tag: str, share: float, condition: Condition) -> dict[str, float]:
    """The mean of each seed over the last steps that all have."""
    last_steps = max(1, round(share * len(by_step(tag, condition))))
    return dict(averages(curve, tag, condition, last_steps).tail(1).mean().dropna())


def _difference(comparison: Comparison, form: str) -> str:
    difference = comparison.difference
    text = style.interval(difference.value, difference.low, difference.high, f"+{form}")
    if not comparison.paired:
        text += ", unpaired"
    if math.isfinite(difference.low):
        text += f", p {comparison.corrected_p:.2g}"
    return text
