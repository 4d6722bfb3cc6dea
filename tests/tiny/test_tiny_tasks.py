"""What holds for every task of the quickstart, and the exact grader of sort."""

import dataclasses
import random
import runpy

import pytest

from openrlhf_js.tasks import GRADERS
from openrlhf_js.tiny import model, tasks
from openrlhf_js.tiny.tasks import END, TASKS, TinySplit, TinyTask, draw, sort

HELD_OUT = 200


@pytest.fixture(scope="module", params=TASKS.values(), ids=TASKS)
def task(request) -> TinyTask:
    return request.param


@pytest.fixture(scope="module")
def split(task) -> TinySplit:
    return task.split(0, HELD_OUT)


def some(split: TinySplit) -> list:
    """Items of every kind, and all the held-out ones."""
    return [*(item for kind in split.train for item in kind[:300]), *split.held_out]


def test_no_prompt_is_both_trained_on_and_held_out(task, split):
    trained_on = {task.prompt(item) for kind in split.train for item in kind}
    held_out = [task.prompt(item) for item in split.held_out]
    assert len(held_out) == len(set(held_out)) == HELD_OUT
    assert trained_on.isdisjoint(held_out)


def test_the_tokenizer_writes_back_the_very_text_within_the_lengths(task, split):
    tokenizer = model.make_tokenizer(task)
    longest = [0, 0]
    for item in some(split):
        texts = task.prompt(item), task.right_response(task.label(item)) + END
        for place, text in enumerate(texts):
            tokens = tokenizer.encode(text)
            assert tokenizer.decode(tokens, skip_special_tokens=False) == text
            longest[place] = max(longest[place], len(tokens))
    assert longest == [task.max_prompt_tokens, task.max_new_tokens]


def test_right_responses_score_1_here_and_in_the_runs_grader(task, split):
    graded = runpy.run_path(str(GRADERS / task.grader))["reward_func"]
    labels = [task.label(item) for item in split.held_out]
    prompts = [task.prompt(item) for item in split.held_out]
    responses = [task.right_response(label) + END for label in labels]
    shifted = [*responses[1:], responses[0]]  # answers to other prompts, few of them right
    for said in (responses, shifted):
        queries = [a + b for a, b in zip(prompts, said, strict=True)]
        here = [task.score(a, b).value for a, b in zip(said, labels, strict=True)]
        assert graded(queries, prompts, labels)["rewards"].tolist() == here
        assert (sum(here) == len(here)) == (said is responses)


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_a_demonstration_slips_as_often_as_said_and_nowhere_else(task, split, slip):
    careless = dataclasses.replace(task, slip=slip)
    tokenizer = model.make_tokenizer(task)
    items = draw(split.train, 500, random.Random(0))
    tokens, targets = model._demonstrations(tokenizer, careless, items, random.Random(0))
    kept = changed = 0
    for item, given, row in zip(items, tokens, targets, strict=True):
        said = tokenizer.convert_ids_to_tokens(row[row != model.IGNORED])
        place = int((row != model.IGNORED).nonzero()[0])
        assert row[place] == given[place + 1]
        assert tokenizer.decode(given[: place + 1]) == task.prompt(item)
        label = task.label(item)
        right = tokenizer.tokenize(task.right_response(label) + END)
        for a, b in zip(said, right, strict=True):
            assert a == b or {a, b} <= set(task.slips)
            kept += a == b and b in task.slips
            changed += a != b
        if slip == 0:
            assert task.score("".join(said), label).value == 1.0
    assert changed / (kept + changed) == pytest.approx(slip, abs=0.04)


def test_the_score_of_sort_is_exact():
    truncated, others = "2479", ("2479<eos><eos>", "24790<eos>", " 2479<eos>", "7294<eos>", "")
    for response in ("2479<eos>", truncated, *others):
        expected = float(response == "2479<eos>")
        assert sort.score(response, "2479").value == expected
        query = "sort(7294)=" + response
        assert tasks.score_query(query, "sort(7294)=", "2479").value == expected


def test_a_query_without_its_prompt_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="does not begin with its prompt"):
        tasks.score_query("sort( 7294)=2479<eos>", "sort(7294)=", "2479")
