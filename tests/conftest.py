"""The order of the tests, the time that each may take, and the signals that they hear."""

from __future__ import annotations

import signal
from typing import Any

import hypothesis
import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

STACK = "tests/integration/"

INTEGRATION_TIMEOUT_SECONDS = 600

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Lets the programs under test hear Ctrl-C, which background jobs of a shell ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the runs of the real stack first, since they take longest, and gives them more time."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))


class StackInOneWorker(LoadScopeScheduling):
    """Gives whole files to workers, and the files of tests/integration to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return "stack" if nodeid.startswith(STACK) else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> StackInOneWorker:
    """As pytest-xdist asks for it."""
    return StackInOneWorker(config, log)
