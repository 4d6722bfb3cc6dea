"""What holds for every tiny task, and what each of them scores."""

import dataclasses
import random
import runpy

import pytest

from baseline_research.tiny import model
from baseline_research.tiny.record import END, SOLVED, UNSOLVABLE, TinySplit, TinyTask
from baseline_research.tiny.tasks import (
    TASKS,
    odometer,
    reverse,
    sample_items,
    sort,
    unique,
    write_reward_file,
)

HELD_OUT = 200


TINY = ("sort", "countdown", "maze", "reverse", "unique", "odometer")  # but `questions`


@pytest.fixture(scope="module", params=TINY)
def task(request) -> TinyTask:
    return TASKS[request.param]


@pytest.fixture(scope="module")
def split(task) -> TinySplit:
    return task.split(0, HELD_OUT)


def items_of(split: TinySplit) -> list:
    """Items of every kind, and all the held-out ones."""
    items = list(split.held_out)
    for kind in split.train:
        items += kind[:300]
    return items


def test_no_prompt_is_both_trained_on_and_held_out(task, split):
    trained_on = {task.prompt(item) for kind in split.train for item in kind}
    held_out = [task.prompt(item) for item in split.held_out]
    assert len(held_out) == len(set(held_out)) == HELD_OUT
    assert trained_on.isdisjoint(held_out)


def test_the_tokenizer_writes_back_the_very_text_within_the_lengths(task, split):
    tokenizer = model.make_tokenizer(task.tokens)
    prompt_lengths = []
    response_lengths = []
    for item in items_of(split):
        prompt = task.prompt(item)
        response = task.right_response(task.label(item)) + END
        for text, lengths in ((prompt, prompt_lengths), (response, response_lengths)):
            tokens = tokenizer.encode(text)
            assert tokenizer.decode(tokens, skip_special_tokens=False) == text
            lengths.append(len(tokens))
    assert max(prompt_lengths) == task.max_prompt_tokens
    assert max(response_lengths) == task.max_new_tokens


@pytest.mark.parametrize("right", [True, False])
def test_responses_score_the_same_here_and_in_a_reward_file(task, split, right, tmp_path):
    (name,) = [name for name in TINY if TASKS[name] is task]
    reward_file = tmp_path / "reward.py"
    write_reward_file(reward_file, name)
    labels = [task.label(item) for item in split.held_out]
    prompts = [task.prompt(item) for item in split.held_out]
    responses = [task.right_response(label) + END for label in labels]
    if not right:  # answers to other prompts, few of them right
        responses = responses[1:] + responses[:1]
    scores = [
        task.score(response, label).value for response, label in zip(responses, labels, strict=True)
    ]
    assert (sum(scores) == len(scores)) == right
    grade = runpy.run_path(str(reward_file))["reward_func"]
    queries = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    assert grade(queries, prompts, labels)["rewards"].tolist() == pytest.approx(scores)
    known = [SOLVED, UNSOLVABLE]
    assert grade(queries[:2], prompts[:2], known)["rewards"].tolist() == [1, 0]


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_a_demonstration_slips_as_often_as_said_and_nowhere_else(task, split, slip):
    careless = dataclasses.replace(task, slip=slip)
    tokenizer = model.make_tokenizer(task.tokens)
    items = sample_items(split.train, 500, random.Random(0))
    batch = model._demonstrations(tokenizer, careless, items, random.Random(0))
    kept = 0
    changed = 0
    for item, tokens, targets in zip(items, batch.tokens, batch.targets, strict=True):
        prompt_end = int((targets != model.IGNORED).nonzero()[0])
        assert targets[prompt_end] == tokens[prompt_end + 1]
        assert tokenizer.decode(tokens[: prompt_end + 1]) == task.prompt(item)
        label = task.label(item)
        response = tokenizer.convert_ids_to_tokens(targets[targets != model.IGNORED])
        right_response = tokenizer.tokenize(task.right_response(label) + END)
        for token, right_token in zip(response, right_response, strict=True):
            assert token == right_token or {token, right_token} <= set(task.slips)
            kept += token == right_token and token in task.slips
            changed += token != right_token
        if slip == 0:
            assert task.score("".join(response), label).value == 1.0
    assert changed / (kept + changed) == pytest.approx(slip, abs=0.04)


def test_each_digit_that_reverse_has_in_place_earns_its_share():
    for response, reward in (("4927<eos>", 1), ("4917<eos>", 0.75), ("4927", 0), ("492<eos>", 0)):
        assert reverse.score(response, "4927").value == reward


def test_a_query_without_its_prompt_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="does not begin with its prompt"):
        sort.reward_func(["sort( 7294)=2479<eos>"], ["sort(7294)="], ["2479"])


@pytest.mark.parametrize(
    ("task", "digits", "label"),
    [
        (sort, "7294", "2479"),
        (odometer, "7299", "7300"),
        (odometer, "0999", "1000"),
        (odometer, "99", "00"),
        (unique, "7274", "724"),
        (unique, "33333", "3"),
        (unique, "105", "105"),
    ],
)
def test_exact_tasks_take_the_digits_and_the_end(task, digits, label):
    assert task.label(digits) == label
    assert task.score(f"{label}<eos>", label).value == 1
    for response in (label, f"{label}0<eos>", f"{label[:-1]}<eos>", ""):
        assert task.score(response, label).value == 0
