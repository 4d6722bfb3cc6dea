"""What `rm eval` found about a reward model, in tables and words."""

from __future__ import annotations

from typing import Any

from openrlhf_js.report.text import with_interval
from openrlhf_js.reward_model.preferences import LEAST_TO_NORMALISE

FEW_PROMPTS = 20  # too few clusters for an interval

Evaluation = dict[str, Any]  # the content of evaluation.json
Interval = dict[str, float | None]


def figure_rows(evaluation: Evaluation) -> list[dict[str, str]]:
    """The rows of the table: figure, value and meaning."""
    calibration = evaluation["calibration"]
    reward = evaluation["reward"]
    length = evaluation["length"]
    labels = share(length["longer_preferred_by_labels"])
    normalise = "mean and std, to normalise with"
    if evaluation["pairs"] < LEAST_TO_NORMALISE:
        normalise = (
            f"mean and std, of too few pairs to normalise with ({LEAST_TO_NORMALISE} or more)"
        )
    rows = [
        ("pairs", f"{evaluation['pairs']:,}", f"of {evaluation['prompts']:,} prompts"),
        ("accuracy", share(evaluation["accuracy"]), "95 % interval by prompt; a tie counts half"),
        ("ties", f"{evaluation['ties']:.1%}", "pairs whose rewards are equal"),
        ("mean margin", number(evaluation["margin"]), "chosen minus rejected reward"),
        ("log loss", f"{calibration['log_loss']:.3f}", "0.693 by chance"),
        (
            "calibration error",
            f"{calibration['error']:.3f}",
            f"ECE; exact confidences would show about {calibration['error_by_chance']:.3f}",
        ),
        ("reward", f"{reward['mean']:.4g} ± {reward['std']:.4g}", normalise),
        ("accuracy of length", share(length["accuracy_of_length_alone"]), "preferring the longer"),
        (
            "prefers the longer",
            share(length["longer_preferred_by_model"]),
            f"the labels: {labels}; where lengths differ",
        ),
    ]
    return [dict(zip(("figure", "value", "meaning"), row, strict=True)) for row in rows]


def share(interval: Interval | None) -> str:
    """An interval of a share, such as `84.2 % (82.9 to 85.5)`; "-" where there is none."""
    return number(interval, scale=100, form=".1f", unit=" %")


def number(interval: Interval | None, scale: float = 1, form: str = ".3g", unit: str = "") -> str:
    """An interval of a number, such as `1.84 (1.7 to 1.98)`; "-" where there is none."""
    if interval is None:
        return "-"
    return with_interval(interval["value"], interval["low"], interval["high"], form, scale, unit)


def subset_rows(evaluation: Evaluation) -> list[dict[str, str]]:
    """One row for each subset."""
    return [
        {
            "subset": name or "(none)",
            "pairs": f"{subset['pairs']:,}",
            "prompts": f"{subset['prompts']:,}",
            "accuracy": share(subset["accuracy"]),
            "mean margin": number(subset["margin"]),
            "ties": f"{subset['ties']:.1%}",
        }
        for name, subset in evaluation["subsets"].items()
    ]


def in_words(evaluation: Evaluation) -> list[str]:
    """What the figures say, one sentence each."""
    accuracy = evaluation["accuracy"]
    pairs = evaluation["pairs"]
    sentences = [f"The model prefers the chosen response in {share(accuracy)} of {pairs:,} pairs."]
    again = evaluation["repetitions"]
    if any(again.values()):
        sentences.append(
            f"Of these, {again['repeated']:,} repeat an earlier pair and {again['reversed']:,} are "
            "one with its sides swapped: each counts."
        )
    if accuracy["low"] is not None and accuracy["low"] <= 0.5:
        sentences.append("That is not clearly better than chance.")
    if evaluation["prompts"] < FEW_PROMPTS:
        sentences.append(
            f"{evaluation['prompts']} prompts are few for an interval: do not rely on it."
        )
    length_alone = evaluation["length"]["accuracy_of_length_alone"]
    if length_alone["value"] >= accuracy["value"]:
        sentences.append(f"Preferring the longer response would do as well: {share(length_alone)}.")
    calibration = evaluation["calibration"]
    if calibration["error"] > 2 * calibration["error_by_chance"]:
        sentences.append(
            f"Its confidences are off: calibration error {calibration['error']:.3f}, "
            f"against {calibration['error_by_chance']:.3f} by chance."
        )
    return sentences
