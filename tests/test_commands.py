"""Every command on a page: its program or file exists, and its help names each flag."""

import re
import shlex
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from openrlhf_js.cli.main import PROGRAMS, main

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]
PAGES.remove(ROOT / "CHANGELOG.md")  # of the past
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
FILE = re.compile(r"(?:research|scripts|eval|reward_models)/[\w./-]+\.(?:sh|py|yaml)")


def commands() -> list[tuple[str, str]]:
    """(page, command) of all pages, without comments."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            lines = block.replace("\\\n", " ").splitlines()
            commented = (line.partition(" #")[0].strip() for line in lines)
            name = str(page.relative_to(ROOT))
            found += [(name, line) for line in commented if line and not line.startswith("#")]
    return found


COMMANDS = commands()
WITH_FILES = [(page, command) for page, command in COMMANDS if FILE.search(command)]
OURS = [(page, command) for page, command in COMMANDS if "openrlhf-js " in command]


@cache
def help_of(*words: str) -> str:
    """What `openrlhf-js WORDS --help` prints."""
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        main([*words, "--help"])
    return shown.getvalue()


def program_of(words: list[str]) -> list[str]:
    """The first words, up to a program that has flags: `lab mse`, `eval arena judge`."""
    for count in range(1, 4):
        if " [--help] ..." not in help_of(*words[:count]).partition("\n")[0]:
            break
    return words[:count]


def flags_of(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def test_the_pages_have_commands():
    assert len(WITH_FILES) > 60 and len(OURS) > 40


@pytest.mark.parametrize(("page", "command"), WITH_FILES)
def test_each_file_of_a_command_is_in_the_repository(page, command):
    for name in FILE.findall(command):
        assert (ROOT / name).is_file(), f"{page}: {command}"


@pytest.mark.parametrize(("page", "command"), OURS)
def test_the_help_of_a_program_names_each_flag(page, command):
    words = shlex.split(command.partition("openrlhf-js ")[2].partition(" && ")[0])
    assert words[0] in PROGRAMS
    words, _, training = (" ".join(words)).partition(" -- ")
    words = words.split()
    program = program_of(words)
    if "stack" in words:
        program += ["--engine", "stack"]
    assert flags_of(words) <= {*flags_in(help_of(*program)), "--engine"}
    assert flags_of(training.split()) <= flags_in(help_of("train"))


def flags_in(text: str) -> set[str]:
    """The flags that a help text names."""
    return set(re.findall(r"--[\w.]+", text))
