"""The programs beside the studies, for tests."""

import importlib
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "scripts/studies"


@pytest.fixture
def program(monkeypatch):
    """A program of scripts/studies as a module."""
    monkeypatch.syspath_prepend(str(STUDIES))
    loaded = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - loaded:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == STUDIES:
            del sys.modules[name]
