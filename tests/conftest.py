"""The order of the tests, the time that each may take, and the signals that they hear."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import hypothesis
import pytest

LONGEST = "tests/integration/test_training.py"
INTEGRATION_TIMEOUT_SECONDS = 600

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Lets the programs under test hear Ctrl-C, which background jobs of a shell ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the runs of the real stack first, since they take longest, and gives them more time."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))


@pytest.fixture(autouse=True)
def logs_are_heard() -> Iterator[None]:
    """Undoes what programs that a test runs in this process do to all logging."""
    yield
    logging.disable(logging.NOTSET)
