"""Settings of a judge as YAML: the official file's keys, and prices and limits besides."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from openrlhf_js.evaluation.arena.benches import EVERY
from openrlhf_js.evaluation.arena.verdict import PATTERNS, check_patterns
from openrlhf_js.evaluation.rates import Limits

LARGEST_BYTES = 2**20  # of a settings file
TOKENS_NAMES = ("max_tokens", "max_completion_tokens")  # what endpoints call it

# keys of the official files that say nothing to this program, and what they may say
_FIXED: dict[str, tuple[Any, ...]] = {
    "reference": (None, False, []),
    "ref_model": (None, []),
    "pairwise": (None, True),
    "baseline": (None, True),
}
_IGNORED = ("name", "number_of_judgment_attempts")


@dataclass(frozen=True)
class Price:
    """What a judge costs, in dollars per million tokens."""

    input: float
    output: float


@dataclass(frozen=True)
class JudgeSettings:
    """What a settings file says.

    Attributes:
        judge_model: the judge's name, that of its folder of judgments too.
        max_tokens: of a reply.
        temperature: None: it is not sent, for models that take none.
        max_tokens_name: what the endpoint calls max_tokens, one of `TOKENS_NAMES`.
        bench_name: "" where the file does not say.
        regex_patterns: that find the verdict, tried in order.
        prompt_template: with {QUESTION}, {ANSWER_A} and {ANSWER_B}; "" where there is none.
        system_prompts: by category, `EVERY` for the rest; empty where there is none.
        baselines: by category, `EVERY` for the rest; empty: the bench's.
        model_list: the models to judge; empty: those that the command names.
        prices: by judge.
        limits: of the endpoint.
    """

    judge_model: str
    max_tokens: int
    temperature: float | None = None
    bench_name: str = ""
    regex_patterns: tuple[str, ...] = PATTERNS
    prompt_template: str = ""
    system_prompts: Mapping[str, str] = field(default_factory=dict)
    baselines: Mapping[str, str] = field(default_factory=dict)
    model_list: tuple[str, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    max_tokens_name: str = TOKENS_NAMES[0]


def read_yaml(path: Path) -> dict[str, Any]:
    """What a YAML file holds: values by name.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, no YAML, or holds something else.
    """
    import yaml  # type: ignore[import-untyped]

    with path.open("rb") as file:
        text = file.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"{path} is larger than {LARGEST_BYTES // 2**20} MiB: no settings file")
    try:
        value = yaml.safe_load(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at {error.start})") from None
    except yaml.MarkedYAMLError as error:
        # its own message quotes the line, and a line may hold a key
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = re.sub(r"(alias|anchor|tag) .*", r"\1", str(error.problem))  # nor its name
        raise ValueError(f"{path}, line {line}: not YAML ({problem})") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise ValueError(f"{path} is not YAML that can be read") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold 'name: value' lines, not {type(value).__name__}")
    return {str(name): each for name, each in value.items()}


def read_settings(path: Path, warn: Callable[[str], None]) -> JudgeSettings:
    """The settings of a judge.

    Args:
        path: of the official repository, or our own.
        warn: told of each key that says nothing to this program.

    Raises:
        OSError: the file cannot be read.
        ValueError: what is wrong with which key.
    """
    values = read_yaml(path)
    try:
        settings, unknown = _settings(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name in unknown:
        warn(f"{path}: the key {name!r:.60} is unknown here; it is left out")
    return settings


def _settings(values: dict[str, Any]) -> tuple[JudgeSettings, list[str]]:
    given = dict(values)
    for name, allowed in _FIXED.items():
        value = given.pop(name, None)
        if value not in allowed:
            raise ValueError(f"{name!r} is {reprlib.repr(value)}, which is not supported here")
    for name in _IGNORED:
        given.pop(name, None)
    pattern = given.pop("regex_pattern", None)  # of older files: the first of two
    patterns = given.pop("regex_patterns", None) or ([pattern] if pattern else PATTERNS)
    check_patterns(_texts(patterns, "regex_patterns"))
    baselines = given.pop("baselines", None) or given.pop("baseline_model", None)
    settings = JudgeSettings(
        judge_model=_text(given.pop("judge_model", None), "judge_model"),
        max_tokens=_whole(given.pop("max_tokens", None), "max_tokens"),
        temperature=_temperature(given.pop("temperature", None)),
        bench_name=_text(given.pop("bench_name", ""), "bench_name", empty=True),
        regex_patterns=_texts(patterns, "regex_patterns"),
        prompt_template=_template(given.pop("prompt_template", None)),
        system_prompts=_by_category(given.pop("system_prompt", None), "system_prompt"),
        baselines=_by_category(baselines, "baselines"),
        model_list=_texts(given.pop("model_list", None) or (), "model_list"),
        prices=_prices(given.pop("prices", None)),
        limits=limits_of(given.pop("limits", None)),
        max_tokens_name=_tokens_name(given.pop("max_tokens_name", None)),
    )
    return settings, list(given)


def limits_of(value: Any) -> Limits:
    """The limits of an endpoint, from what is under `limits`.

    Raises:
        ValueError: an unknown limit, or one that is no number.
    """
    if value is None:
        return Limits()
    names = [each.name for each in fields(Limits)]
    if not isinstance(value, dict) or not set(value) <= set(names):
        raise ValueError(f"'limits' may hold {', '.join(names)}; it is {reprlib.repr(value)}")
    try:
        return Limits(**value)
    except ValueError as error:
        raise ValueError(f"'limits': {error}") from None


def _template(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = _text(value, "prompt_template")
    # the older schema's names; the answer shown first is answer_1
    for old, new in (
        ("{question_1}", "{QUESTION}"),
        ("{answer_1}", "{ANSWER_A}"),
        ("{answer_2}", "{ANSWER_B}"),
    ):
        text = text.replace(old, new)
    for place in ("{QUESTION}", "{ANSWER_A}", "{ANSWER_B}"):
        if text.count(place) != 1:
            raise ValueError(
                f"'prompt_template' must hold {place} once; it has it {text.count(place)} times"
            )
    return text


def _by_category(value: Any, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {EVERY: value}
    if isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(each, str) and each for key, each in value.items()
    ):
        return value
    raise ValueError(f"{name!r} must be text, or texts by category, not {reprlib.repr(value)}")


def _prices(value: Any) -> dict[str, Price]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(
            "'prices' must hold prices by judge, such as 'judge: {input: 1, output: 2}'"
        )
    return {str(judge): _price(each, str(judge)) for judge, each in value.items()}


def _price(value: Any, judge: str) -> Price:
    names = {each.name for each in fields(Price)}
    if not isinstance(value, dict) or set(value) != names:
        raise ValueError(
            f"the price of {judge!r} must be {{input: ..., output: ...}}, in dollars per million "
            f"tokens, not {reprlib.repr(value)}"
        )
    for name, each in value.items():
        if type(each) not in (int, float) or not 0 <= each < math.inf:
            raise ValueError(
                f"the {name} price of {judge!r} must be 0 or more dollars per million tokens, not "
                f"{reprlib.repr(each)}"
            )
    return Price(**value)


def _tokens_name(value: Any) -> str:
    if value is None:
        return TOKENS_NAMES[0]
    if value not in TOKENS_NAMES:
        raise ValueError(
            f"'max_tokens_name' must be {' or '.join(TOKENS_NAMES)}, not {reprlib.repr(value)}"
        )
    return str(value)


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 10:
        raise ValueError(f"'temperature' must be a number from 0 on, not {reprlib.repr(value)}")
    return float(value)


def _text(value: Any, name: str, *, empty: bool = False) -> str:
    if isinstance(value, str) and (value or empty):
        return value
    raise ValueError(f"{name!r} must be text, not {reprlib.repr(value)}")


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    raise ValueError(f"{name!r} must be a list of texts, not {reprlib.repr(value)}")


def _whole(value: Any, name: str) -> int:
    if type(value) is int and value > 0:
        return value
    raise ValueError(f"{name!r} must be a whole number of 1 or more, not {reprlib.repr(value)}")
