"""Reasoning Gym: mixed files, scores from 0 to 1, and answers that the library would run."""

import json
import random
from itertools import islice

import pytest

import openrlhf_js
from openrlhf_js.cli import data
from openrlhf_js.tasks import pool
from openrlhf_js.tasks import reasoning_gym as task
from openrlhf_js.tasks.rewards import reward_function

MIX = "chain_sum,countdown,n_queens"


def label_of(dataset: str, answer: str, **metadata: object) -> str:
    return task.label({"dataset": dataset, "answer": answer, "metadata": metadata})


def test_without_the_library_its_extra_is_named(monkeypatch):
    monkeypatch.setattr(openrlhf_js, "find_spec", lambda name: None)
    label = label_of("chain_sum", "7")
    for use in (lambda: list(task.generate(1, 0, "train", MIX)), lambda: task.score("", label)):
        with pytest.raises(
            ModuleNotFoundError, match=r"pip install 'openrlhf-js\[reasoning-gym\]'"
        ):
            use()


@pytest.mark.parametrize(
    "label", ["7", "{}", '{"dataset": "a", "answer": "", "metadata": {}}', "[1]"]
)
def test_a_label_that_is_none_is_refused(label):
    with pytest.raises(ValueError, match='a label is JSON with the "dataset"'):
        task.score("<answer>7</answer>", label)


@pytest.fixture
def scorers():
    pytest.importorskip("reasoning_gym")
    from openrlhf_js.tasks.reasoning_gym import scorers

    return scorers


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (None, "name one or several of ab, acre, "),
        ("chain_sum,none", "no data set 'none'; there are ab, acre"),
        ("rush_hour", "'rush_hour' is not offered: its items hold no right answer"),
    ],
)
def test_a_data_set_that_is_not_offered(scorers, names, problem):
    with pytest.raises(ValueError, match=problem):
        next(task.generate(1, 0, "train", names))


def questions(count: int, seed: int, split: str, names: str = MIX) -> list[str]:
    return [item["question"] for item in task.generate(count, seed, split, names)]


def test_a_mixed_file_is_checked_and_asked_like_any_other(scorers, tmp_path, capsys):
    from openrlhf_js.evaluation.passk.benchmarks import items_of_file
    from openrlhf_js.evaluation.passk.grading import grade

    flags = ["--dataset", MIX, "--count", "12", "--out", str(tmp_path)]
    assert data.main(["build", "reasoning_gym", "--split", "train", *flags]) == 0
    path = tmp_path / "reasoning_gym-train.jsonl"
    rows = [json.loads(line) for line in path.open()]
    assert [row["datasource"] for row in rows] == [f"reasoning_gym/{n}" for n in MIX.split(",")] * 4
    assert all(task.REQUEST in row["input"][0]["content"] for row in rows)
    assert data.main(["check", str(path)]) == 0
    for item in items_of_file(path):
        right = grade(item, f"So: {task.right_response(item.label)}")
        assert right.status == "correct"
        assert right.answer == json.loads(item.label)["answer"]


def test_no_question_is_in_two_splits_or_under_two_seeds(scorers):
    train = questions(40, 0, "train")
    assert train[:20] == questions(20, 0, "train")
    assert len({*train}) == 40
    others = [questions(40, 1, "train"), questions(20, 0, "test"), questions(20, 1, "test")]
    assert not any({*train} & {*other} for other in others)


# The library's scorers


def items(scorers, name: str, count: int) -> list[str]:
    """Labels of a data set that are sound."""
    made = task.generate(count, 0, "train", name)
    return [task.label(item) for item in made]


EXAMPLES = ("ab", "arc_agi", "graph_color", "gsm_symbolic", "rearc", "rubiks_cube")


def test_right_answers_score_one_others_less_and_none_nothing(scorers):
    for name in (*scorers.REPLACED, *EXAMPLES):
        for label in items(scorers, name, 3):
            scores = {answer: task.score(answer, label) for answer in ("", "<answer> </answer>")}
            assert {score.status for score in scores.values()} == {"no_answer"}
            assert task.score(task.right_response(label), label).status == "correct", name
            wrong = task.score(task.wrong_response(label), label)
            assert wrong.value < 1 and wrong.status in ("wrong", "malformed"), name


