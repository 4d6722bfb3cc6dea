"""The order of the tests, and the time that each may take."""

from __future__ import annotations

import pytest

INTEGRATION_TIMEOUT_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the runs of the real stack last, and gives them more time than a fast test gets."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is not None)
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))
