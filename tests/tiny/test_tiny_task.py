import json
import random

import pytest

from openrlhf_js.tiny import task


@pytest.mark.parametrize("seed", [0, 1])
def test_no_prompt_is_both_trained_on_and_held_out(seed):
    train, held_out = task.split(seed)
    trained_on = {digits for each in train.values() for digits in each}
    assert len(held_out) == len(set(held_out)) == 50 * len(task.LENGTHS)
    assert not trained_on & set(held_out)
    assert trained_on | set(held_out) == {
        f"{number:0{length}d}" for length in task.LENGTHS for number in range(10**length)
    }


@pytest.mark.parametrize("count", [0, 51])
def test_split_says_how_many_can_be_held_out(count):
    with pytest.raises(ValueError, match="give 1 to 50"):
        task.split(0, count)


def test_another_seed_holds_other_prompts_out():
    assert task.split(0).held_out == task.split(0).held_out != task.split(1).held_out


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("2479<eos>", 1.0),
        ("2479", 0.0),  # cut off before it ended
        ("2479<eos><eos>", 0.0),
        ("24790<eos>", 0.0),
        (" 2479<eos>", 0.0),
        ("7294<eos>", 0.0),
        ("<eos>", 0.0),
        ("", 0.0),
        ("__import__('os')<eos>", 0.0),
    ],
)
def test_score_is_exact(response, expected):
    assert task.score(response, "2479") == expected
    assert task.score_query("sort(7294)=" + response, "sort(7294)=", "2479") == expected


def test_a_query_without_its_prompt_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="does not begin with its prompt"):
        task.score_query("sort( 7294)=2479<eos>", "sort(7294)=", "2479")


def test_the_longest_prompt_and_answer_fit():
    longest = "9" * max(task.LENGTHS)
    assert len(task.answer(longest)) + 1 <= task.MAX_NEW_TOKENS
    assert len(task.prompt(longest)) + task.MAX_NEW_TOKENS <= task.MAX_LENGTH


@pytest.mark.parametrize("slip", [0.0, 0.3, 1.0])
def test_a_demonstrated_digit_is_wrong_as_often_as_said(slip):
    rng = random.Random(0)
    demonstrated = "".join(task.careless_answer("43210", slip, rng) for _ in range(2000))
    wrong = sum(a != b for a, b in zip(demonstrated, "01234" * 2000, strict=True)) / 10_000
    assert wrong == pytest.approx(slip, abs=0.02)


def test_drawn_prompts_are_training_prompts_of_every_length():
    train = task.split(0).train
    drawn = task.draw(train, 400, random.Random(0))
    assert len(drawn) == 400
    assert set(drawn) <= {digits for each in train.values() for digits in each}
    for length in task.LENGTHS:
        assert sum(len(digits) == length for digits in drawn) == pytest.approx(100, abs=40)


def test_prompts_are_written_as_openrlhf_reads_them(tmp_path):
    task.write_prompts(tmp_path / "p.jsonl", ["72", "330"], "held_out")
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"input": "sort(72)=", "label": "27", "datasource": "held_out"},
        {"input": "sort(330)=", "label": "033", "datasource": "held_out"},
    ]
