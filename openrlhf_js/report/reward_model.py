"""What was found about a reward model: rows for a table, plain words, and a page of its own."""

from __future__ import annotations

from typing import Any

from openrlhf_js.report import html
from openrlhf_js.report.reward_model_pictures import pictures

Row = tuple[str, ...]
SUBSET_COLUMNS = ("subset", "pairs", "prompts", "accuracy", "mean margin", "ties")
MUCH = 0.3  # a correlation with length that is worth a word
FEW_CLUSTERS = 20


def percent(of: float, digits: int = 0) -> str:
    """A share without an interval, such as `2 %`."""
    return f"{100 * of:.{digits}f} %"


def share(of: dict[str, float | None] | None) -> str:
    """An interval of a share, such as `84.2 % (82.9 to 85.5)`; `-` where there is none."""
    if of is None or of["value"] is None:
        return "-"
    value = percent(of["value"], 1)
    if of["low"] is None or of["high"] is None:
        return value
    return f"{value} ({100 * of['low']:.1f} to {100 * of['high']:.1f})"


def number(of: dict[str, float | None]) -> str:
    """An interval of any number, such as `1.84 (1.70 to 1.98)`."""
    low, high = of["low"], of["high"]
    ends = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    return f"{of['value']:.3g}{ends}"


def _plain(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def rows(found: dict[str, Any]) -> list[Row]:
    """What is measured, its figure, and what it means.

    Args:
        found: what stands in `evaluation.json`.
    """
    calibration, length, reward = found["calibration"], found["length"], found["reward"]
    unit = length["unit"]
    best = calibration["temperature"]
    return [
        ("pairs", f"{found['pairs']:,}", f"of {found['prompts']:,} prompts"),
        ("accuracy", share(found["accuracy"]), "95 % interval by prompt; a tie counts half"),
        ("ties", percent(found["ties"], 1), "of pairs whose rewards are the same"),
        ("mean margin", number(found["margin"]), "chosen less rejected reward"),
        ("log loss", f"{calibration['log_loss']:.3f}", "0.693 by chance"),
        (
            "calibration error",
            f"{calibration['error']:.3f}",
            f"ECE; an exact model would show about {calibration['error_by_chance']:.3f}",
        ),
        (
            "temperature",
            _plain(best),
            "divides the margins for the least log loss; above 1: too sure of itself"
            if best is not None
            else "no best one: every margin is positive, or the mean margin is not",
        ),
        (
            "reward",
            f"{reward['mean']:.4g} ± {reward['std']:.4g}",
            "mean and standard deviation"
            + (", to normalise with" if found["description"]["normalized"] is False else ""),
        ),
        _normalised(found["description"]),
        (
            "length and reward",
            "-" if length["correlation"] is None else number(length["correlation"]),
            f"correlation over responses; {_plain(length['correlation_within_pairs'])} within "
            f"pairs; length in {unit}",
        ),
        (
            "accuracy of length",
            share(length["accuracy_of_length_alone"]),
            "of taking the longer response, without a model",
        ),
        (
            "accuracy, balanced",
            share(length["accuracy_balanced"]),
            "if the chosen one were as often the longer as the shorter one",
        ),
        (
            "chosen is longer",
            share(length["accuracy_where_chosen_is_longer"]),
            f"accuracy there, {percent(length['share_chosen_longer'])} of pairs",
        ),
        (
            "chosen is shorter",
            share(length["accuracy_where_chosen_is_shorter"]),
            f"accuracy there, {percent(length['share_chosen_shorter'])} of pairs",
        ),
        (
            "lengths alike",
            share(length["accuracy_at_matched_length"]),
            f"accuracy within 10 %, {percent(length['share_of_matched_length'])} of pairs",
        ),
        (
            "without length",
            share(length["accuracy_without_linear_part"]),
            "accuracy of margins less what is proportional to the length difference",
        ),
        ("weight of length", _weight(length), f"log-odds per 100 {unit} beside the margin's"),
    ]


def _normalised(description: dict[str, Any]) -> Row:
    """Whether what was scored is the model's own rewards."""
    if description["normalized"]:
        formula = f"(reward - {description['mean']:g}) / {description['std']:g}"
        return ("normalised", "yes", f"the server gives {formula}")
    if description["normalized"] is None:
        return ("normalised", "not known", "the server does not say at /health")
    return ("normalised", "no", "these are the model's own rewards")


def _weight(length: dict[str, Any]) -> str:
    regression = length["regression"]
    if regression is None:
        return "-"
    weight = regression["length"]
    return f"{100 * weight['value']:+.3g} ± {196 * weight['standard_error']:.2g}"


def subset_rows(found: dict[str, Any]) -> list[Row]:
    """One row for each subset, under `SUBSET_COLUMNS`."""
    return [
        (
            name or "(none)",
            f"{part['pairs']:,}",
            f"{part['prompts']:,}",
            share(part["accuracy"]),
            number(part["margin"]),
            percent(part["ties"], 1),
        )
        for name, part in found["subsets"].items()
    ]


def in_words(found: dict[str, Any]) -> list[str]:
    """What to make of it, one sentence after the other; only what the figures bear out."""
    accuracy, length = found["accuracy"], found["length"]
    alone, calibration = length["accuracy_of_length_alone"], found["calibration"]
    said = [
        f"The model prefers the chosen response in {share(accuracy)} of {found['pairs']:,} pairs."
    ]
    if accuracy["low"] is not None and accuracy["low"] <= 0.5:
        said.append("That is not clearly better than a coin.")
    if found["prompts"] < FEW_CLUSTERS:
        said.append(f"{found['prompts']} prompts are few for an interval: take it with caution.")
    if alone["value"] >= accuracy["value"]:
        said.append(f"Taking the longer response would do as well: {share(alone)}.")
    within = length["correlation_within_pairs"]
    if within is not None and abs(within) > MUCH:
        favour = "longer" if within > 0 else "shorter"
        said.append(f"It favours {favour} responses: correlation {within:.2f} within pairs.")
    if calibration["error"] > 2 * calibration["error_by_chance"]:
        best = calibration["temperature"]
        sure = "" if best is None else " too sure" if best > 1 else " not sure enough"
        said.append(
            f"Its margins are not probabilities as they are: ECE {calibration['error']:.3f}"
            + (f", it is{sure}; a temperature of {best:.2f} mends most of it." if sure else ".")
        )
    if (normalized := found["description"]["normalized"]) is not False:
        who = (
            "The server normalises" if normalized else "If the server normalises (it does not say)"
        )
        said.append(f"{who}: reward, margins, log loss and calibration are of normalised scores.")
    return said


def page(found: dict[str, Any]) -> str:
    """The whole evaluation as one HTML file that needs no other.

    Args:
        found: what stands in `evaluation.json`.
    """
    title = f"Reward model {found['model']}"
    parts = [
        f"<h1>{html.text(title)}</h1>",
        *map(html.paragraph, [f"Measured on {found['file']}.", *in_words(found)]),
        html.table(("", "", "what it is"), rows(found)),
        *(html.figure(svg, name, name) for name, svg in pictures(found).items()),
    ]
    if found["subsets"]:
        parts += ["<h2>By subset</h2>", html.table(SUBSET_COLUMNS, subset_rows(found))]
    parts += ["<h2>What was measured</h2>", html.table((), measured(found))]
    return html.page(title, parts)


def measured(found: dict[str, Any]) -> list[Row]:
    """How the rewards came about: the model's settings, and the hashes of what decides them."""
    hashed = {"model", "texts"}
    named = {f"{k}, SHA-256" if k in hashed else k: v for k, v in found["identity"].items()}
    return [(name, _setting(value)) for name, value in {**found["description"], **named}.items()]


def _setting(value: Any) -> str:
    if isinstance(value, bool | None):
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(value) if isinstance(value, list) else str(value)
