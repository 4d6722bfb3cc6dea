"""The help of every program: what a flag is stands in a phrase that needs no other."""

import re

import pytest

from answer_graders.programs import data
from answer_graders.tasks import TASKS
from baseline_research.cli import lab, quickstart, study
from openrlhf_js.cli import rm
from openrlhf_js.estimators.catalogue import ESTIMATORS
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
    **{f"study --engine {name}": settings for name, settings in study.STUDIES.items()},
}
FLAGS = [
    (f"{program} --{name}", field.description)
    for program, settings in PROGRAMS.items()
    for name, field in settings.model_fields.items()
]
# With these a text continues the name of its flag, or leaves out what it is about.
CONTINUATION = re.compile(
    r"(of|to|in|on|at|for|from|by|with|without|as|if|or|and|only|such as|default|instead|that|"
    r"those|these|each|whose|the others|compared|equally|a clone)\b|(0|auto|alike|chat|text):"
)


def check(text):
    assert text, "no help"
    assert not CONTINUATION.match(text), text
    assert len(text.split()) > 1 and not text.endswith("."), text
    assert text[0].islower() or re.match("[A-Z]{3,}|[A-Z][a-z]+ file|Wilson", text), text


@pytest.mark.parametrize(("flag", "text"), FLAGS)
def test_the_help_of_a_flag_stands_alone(flag, text):
    check(text)


def test_the_help_of_training_stands_alone():
    pytest.importorskip("openrlhf")
    from openrlhf_js.trainers.openrlhf import flags, reward_training
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    training = upstream_parser()
    flags.add_flags(training)
    for parser in (training, reward_training.reward_parser()):
        ours = next(group for group in parser._action_groups if group.title == "openrlhf_js")
        assert len(ours._group_actions) > 3
        for action in ours._group_actions:
            check(action.help % {"default": action.default})


def test_the_summary_of_an_estimator_stands_alone():
    for estimator in ESTIMATORS.values():
        check(estimator.summary.replace("Kalman", "kalman").replace("0.4-", "a "))
