"""Tests of models in this process are left out where `paired-eval[local]` is not installed."""

from importlib.util import find_spec

LOCAL = ["sampling/test_engines.py", "sampling/test_sampler.py", "test_eval_passk.py"]
collect_ignore = [] if find_spec("torch") else LOCAL