DEED = "__import__('os').system('touch {place}')"
HOSTILE = (
    *(DEED, f"[{DEED}]", f"[[{DEED}]]", f"({DEED}, 1)", f"24+0*{DEED}", f"x + {DEED}"),
    *("open('{place}', 'w')", "[x for x in [" + DEED + "]]", "S(" + repr(DEED) + ")"),
    *("x.__class__", "exp.__globals__", "lambda: x", "sin(x).func", "N('" + DEED[:9] + "')"),
)


@pytest.mark.timeout(300)
def test_no_answer_is_run(scorers, tmp_path):
    """Here no worker's limits stand in its way."""
    place = tmp_path / "made"
    for name in scorers.REPLACED:
        label = next(iter(items(scorers, name, 1)))
        for text in HOSTILE:
            answer = text.replace("{place}", str(place))
            assert scorers.grade(answer, label).value < 1, (name, text)
    assert not place.exists()


@pytest.mark.timeout(300)
def test_an_answer_that_takes_for_ever_costs_its_time_alone(scorers, monkeypatch):
    with pool.GradingPool(1, timeout_seconds=2.0) as impatient:
        monkeypatch.setattr(pool, "_POOL", impatient)
        for name in ("n_queens", "simple_integration", "coin_flip", "spiral_matrix", "chain_sum"):
            (label,) = items(scorers, name, 1)
            for answer in ("9**9**9**9", "1e99999999", "(" * 2_000, "[" * 9_000):
                assert task.score(f"<answer>{answer}</answer>", label).value < 1, (name, answer)
            assert task.score(task.right_response(label), label).status == "correct", name


def test_full_scores_of_the_library_for_wrong_answers_are_not_given(scorers):
    metadata = {"numbers": [8, 5, 10, 6]}
    puzzle = label_of("puzzle24", "10*(8 - 5) - 6", **metadata)
    assert scorers.grade("10*(8 - 5) - 6", puzzle).value == 1
    assert scorers.grade("6*4 + 1 - 1", puzzle).value == 0  # not the numbers given
    flips = label_of("coin_flip", "0.3125")
    assert [scorers.grade(text, flips).value for text in ("5/16", "0.31249", "0", "0.3")] == [
        1,
        1,
        0,
        0,
    ]
    halts = label_of("game_of_life_halting", "False")
    assert [scorers.grade(text, halts).value for text in ("false", "True")] == [1, 0]
    word = label_of("spell_backward", "gnorts")
    assert [scorers.grade(text, word).value for text in ("Gnorts", "gnorts!")] == [1, 0.8]
    complex_sum = label_of("complex_arithmetic", "1.0 + 2.0i", result=[1.0, 2.0])
    assert scorers.grade("1.0 + 2.0i", complex_sum).value == 1
    assert scorers.grade("nan", complex_sum).value == 0
    integral = label_of("intermediate_integration", "x**2", variable="x", integrand="2*x")
    assert scorers.grade("x**2 + 3 + C", integral).value == 1
    assert scorers.grade("Integral(2*x, x)", integral).value == 0


def test_a_part_of_the_score_is_a_reward_and_no_right_answer(scorers):
    label = label_of("rotate_matrix", "3 1\n4 2")
    texts = ("3 1\n4 2", "It is\n3 1\n4 2", "1 2\n3 4")
    queries = [f"? <answer>{text}</answer>" for text in texts]
    result = reward_function("reasoning_gym")(queries, ["? "] * 3, [label] * 3)
    assert result["rewards"].tolist() == pytest.approx([1, 7 / 13, 0])
    assert result["extra_logs"]["accuracy"].tolist() == [1, 0, 0]
    assert result["extra_logs"]["status/wrong"].tolist() == [0, 1, 1]


def test_items_whose_own_answer_is_none_are_left_out(scorers):
    """Some integrals have the answer `-Integral(x*sin(x), x) + C`, which answers nothing."""
    name = "intermediate_integration"
    drawn = list(islice(scorers.entries(name, random.Random(0)), 12))
    assert any("Integral" in item["answer"] for item in drawn)
    assert not any("Integral" in item["answer"] for item in task.generate(12, 0, "train", name))
