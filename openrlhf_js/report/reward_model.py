"""What was found about a reward model: rows for a table, plain words, and a page of its own."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from typing import Any

from openrlhf_js.report.reward_model_pictures import pictures, printable

Row = tuple[str, ...]
SUBSET_COLUMNS = ("subset", "pairs", "prompts", "accuracy", "mean margin", "ties")
MUCH = 0.3  # a correlation with length that is worth a word
FEW_CLUSTERS = 20

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #37352f; max-width: 74rem; margin: 2rem auto;
       padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #e3e2e0;
         vertical-align: top; overflow-wrap: anywhere }
figure { display: inline-block; vertical-align: top; margin: 0 1rem 1rem 0; max-width: 100% }
figure img { max-width: 100%; height: auto }
figcaption { font-weight: 600 }
"""


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
            "mean and standard deviation, to normalise with",
        ),
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
    return said


def page(found: dict[str, Any]) -> str:
    """The whole evaluation as one HTML file that needs no other.

    Args:
        found: what stands in `evaluation.json`.
    """
    title = f"Reward model {found['model']}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>Measured on {_text(found['file'])}.</p>",
        "".join(f"<p>{_text(sentence)}</p>" for sentence in in_words(found)),
        _table(("", "", "what it is"), rows(found)),
        "".join(
            f"<figure><figcaption>{_text(name)}</figcaption>"
            f'<img alt="{_text(name)}" src="{_address(svg)}"></figure>'
            for name, svg in pictures(found).items()
        ),
    ]
    if found["subsets"]:
        parts += ["<h2>By subset</h2>", _table(SUBSET_COLUMNS, subset_rows(found))]
    parts += ["<h2>What was measured</h2>", _table((), measured(found))]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def measured(found: dict[str, Any]) -> list[Row]:
    """How the rewards came about: the model's settings, and the hashes of what decides them."""
    hashed = {"model", "texts"}
    named = {f"{k}, SHA-256" if k in hashed else k: v for k, v in found["identity"].items()}
    return [(name, str(value)) for name, value in {**found["description"], **named}.items()]


def _address(svg: str) -> str:
    """The picture itself as an address: two in one page would share names of their parts."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _table(columns: Sequence[str], body: Sequence[Row]) -> str:
    head = "".join(f"<th>{_text(each)}</th>" for each in columns)
    lines = ("<tr>" + "".join(f"<td>{_text(each)}</td>" for each in row) + "</tr>" for row in body)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _text(name: str) -> str:
    """Text of a page; names come from files, and may hold anything."""
    return html.escape(printable(name))
