"""The order of the tests, the time that each may take, and the signals that they hear."""

from __future__ import annotations

import signal

import pytest

INTEGRATION_TIMEOUT_SECONDS = 300


def pytest_configure() -> None:
    """Lets the programs under test hear Ctrl-C, which background jobs of a shell ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the runs of the real stack last, and gives them more time than a fast test gets."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is not None)
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))
