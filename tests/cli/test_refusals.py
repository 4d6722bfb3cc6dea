"""Each program: its help names every flag, and a wrong one ends it with status 2 and no file."""

import re
from pathlib import Path

import pytest

from answer_graders.programs import data
from answer_graders.tasks import TASKS
from baseline_research.cli import lab, quickstart
from openrlhf_js.cli import rm
from openrlhf_js.cli.main import main
from paired_eval.cli import arena as eval_arena
from paired_eval.cli import passk as eval

PROGRAMS = {
    "data check": data.CheckSettings,
    "eval passk": eval.PasskSettings,
    "eval arena fetch": eval_arena.FetchSettings,
    "eval arena generate": eval_arena.GenerateSettings,
    "eval arena judge": eval_arena.JudgeFlags,
    "eval arena score": eval_arena.ScoreSettings,
    "quickstart": quickstart.QuickstartSettings,
    "rm eval": rm.RewardEvalSettings,
    "rm serve": rm.RewardServeSettings,
    **{f"data build {name}": data.task_settings(task) for name, task in TASKS.items()},
    **{f"lab {name}": program.settings for name, program in lab.PROGRAMS.items()},
}
LINES = Path(__file__).with_name("refusals.txt").read_text().splitlines()[2:]


def run(words: str) -> int | str | None:
    try:
        return main(words.split())
    except SystemExit as left:
        return left.code


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_a_program_lists_its_flags(program, capsys):
    assert run(f"{program} --help") == 0
    shown = capsys.readouterr().out
    assert f"usage: openrlhf-js {program}" in shown
    fields = PROGRAMS[program].model_fields
    assert all(field.description for field in fields.values())
    assert len(set(re.findall(r"--[\w.]+", shown))) >= len(fields)  # --help makes up for a path


@pytest.mark.parametrize("line", filter(None, LINES))
def test_wrong_flags_are_named_with_status_2(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, name = line.split(" ~ ")
    status = run(words)
    shown = capsys.readouterr()
    assert status == 2 and name in shown.err + shown.out and "Traceback" not in shown.err
    assert not any(path.is_file() for path in tmp_path.rglob("*"))  # nothing was begun
