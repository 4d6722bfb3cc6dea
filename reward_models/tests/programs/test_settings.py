"""One object is the flags, their validation, the help and the manifest."""

import os
import signal
from pathlib import Path
from typing import Literal

import pytest
from tyro.conf import Positional

from answer_graders.programs import as_typed
from answer_graders.programs.console import table, visible
from answer_graders.programs.settings import Field, Settings, choose, parse, run


class Example(Settings):
    """Does a thing."""

    files: Positional[list[Path]] = Field([], description="input files")
    out: Path = Field(description="folder of results")
    max_new_tokens: int = Field(8, ge=1, description="tokens at most")
    task: Literal["maze", "sort"] | None = Field(None, description="a task")
    chat: bool = Field(False, description="use the chat template")
    responses: list[int] = Field([2, 4], description="to a prompt")


def parsed(*argv: str) -> Example:
    return parse(Example, "ojs example", argv)


def test_flags_in_either_spelling_become_a_manifest() -> None:
    for flag in ("--max_new_tokens", "--max-new-tokens"):
        found = parsed("a", "b", "--out", "x", flag, "3", "--chat", "--responses", "1", "2")
        assert found.manifest() == {
            "files": ["a", "b"],
            "out": "x",
            "max_new_tokens": 3,
            "task": None,
            "chat": True,
            "responses": [1, 2],
        }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--out", "x", "--max_new_tokens", "0"], "--max_new_tokens 0: input should be greater"),
        (["--out", "x", "--max_new_token", "1"], "--max_new_tokens"),
        (["--out", "x", "--task", "chess"], "maze"),
        ([], "--out"),
    ],
)
def test_what_cannot_be_used_is_status_2(argv, message, capsys):
    with pytest.raises(SystemExit) as left:
        parsed(*argv)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_help_shows_types_defaults_and_no_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parsed("--help")
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert "Does a thing." in shown
    assert "{maze,sort}" in shown
    assert "(default: 8)" in shown
    assert "None" not in shown


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("no such task"), 2, "p: no such task"),
        (FileNotFoundError(2, "No such file", "a.json"), 2, "p: a.json: No such file"),
        (OSError(28, "No space left on device", "b"), 1, "b: No space left on device; the same"),
        (KeyboardInterrupt(), 130, "p: stopped; the same command resumes"),
        (RuntimeError("gone"), 1, "p: server gone"),
    ],
)
def test_how_programs_end(error, status, message, capsys):
    def work() -> None:
        raise error

    failures = {RuntimeError: lambda error: f"server {error}"}
    assert run("p", work, resumes=True, failures=failures) == status
    assert message in capsys.readouterr().err
    assert run("p", lambda: None) == 0


def test_a_terminated_program_ends_as_with_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert run("p", lambda: os.kill(os.getpid(), signal.SIGTERM)) == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_choose_imports_only_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    programs = {"good": ("operator:length_hint", "counts"), "bad": ("nowhere:main", "fails")}
    assert choose("ojs", programs, ["good", "a", "b"]) == 2  # what length_hint(["a", "b"]) gives
    assert choose("ojs", programs, []) == 0
    assert choose("ojs", programs, ["goood"]) == 2
    assert "no program 'goood' (did you mean 'good'?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("called", "typed"),
    [
        ("openrlhf-js", "`openrlhf-js data build`, then `openrlhf-js eval passk`"),
        ("paired-eval", "`answer-graders build`, then `paired-eval passk`"),
    ],
)
def test_a_package_alone_names_its_own_command(
    called: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [f"/usr/bin/{called}", "passk"])
    assert as_typed("`openrlhf-js data build`, then `openrlhf-js eval passk`") == typed


def test_tables_take_any_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table([{"name": "[red]\x1b[31m", "value": 0.123456}, {"name": "b", "value": float("nan")}])
    shown = capsys.readouterr().out
    assert "[red]\\x1b[31m" in shown
    assert "0.1235" in shown
    assert "-" in shown
    assert visible("a\x07\n") == "a\\x07\n"
