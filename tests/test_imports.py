"""What an import of the package loads: a user of the estimators pays for torch alone."""

import subprocess
import sys

import pytest

STACK = {"ray", "vllm", "deepspeed", "openrlhf", "transformers"}
GRADERS_AND_READERS = {"sympy", "math_verify", "latex2sympy2_extended", "datasets", "pyarrow"}
HEAVY = STACK | GRADERS_AND_READERS | {"torch"}


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("openrlhf_js openrlhf_js.cli.main", STACK | {"torch"}),
        ("openrlhf_js.estimators", STACK),
        ("answer_graders", HEAVY | {"numpy", "pint", "pydantic", "openrlhf_js"}),
        ("answer_graders.tasks paired_eval.stats", HEAVY | {"altair", "openrlhf_js"}),
        (
            "answer_graders.trainers",
            HEAVY | {"openrlhf_js", "skyrl_gym", "swift", "trl", "verifiers", "verl"},
        ),
        ("openrlhf_js.reward_model.check answer_graders.programs.data", HEAVY),
        ("baseline_research.cli.lab", HEAVY | {"numpy", "scipy"}),
    ],
)
def test_an_import_does_not_load_the_training_stack(modules: str, unwanted: set[str]) -> None:
    """The top-level names in `sys.modules` of a fresh Python that imports the modules alone."""
    imports = "import sys, " + modules.replace(" ", ", ")
    program = f"{imports}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert modules.partition(".")[0].split()[0] in loaded and not loaded & unwanted


HELP = """
import contextlib, io, sys
from openrlhf_js.cli.main import main

for words in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main([*words.split(), "--help"])
        except SystemExit as ended:
            status = ended.code
    assert not status, words
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_help_loads_no_mathematics() -> None:
    programs = ["rm eval", "rm serve", "eval passk", "eval arena generate", "lab mse", "study"]
    run = subprocess.run([sys.executable, "-c", HELP, *programs], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not set(run.stdout.split()) & (HEAVY | {"numpy", "scipy"})
