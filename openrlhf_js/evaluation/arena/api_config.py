"""Endpoints as the official repository's `api_config.yaml` names them."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.settings import read_yaml
from openrlhf_js.evaluation.endpoint import Endpoint

# where a model is that has no endpoints of its own, and whose key that takes
OPENAI = {"api_base": "https://api.openai.com/v1", "api_key": "$OPENAI_API_KEY"}
SPOKEN = ("openai", "openai_thinking")  # the kinds of endpoints that are understood
NO_KEYS = ("", "-", "EMPTY")
HELD = "OPENRLHF_JS_FILE_KEY_{number}"  # environment variable of a key that stood in a file

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class ApiModel(NamedTuple):
    """A model that endpoints serve.

    Attributes:
        endpoints: one or more.
        parallel: requests at the same time; None where the file does not say.
        temperature: None where the file does not say; `max_tokens` likewise.
        system: message, "" for none.
        thinking: whether it is a thinking model of OpenAI's, which takes no temperature, and whose
            tokens are limited by `max_completion_tokens`.
    """

    endpoints: tuple[Endpoint, ...]
    parallel: int | None
    temperature: float | None
    max_tokens: int | None
    system: str
    thinking: bool = False


def read_api_model(path: Path, name: str, warn: Callable[[str], None]) -> ApiModel:
    """A model of an `api_config.yaml`.

    A key is best a variable of the environment, `api_key: $NAME`. One that stands in the file is
    put into the environment of this process, and is neither shown nor written anywhere.

    Args:
        path: the file.
        name: of the model in it.
        warn: told of keys in the file.

    Raises:
        OSError: the file cannot be read. ValueError: what is wrong with it; no error shows a key.
    """
    values = read_yaml(path)
    entry = values.get(name)
    if not isinstance(entry, dict):
        raise ValueError(f"{path} has no {name!r}; it has {', '.join(values)[:300]}")
    place = f"{path}, {name}"
    kind = entry.get("api_type", "openai")
    if kind not in SPOKEN:
        raise ValueError(
            f"{place}: 'api_type' is {reprlib.repr(kind)}; {' and '.join(SPOKEN)} are understood. "
            "Most providers have an OpenAI-compatible address as well: give that"
        )
    if entry.get("local_engine"):
        raise ValueError(f"{place}: 'local_engine': give the model's folder or hub id instead")
    given = entry.get("endpoints") or [OPENAI]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise ValueError(f"{place}: 'endpoints' must be a list of 'api_base' and 'api_key'")
    model = entry.get("model") or entry.get("model_name") or name
    endpoints = tuple(
        _endpoint(each, str(model), number, place, warn) for number, each in enumerate(given, 1)
    )
    thinking = kind == "openai_thinking"
    return ApiModel(
        endpoints,
        _number(entry, "parallel", int, place),
        None if thinking else _number(entry, "temperature", float, place),
        _number(entry, "max_tokens", int, place),
        _text(entry, ("sys_prompt", "system_prompt"), place),
        thinking,
    )


def _endpoint(
    given: Mapping[str, Any], model: str, number: int, place: str, warn: Callable[[str], None]
) -> Endpoint:
    base, key = given.get("api_base"), given.get("api_key")
    if not isinstance(base, str):
        raise ValueError(
            f"{place}: endpoint {number} has no 'api_base', such as {OPENAI['api_base']}"
        )
    own = given.get("model_name") or model
    return Endpoint(base, str(own), _key_name(key, number, place, warn))


def _key_name(key: Any, number: int, place: str, warn: Callable[[str], None]) -> str | None:
    """The environment variable that has an endpoint's key."""
    if key is None or key in NO_KEYS:
        return None
    if not isinstance(key, str):
        raise ValueError(f"{place}: the 'api_key' of endpoint {number} must be text")
    variable = _VARIABLE.fullmatch(key)
    if variable:
        return variable[1]
    if key.startswith("<"):
        raise ValueError(f"{place}: the 'api_key' of endpoint {number} is an example: give $NAME")
    warn(
        f"{place}: endpoint {number} has its key in the file; put it into an environment variable "
        "NAME, and write 'api_key: $NAME'"
    )
    held = HELD.format(number=number)
    os.environ[held] = key
    return held


def _number(entry: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    value = entry.get(name)
    if value is None:
        return None
    if (
        type(value) not in (int, kind)
        or not 0 <= value < float("inf")
        or (kind is int and not value)
    ):
        raise ValueError(f"{place}: {name!r} must be a number, not {reprlib.repr(value)}")
    return kind(value)


def _text(entry: Mapping[str, Any], names: tuple[str, ...], place: str) -> str:
    value = next((entry[name] for name in names if entry.get(name) is not None), "")
    if not isinstance(value, str):
        raise ValueError(f"{place}: {names[0]!r} must be text, not {reprlib.repr(value)}")
    return value
