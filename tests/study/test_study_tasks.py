"""The tasks of studies beside the quickstart's: what they ask, and what they score."""

import random
from dataclasses import replace

import pytest

from openrlhf_js.common.settings import SettingsError
from openrlhf_js.study.design import InlineStudy
from openrlhf_js.study.inline import rollout
from openrlhf_js.study.tasks import INLINE, STUDY_TASKS, modsum, questions, reverse
from openrlhf_js.tiny import model
from openrlhf_js.tiny.policy import TinyPolicy, load
from openrlhf_js.tiny.tasks import END, Problem, draw


@pytest.mark.parametrize("name", INLINE)
def test_a_task_of_digits_is_written_with_its_tokens(name, tmp_path):
    task = STUDY_TASKS[name]
    tokenizer = model.make_tokenizer(task)
    model.save(model.make_model(tokenizer, 0, width=16, layers=1), tokenizer, tmp_path)
    tokenizer = load(tmp_path).tokenizer  # as runs have it
    split = task.split(0, 200)
    assert len(split.held_out) == 200
    lengths = []
    for item in [*split.held_out, *draw(split.train, 200, random.Random(0))]:
        prompt = task.prompt(item)
        response = task.right_response(task.label(item)) + END
        assert task.score(response, task.label(item)).value == 1
        assert tokenizer.decode(tokenizer.encode(prompt + response)) == prompt + response
        lengths.append((len(tokenizer.encode(prompt)), len(tokenizer.encode(response))))
    assert max(lengths) == (task.max_prompt_tokens, task.max_new_tokens)


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("4927<eos>", 1),
        ("4917<eos>", 0.75),
        ("7294<eos>", 0),
        ("4927", 0),
        ("49270<eos>", 0),
        ("492<eos>", 0),
        ("", 0),
    ],
)
def test_each_digit_that_reverse_has_in_place_earns_its_share(response, reward):
    assert reverse.prompt("7294") == "reverse(7294)="
    assert reverse.label("7294") == "4927"
    assert reverse.score(response, "4927").value == reward


def test_running_sums_are_exact():
    assert modsum.prompt("7294") == "modsum(7294)="
    assert modsum.label("7294") == "3122"  # 7, 9, 18, 22 modulo 4
    assert modsum.score("3122<eos>", "3122").value == 1
    for response in ("3122", "3121<eos>", "312<eos>", "31220<eos>", ""):
        assert modsum.score(response, "3122").value == 0


def test_the_probability_of_the_right_response_is_the_pass_rate():
    task = replace(STUDY_TASKS["sort"], score=exact, right_response=str)
    tokenizer = model.make_tokenizer(task)
    policy = TinyPolicy(model.make_model(tokenizer, 0, width=32, layers=1), tokenizer)
    problems = [Problem("sort(02)=", ""), Problem("sort(99)=", "9")]  # the end alone, and later
    probabilities = rollout.right_probabilities(policy, task, problems)
    rates = rollout.pass_rates(policy, task, problems, 20_000)
    assert rates[0] > 0.02
    assert probabilities == pytest.approx(rates, abs=0.006)  # 4 standard errors


def exact(response, label):
    return modsum.score(response, label)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tasks": ["questions"]}, "are for each other: give both"),
        ({"model": "folder"}, "are for each other: give both"),
        ({"model": "folder", "tasks": ["questions", "sort"]}, "are for each other"),
    ],
)
def test_a_model_and_a_task_that_do_not_fit_are_refused(flags, message):
    with pytest.raises(SettingsError, match=message):
        InlineStudy(**flags)


def test_a_folder_without_a_model_is_refused(tmp_path):
    settings = InlineStudy(model=tmp_path, tasks=["questions"])
    with pytest.raises(ValueError, match=r"smollm2\.sh makes such a folder"):
        settings.start_of("questions")


def test_questions_of_a_study_are_those_of_the_task():
    split = questions.split(0, 70)
    assert len(split.train) == 7
    trained_on = {questions.prompt(item) for kind in split.train for item in kind}
    held_out = [questions.prompt(item) for item in split.held_out]
    assert len(set(held_out)) == 70
    assert trained_on.isdisjoint(held_out)
    assert all("\n" not in prompt for prompt in trained_on)
