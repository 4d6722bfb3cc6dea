"""Which curves a report shows, as tidy rows: means over seeds with intervals, and final figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from openrlhf_js.report import runs, style
from openrlhf_js.report.plot import Panel, Row
from openrlhf_js.report.runs import Condition, Series
from openrlhf_js.stats import Estimate, clustered_mean, ratio_of_means

MAX_POINTS = 200  # of a line: a picture is no wider, and a page of thousands of steps stays small
BLOCKS = 20  # of consecutive steps, each taken as one draw
UNSMOOTHED = 100  # values; of longer runs a running average takes a share
SMOOTH_SHARE = 0.05
LAST_SHARE = 0.1  # of the steps, over which a final figure is the mean
SHARE, FROM_ZERO, FREE = (0.0, 1.0), (0.0, None), (None, None)  # limits of an axis
GRADIENT_FLAG = "--js.gradient_variance"
NOTE = (
    "Reward, length and KL are means over the last tenth of the steps, held-out pass@1 is the last "
    "one measured, and the rest are means over all steps. Brackets: 95 % intervals, over seeds, "
    "for pass@1 of a single seed over held-out prompts, for a ratio of single seeds over steps."
)


@dataclass(frozen=True)
class Curve:
    """A scalar that a report shows."""

    tag: str  # a regular expression; what its group matches is added to the title
    title: str
    ylabel: str
    note: str = ""
    limits: tuple[float | None, float | None] = FROM_ZERO
    log: bool = False
    summary: str = ""  # in the table: mean over the "last" tenth of the steps or "all"; "": not
    format: str = ".3g"
    how: str = ""  # the flag that has it logged, where not every run does


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
              "mean over prompts; without shrinkage, what js would take",
              SHARE, summary="all"),
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
        Curve("train/rollout/response_length_mean", "Response length, tokens", "tokens",
              summary="last"),
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
            ("step_total", "Training step, seconds"),
            ("generation", "Generation, seconds"),
            ("make_experience", "Rewards and advantages, seconds"),
            ("ppo_train", "Gradient updates, seconds"),
            ("broadcast", "Weights to vLLM, seconds"),
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
    """By step that all seeds have (MAX_POINTS at most), the mean of running averages over seeds."""
    steps, values = _common([running_mean(series, window) for series in seeds])
    drawn = np.linspace(len(steps) - 1, 0, min(len(steps), MAX_POINTS)).round().astype(int)
    return {steps[i]: clustered_mean(values[:, i]) for i in sorted(set(drawn.tolist()))}


def ratio(ours: Sequence[Series], theirs: Sequence[Series]) -> Estimate | None:
    """The mean of ours over that of theirs on the steps that all have; None where there is none.

    The interval is over seeds if both have the same number of several, else over blocks of steps.
    """
    steps, values = _common([*ours, *theirs])
    if not steps:
        return None
    a, b = np.split(values, [len(ours)])
    if len(a) == len(b) > 1:
        above, below, blocks = a.mean(1), b.mean(1), None
    else:
        above, below = a.mean(0), b.mean(0)
        blocks = np.arange(len(steps)) * min(BLOCKS, len(steps)) // len(steps)
    return ratio_of_means(above, below, blocks) if (below >= 0).all() and below.any() else None


def _common(seeds: Sequence[Series]) -> tuple[list[int], np.ndarray]:
    """The steps that every series has, and their values, (series, steps)."""
    first, *others = (series.steps for series in seeds)
    steps = sorted(set(first).intersection(*others))
    tables = [dict(zip(*series, strict=True)) for series in seeds]
    return steps, np.array([[table[s] for s in steps] for table in tables])


def titles(curve: Curve, conditions: Sequence[Condition]) -> dict[str, str]:
    """The title of each tag of a curve that somebody logged and that is not always 0."""
    found = {}
    for tag in sorted({tag for condition in conditions for tag in condition.tags}):
        match = re.fullmatch(curve.tag, tag)
        if match and any(any(s.values) for c in conditions for s in c.series(tag)):
            names = [name for name in match.groups() if name not in ("", "held_out")]
            found[tag] = ", ".join([curve.title, *names])
    return found


def estimates(curve: Curve, tag: str, condition: Condition, window: int = 1) -> dict[int, Estimate]:
    """By step, over seeds; of a single quickstart over held-out prompts, before and after."""
    found = over_seeds(condition.series(tag), 1 if curve is PASS_AT_1 else window)
    if curve is PASS_AT_1 and len(condition.runs) == 1:
        found = dict(sorted((found | condition.runs[0].evaluations).items()))
    return found


def draw(
    curve: Curve, conditions: Sequence[Condition], smooth: int | None = None
) -> list[tuple[Panel, list[Row]]]:
    """The panels of a curve with their rows: one for each tag, a `run` for each condition."""
    drawn = []
    for tag, title in titles(curve, conditions).items():
        shown = [c for c in conditions if c.series(tag)]
        logged = max(len(series.steps) for c in shown for series in c.series(tag))
        window = smooth or (round(SMOOTH_SHARE * logged) if logged > UNSMOOTHED else 1)
        rows: list[Row] = [
            {"quantity": title, "run": c.name, "step": step, **estimate._asdict()}
            for c in shown
            for step, estimate in estimates(curve, tag, c, window).items()
        ]
        missing = ", ".join(c.name for c in conditions if c not in shown)
        by_prompt = curve is PASS_AT_1 and any(run.evaluations for c in shown for run in c.runs)
        notes = {
            curve.note: True,
            "95 % intervals over seeds": any(len(c.runs) > 1 for c in shown),
            "95 % intervals over held-out prompts": by_prompt,
            f"running average of {window}": window > 1 and curve is not PASS_AT_1,
            f"not logged by {missing}": missing,
        }
        note = "; ".join(note for note, holds in notes.items() if note and holds)
        panel = Panel(title, curve.ylabel, note, curve.limits, curve.log)
        drawn.append((replace(panel, intervals="bars") if curve is PASS_AT_1 else panel, rows))
    return [(panel, rows) for panel, rows in drawn if rows]


def final_figures(conditions: Sequence[Condition]) -> list[dict[str, str]]:
    """A row for each quantity that a condition has, with a column for each condition."""
    rows = []
    for curve in (curve for section in SECTIONS.values() for curve in section if curve.summary):
        for tag, title in titles(curve, conditions).items():
            cells = {c.name: _cell(_final(curve, tag, c), curve.format) for c in conditions}
            rows.append({"": title} | cells)
            first, *others = (c for c in conditions if c.series(tag))
            if curve is VARIANCE and others:
                shares = {c.name: ratio(c.series(tag), first.series(tag)) for c in others}
                cells = {c.name: _cell(shares.get(c.name), ".3f") for c in conditions}
                rows.append({"": f"{title} over that of {first.name}"} | cells)
    return rows


def _final(curve: Curve, tag: str, condition: Condition) -> Estimate | None:
    seeds = condition.series(tag)
    if not seeds:
        return None
    if curve is PASS_AT_1:
        *_, last = estimates(curve, tag, condition).values() or [None]
        return last
    share = LAST_SHARE if curve.summary == "last" else 1
    kept = [series.values[-max(1, round(share * len(series.values))) :] for series in seeds]
    return clustered_mean([float(np.mean(values)) for values in kept])


def _cell(of: Estimate | None, form: str) -> str:
    return style.interval(of.value, of.low, of.high, form) if of else "-"
