"""Tests of rewards as OpenRLHF takes them, in tensors, are left out where torch is not installed."""

from importlib.util import find_spec

IN_TENSORS = ["test_rewards.py", "test_thought_rewards.py"]
collect_ignore = [] if find_spec("torch") else IN_TENSORS
