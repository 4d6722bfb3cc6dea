"""Labels that are JSON: how the generated tasks read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def read_label(label: str, take: Callable[[Any], T], form: str) -> T:
    """What a label holds.

    Args:
        label: JSON.
        take: makes it of the parsed JSON, and raises ValueError, or whatever looking into values of
            another form raises, where that is no label of the task.
        form: what a label must be, for a person.

    Raises:
        ValueError: it is no label; the message says what came, and the form.
    """
    try:
        return take(json.loads(label))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError(f"a label is {form}, got {label!r:.200}") from None
