"""The order of the tests, the time that each may take, and the signals that they hear."""

from __future__ import annotations

import signal

import hypothesis
import pytest

INTEGRATION_TIMEOUT_SECONDS = 600

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Lets the programs under test hear Ctrl-C, which background jobs of a shell ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives the runs of the real stack more time, and all to one worker."""
    if item.get_closest_marker("integration"):
        item.add_marker(pytest.mark.xdist_group("stack"))
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the stack first: it takes longest."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)
