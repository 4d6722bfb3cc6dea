"""Completion in bash: programs and flags, read from --help."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("openrlhf-js")
ASK = """
source scripts/completion.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_openrlhf_js
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["l"], ["lab"]),
        (["eval", "arena", "j"], ["judge"]),
        (["lab", "simulate", "--ro"], ["--rounds"]),
        (["study", "--he"], ["--help", "--held_out"]),
        (["study", "run"], []),  # a file, which bash completes
        (["lab", "simulate", "--out", "x", "--se"], ["--seed"]),
    ],
)
def test_bash_offers_programs_and_flags(typed, offered):
    asked = ["bash", "-c", ASK, "bash", COMMAND, *typed]
    shown = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == offered
