"""Tasks that are worked out in steps: their examples, their dial, and careless demonstrations."""

import random
from statistics import fmean

import pytest

from baseline_research.tiny.chains import FAMILIES, LENGTHS
from baseline_research.tiny.model import make_tokenizer
from baseline_research.tiny.record import END
from baseline_research.tiny.tasks import TASKS

EXAMPLES = {
    "walk": ("35URR", "U36R46R56=56"),
    "swaps": ("3142", "1342,1243,1234,=1234"),
    "substitute": ("a3,ba+4,ca-9", "a3,b3+4>7,c3-9>4,=4"),
    "product": ("483*6", "3*6+0>18,8*6+1>49,4*6+4>28,=2898"),
    "machine": ("34+5*", "3..,34.,7..,75.,5..,=5"),
    "rows": ("0000000000000001**", "0000000000000011,0000000000000111,=0000000000000111"),
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_steps_are_those_of_a_calculation_by_hand(family):
    question, worked_out = EXAMPLES[family.name]
    assert family.right_response(question) == worked_out


@pytest.mark.parametrize("name", ["walk_60", "swaps_20", "product_150", "rows_60", "machine_300"])
def test_the_end_alone_is_checked(name):
    task = TASKS[name]
    item = task.split(0, 20).held_out[0]
    label = task.label(item)
    steps, _, answer = label.rpartition("=")
    assert task.reward(label + END, label) == 1
    assert task.reward(f"={answer}{END}", label) == 1
    assert task.reward(f"{steps[:-1]}={answer}{END}", label) == 1
    assert task.reward(label, label) == 0  # it does not end
    assert task.reward(f"{label}{answer}{END}", label) == 0
    assert task.reward(f"{answer}{END}", label) == 0
    assert task.reward(f"{steps}={answer[:-1]}{END}", label) == 0


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_dial_bounds_the_tokens(family):
    for length in LENGTHS[1:]:
        task = TASKS[f"{family.name}_{length}"]
        tokenizer = make_tokenizer(task.tokens)
        items = [item for kind in task.split(0, 60).train for item in kind[:5]]
        lengths = [len(tokenizer.encode(task.label(item) + END)) for item in items]
        assert 0.75 * length < max(lengths) == task.max_new_tokens <= length
        prompts = [len(tokenizer.encode(task.prompt(item))) for item in items]
        assert max(prompts) <= task.max_prompt_tokens
        for item in items:  # nothing is unknown
            text = task.prompt(item) + task.label(item)
            assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_about_half_of_the_hardest_demonstrations_end_right(family):
    """A slip is carried on: each step still follows from the one that is written before it."""
    task = TASKS[f"{family.name}_60"]
    rng = random.Random(1)
    hardest = task.split(0, 60).train[-1][:300]
    rewards = []
    for item in hardest:
        response = task.demonstrate(item, rng) + END
        rewards.append(task.reward(response, task.label(item)))
        assert len(response) == len(task.label(item) + END)
    assert 0.4 < fmean(rewards) < 0.65


@pytest.mark.parametrize("name", ["misled_walk_60", "misled_product_60"])
def test_misled_demonstrations_go_wrong_by_habit(name):
    """Most are wrong where the right response has a step that is misread, and none elsewhere."""
    task = TASKS[name]
    family = next(family for family in FAMILIES if family.name in name)
    rng = random.Random(1)
    rewards = {True: [], False: []}
    for item in task.split(0, 60).train[-1][:300]:
        steps = []
        family.work(item, lambda result, _, steps=steps: steps.append(result) or result)
        response = task.demonstrate(item, rng) + END
        is_misread = not set(family.misread).isdisjoint(steps)
        rewards[is_misread].append(task.reward(response, task.label(item)))
    assert set(rewards[False]) == {1.0}
    assert fmean(rewards[True]) < 0.4 and len(rewards[True]) > 150


def test_no_prompt_is_both_trained_and_held_out():
    split = TASKS["walk_60"].split(3, 200)
    assert len(split.held_out) == 200
    trained = {item for kind in split.train for item in kind}
    assert not trained & set(split.held_out)
    assert split == TASKS["walk_60"].split(3, 200)
    sizes = [len(kind) for kind in split.train]
    assert min(sizes) == max(sizes) and len(sizes) > 5
