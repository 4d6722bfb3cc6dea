"""Which curves a report shows, as tidy rows: means over seeds with intervals, and final figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from openrlhf_js.report import runs
from openrlhf_js.report.plot import Panel, Row, plot
from openrlhf_js.report.runs import Condition, Series
from openrlhf_js.stats import Estimate, clustered_mean, ratio_of_means

STEP = "training step"
MAX_POINTS = 200  # of a line: a picture is no wider, and a page of thousands of steps stays small
MAX_RANGES = 2  # of least and greatest values in one picture
BLOCKS = 20  # of consecutive steps, each taken as one draw
UNSMOOTHED = 100  # values; of longer runs a running average takes a share
SMOOTH_SHARE = 0.05
LAST_SHARE = 0.1  # of the steps, over which a final figure is the mean
SHARE, FROM_ZERO, FREE = (0.0, 1.0), (0.0, None), (None, None)  # limits of an axis
GRADIENT_FLAG = "--js.gradient_variance"
NOTE = (
    "Reward, length and KL are means over the last tenth of the steps, held-out pass@1 is the last "
    "one measured, and the rest are means over all steps. Brackets are 95 % intervals: over seeds, "
    "for pass@1 of a single seed over held-out prompts, for a ratio of single seeds over steps."
)


@dataclass(frozen=True)
class Curve:
    """A scalar that a report shows."""

    tag: str
    """A regular expression; what its group matches is added to the title."""
    title: str
    ylabel: str
    note: str = ""
    limits: tuple[float | None, float | None] = FROM_ZERO
    log: bool = False
    summary: str = ""
    """In the table: the mean over the "last" tenth of the steps, or over "all"; "": not at all."""
    format: str = ".3g"
    how: str = ""
    """The flag that has it logged, where not every run does."""
    extremes: tuple[str, ...] = ()
    """Tags of the least and greatest value within a step."""


# fmt: off
VARIANCE = Curve(
    "train/js/gradient_variance", "Gradient variance", "squared gradient, log scale",
    "trace of the covariance of a step's gradient", limits=FREE, log=True, summary="all",
    how=GRADIENT_FLAG,
)
PASS_AT_1 = Curve(
    r"eval/eval_(.+)_pass1", "Held-out pass@1", "share of the responses", limits=SHARE,
    summary="last", format=".1%",
)
SECTIONS: dict[str, tuple[Curve, ...]] = {
    "Learning": (
        Curve(runs.REWARD, "Training reward", "reward, mean over the batch", limits=FREE,
              summary="last", format=".3f"),
        PASS_AT_1,
        Curve("train/rollout/reward_std", "Spread of rewards", "standard deviation over the batch"),
    ),
    "Shrinkage": (
        Curve(runs.SHRINKAGE, "Shrinkage λ", "λ, 0: rloo, 1: bloo",
              "mean over the prompts; for an estimator that does not shrink, what js would take",
              SHARE, summary="all", extremes=(runs.SHRINKAGE_MIN, runs.SHRINKAGE_MAX)),
        Curve("train/js/within_variance", "v: noise of a prompt's mean reward", "squared reward",
              "mean over the prompts of the batch"),
        Curve("train/js/between_variance", "s: spread between prompts", "squared reward",
              "variance of the prompts' mean rewards"),
        Curve("train/js/all_equal_groups", "Degenerate groups", "share of the groups",
              "all responses to the prompt have the same reward", SHARE, summary="all"),
        Curve("train/js/masked_responses", "Masked responses", "responses in a step",
              summary="all"),
    ),
    "Gradient": (
        VARIANCE,
        Curve("train/js/gradient_norm_squared", "Squared norm of the mean gradient",
              "squared gradient", "unbiased, so that it may fall below 0", FREE, how=GRADIENT_FLAG),
        Curve("train/js/gradient_snr", "Signal to noise of the gradient", "ratio", "", FREE,
              how=GRADIENT_FLAG),
        Curve("train/js/gradient_noise_scale", "Gradient noise scale", "responses",
              "batch size at which signal equals noise", FREE, how=GRADIENT_FLAG),
        Curve(runs.GRADIENT_NORM, "Gradient norm", "norm, before clipping"),
    ),
    "Responses": (
        Curve("train/rollout/response_length_mean", "Response length", "tokens", summary="last"),
        Curve("train/rollout/truncated_rate", "Truncated responses", "share of the responses",
              limits=SHARE),
        Curve("train/kl", "KL to the reference model", "nats per token", "", FREE, summary="last",
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
    "Time": tuple(
        Curve(f"train/timing/{tag}", title, "seconds", summary="all")
        for tag, title in (
            ("step_total", "Time of a training step"),
            ("generation", "Time of generation"),
            ("make_experience", "Time of rewards and advantages"),
            ("ppo_train", "Time of gradient updates"),
            ("broadcast", "Time to send weights to vLLM"),
        )
    ),
}
# fmt: on


def running_mean(series: Series, window: int) -> Series:
    """At each step the mean of the last `window` values; a shorter series becomes one point."""
    window = min(window, len(series.values))
    means = np.lib.stride_tricks.sliding_window_view(np.array(series.values), window).mean(1)
    return Series(series.steps[window - 1 :], means.tolist())


def over_seeds(seeds: Sequence[Series], window: int = 1) -> dict[int, Estimate]:
    """By step, the mean over seeds of running averages with its interval.

    Only steps that all seeds have are kept, and of them 200 at most.
    """
    steps, values = _common([running_mean(series, window) for series in seeds])
    return {steps[i]: clustered_mean(values[:, i]) for i in _thinned(len(steps))}


def ratio(
    ours: Sequence[Series], theirs: Sequence[Series], window: int | None = None
) -> dict[int, Estimate]:
    """By step, the mean of ours over that of theirs, within a window; None: over all steps.

    The interval is over seeds if both have the same number of several, else over blocks of steps.
    """
    steps, values = _common([*ours, *theirs])
    if not steps:
        return {}
    found, window = {}, min(window or len(steps), len(steps))
    for begin in _thinned(len(steps) - window + 1):
        a, b = np.split(values[:, begin : begin + window], [len(ours)])
        if len(a) == len(b) > 1:
            above, below, blocks = a.mean(1), b.mean(1), None
        else:
            above, below = a.mean(0), b.mean(0)
            blocks = np.arange(window) * min(BLOCKS, window) // window
        if (below >= 0).all() and below.any():
            found[steps[begin + window - 1]] = ratio_of_means(above, below, blocks)
    return found


def _common(seeds: Sequence[Series]) -> tuple[list[int], np.ndarray]:
    """The steps that every series has, and their values, (series, steps)."""
    first, *others = (series.steps for series in seeds)
    steps = sorted(set(first).intersection(*others))
    tables = [dict(zip(*series, strict=True)) for series in seeds]
    return steps, np.array([[table[s] for s in steps] for table in tables])


def _thinned(count: int) -> list[int]:
    """Which of so many points are drawn; the first and the last one are."""
    return sorted({round(i) for i in np.linspace(count - 1, 0, min(count, MAX_POINTS))})


def titles(curve: Curve, conditions: Sequence[Condition]) -> dict[str, str]:
    """The title of each tag of a curve that somebody logged and that is not always 0."""
    found = {}
    for tag in sorted({tag for condition in conditions for tag in condition.tags}):
        match = re.fullmatch(curve.tag, tag)
        if match and any(any(s.values) for c in conditions for s in c.series(tag)):
            found[tag] = ", ".join([curve.title, *filter(None, match.groups())])
    return found


def pass_at_1(condition: Condition, tag: str, alone: bool) -> dict[int, Estimate]:
    """pass@1 by step: over seeds; of a single run over its held-out prompts, where files have them.

    Such files are of the only set of held-out prompts; where there are several (not `alone`),
    nobody knows of which.
    """
    seeds = condition.series(tag)
    if not seeds or len(condition.runs) > 1:
        return over_seeds(seeds) if seeds else {}
    found = {s: Estimate(v, -math.inf, math.inf) for s, v in zip(*seeds[0], strict=True)}
    evaluations = condition.runs[0].evaluations if alone else {}
    found |= {s: clustered_mean(list(scores.values())) for s, scores in evaluations.items()}
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Drawn:
    """A panel with its rows: run, step, value, low, high."""

    panel: Panel
    note: str
    rows: list[Row]

    def figure(self, looks: Mapping[str, dict[str, Any]]) -> Figure:
        """The picture, as high as the names of its lines need."""
        size = 5.0, max(3.2, 1.2 + 0.17 * len({row["run"] for row in self.rows}))
        named = {self.panel.title: self.panel}
        return plot(self.rows, named, x="step", xlabel=STEP, line="run", size=size, looks=looks)


def draw(curve: Curve, conditions: Sequence[Condition], smooth: int | None) -> list[Drawn]:
    """The panels of a curve: one for each tag, none if nobody logged it.

    Args:
        curve: what to draw.
        conditions: a line each; the first one is what ratios are to.
        smooth: values of the running average, None for a share of long runs.
    """
    drawn = []
    for tag, title in (found := titles(curve, conditions)).items():
        shown = [c for c in conditions if c.series(tag)]
        seeds = any(len(c.runs) > 1 for c in shown)
        logged = max(len(series.steps) for c in shown for series in c.series(tag))
        window = smooth or (round(SMOOTH_SHARE * logged) if logged > UNSMOOTHED else 1)
        averaged = f"running average of {window}" if window > 1 else ""
        missing = ", ".join(c.name for c in conditions if c not in shown)
        absent = f"not logged by {missing}" if missing else ""
        interval = "95 % interval over seeds" if seeds else ""
        estimates = {c.name: over_seeds(c.series(tag), window) for c in shown}
        if curve is PASS_AT_1:
            estimates = {c.name: pass_at_1(c, tag, len(found) == 1) for c in shown}
            averaged = ""
            if any(run.evaluations for c in shown for run in c.runs if len(c.runs) == 1):
                interval = "95 % intervals over " + "seeds or " * seeds + "held-out prompts"
        elif curve.extremes and len(shown) <= MAX_RANGES:
            interval = "band: least and greatest"
            ends = [
                {c.name: over_seeds(c.series(t), window) for c in shown if c.series(t)}
                for t in curve.extremes
            ]
            estimates = {
                name: {
                    step: Estimate(e.value, *(end[name][step].value for end in ends))
                    for step, e in each.items()
                    if all(step in end.get(name, ()) for end in ends)
                }
                for name, each in estimates.items()
            }
        panel = Panel(
            title,
            curve.ylabel,
            limits=curve.limits,
            log=curve.log,
            intervals="bars" if curve is PASS_AT_1 else "band",
        )
        drawn.append(
            Drawn(panel, _joined(curve.note, interval, averaged, absent), _rows(title, estimates))
        )
        if curve is VARIANCE and len(shown) > 1:
            first, *others = shown
            title = f"Gradient variance over that of {first.name}"
            shares = {c.name: ratio(c.series(tag), first.series(tag), window) for c in others}
            note = "below 1: less variance; each run is on its own trajectory"
            panel = Panel(title, "ratio", reference=1)
            drawn.append(Drawn(panel, _joined(note, averaged, absent), _rows(title, shares)))
    return [each for each in drawn if each.rows]


def _rows(quantity: str, estimates: Mapping[str, Mapping[int, Estimate]]) -> list[Row]:
    return [
        {"quantity": quantity, "run": run, "step": step, **estimate._asdict()}
        for run, of_run in estimates.items()
        for step, estimate in of_run.items()
    ]


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def final_figures(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    """A row for each quantity that a condition has, with a column for each condition.

    The cells are numbers with 95 % intervals, such as `0.71 [0.69, 0.73]`.
    """
    rows = []
    for curve in (curve for section in SECTIONS.values() for curve in section if curve.summary):
        for tag, title in (found := titles(curve, conditions)).items():
            alone = len(found) == 1
            cells = {c.name: cell(_final(curve, tag, c, alone), curve.format) for c in conditions}
            rows.append({"": title} | cells)
            first, *others = (c for c in conditions if c.series(tag))
            if curve is VARIANCE and others:
                shares = {c.name: ratio(c.series(tag), first.series(tag)) for c in others}
                ends = {
                    name: cell(next(iter(of.values()), None), ".3f") for name, of in shares.items()
                }
                blank = {c.name: "-" for c in conditions}
                rows.append({"": f"{title} over that of {first.name}"} | blank | ends)
    return rows


def _final(curve: Curve, tag: str, condition: Condition, alone: bool) -> Estimate | None:
    seeds = condition.series(tag)
    if not seeds:
        return None
    if curve is PASS_AT_1:
        found = pass_at_1(condition, tag, alone)
        return found[max(found)] if found else None
    share = LAST_SHARE if curve.summary == "last" else 1
    kept = [series.values[-max(1, round(share * len(series.values))) :] for series in seeds]
    return clustered_mean([float(np.mean(values)) for values in kept])


def cell(of: Estimate | None, form: str) -> str:
    """An estimate as `0.71 [0.69, 0.73]`, without brackets where it has no interval."""
    if of is None:
        return "-"
    bounded = math.isfinite(of.low) and math.isfinite(of.high)
    return f"{of.value:{form}}" + f" [{of.low:{form}}, {of.high:{form}}]" * bounded
