"""vLLM calls `register` in each of its processes (entry point `vllm.general_plugins`)."""

from __future__ import annotations

import os


def register() -> None:
    """Prepares a vLLM process for CPU if the run is a CPU run of ours, else does nothing."""
    if os.environ.get("OPENRLHF_JS_DEVICE") == "cpu":
        from openrlhf_js.plugin import cpu

        cpu.install()
