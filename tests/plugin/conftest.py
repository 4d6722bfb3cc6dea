"""The plug-in's tests import OpenRLHF in this process, as a CPU run's workers do."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _device():
    from openrlhf_js.plugin import run

    run.prepare_device("cpu")
