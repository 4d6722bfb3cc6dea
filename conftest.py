"""What tests may import, their order, the time that each may take, the signals that they hear."""

import gc
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Modules that tests of several folders share.
FOLDERS = ("tests", "tests/integration", "tests/reward_model", "eval/tests", "reward_models/tests")
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in FOLDERS]

# Of the runs of the stack and of the other tests: what would keep one process busy at the end.
LONGEST = (
    *("tests/integration/test_quickstart.py", "tests/integration/test_reward_training.py"),
    "tests/integration/test_training.py",
    *("tests/test_docs.py", "research/tests/study/test_study_program.py"),
)
INTEGRATION_TIMEOUT_SECONDS = 600

hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_configure() -> None:
    """Lets the programs under test hear Ctrl-C, which background jobs of a shell ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # imports leave little garbage


def pytest_collection_finish() -> None:
    """What has been imported stays: a collection of garbage need not look at it each time."""
    gc.freeze()
    gc.enable()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # of pytest alone, whose processes share the cores


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


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are not drawn: most of a small program's time."""
    save = "paired_eval.pages.style.save_png"
    monkeypatch.setattr(save, lambda drawn, path, **_: path.write_bytes(b"\x89PNG") and path)
