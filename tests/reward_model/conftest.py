"""What needs a model that has learned is left out where the laboratory is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("baseline_research") else ["test_eval_cli.py"]
