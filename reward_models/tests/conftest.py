"""Tests of rewards in tensors, as OpenRLHF takes them, are left out where torch is missing."""

from importlib.util import find_spec

IN_TENSORS = ["test_rewards.py", "test_thought_rewards.py"]
collect_ignore = [] if find_spec("torch") else IN_TENSORS
