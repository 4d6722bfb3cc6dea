"""What an import of the package loads: a user of the estimators pays for torch alone."""

import subprocess
import sys

import pytest

STACK = {"ray", "vllm", "deepspeed", "openrlhf", "transformers"}
GRADERS_AND_READERS = {"sympy", "math_verify", "latex2sympy2_extended", "datasets", "pyarrow"}


def loaded_by(module: str) -> set[str]:
    """The top-level names in `sys.modules` of a fresh Python that imports `module` alone."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("openrlhf_js", STACK | {"torch"}),
        ("openrlhf_js.estimators", STACK),
        ("openrlhf_js.tasks", STACK | GRADERS_AND_READERS | {"torch"}),
        ("openrlhf_js.stats", STACK | GRADERS_AND_READERS | {"torch", "matplotlib"}),
        ("openrlhf_js.reward_model.check", STACK | GRADERS_AND_READERS | {"torch"}),
        ("openrlhf_js.cli.data", STACK | GRADERS_AND_READERS | {"torch"}),
        ("openrlhf_js.cli.main", STACK | {"torch"}),
    ],
)
def test_an_import_does_not_load_the_training_stack(module: str, unwanted: set[str]) -> None:
    loaded = loaded_by(module)
    assert "openrlhf_js" in loaded
    assert not loaded & unwanted
