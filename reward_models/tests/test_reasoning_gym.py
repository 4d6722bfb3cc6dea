"""Reasoning Gym: mixed files, scores from 0 to 1, and data sets that are refused."""

import json

import pytest

from answer_graders import pool, programs
from answer_graders.programs import data
from answer_graders.rewards import reward_function
from answer_graders.tasks import reasoning_gym as task

MIX = "chain_sum,gcd,word_ladder"


def label_of(dataset: str, answer: str, **metadata: object) -> str:
    return task.label({"dataset": dataset, "answer": answer, "metadata": metadata})


def test_without_the_library_its_extra_is_named(monkeypatch):
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    label = label_of("chain_sum", "7")
    for use in (lambda: list(task.generate(1, 0, "train", MIX)), lambda: task.score("", label)):
        with pytest.raises(
            ModuleNotFoundError, match=r"it comes with answer-graders\[reasoning-gym\]"
        ):
            use()


@pytest.mark.parametrize(
    "label", ["7", "{}", '{"dataset": "a", "answer": "", "metadata": {}}', "[1]"]
)
def test_a_label_that_is_none_is_refused(label):
    with pytest.raises(ValueError, match='a label is JSON with the "dataset"'):
        task.score("<answer>7</answer>", label)


@pytest.fixture
def library():
    return pytest.importorskip("reasoning_gym")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (None, "name one or several of ab, acre, "),
        ("chain_sum,none", "no data set 'none'; there are ab, acre"),
        ("rush_hour", "'rush_hour' is not offered: its items hold no right answer"),
        ("gcd,n_queens", "'n_queens' is not offered: its scorer runs the answer as Python"),
        ("knights_knaves", "the task `knights_knaves` has such problems"),
        ("coin_flip", "'coin_flip' is not offered: its scorer gives 1 to wrong answers"),
    ],
)
def test_a_data_set_that_is_not_offered(library, names, problem):
    with pytest.raises(ValueError, match=problem):
        next(task.generate(1, 0, "train", names))


def questions(count: int, seed: int, split: str, names: str = MIX) -> list[str]:
    return [item["question"] for item in task.generate(count, seed, split, names)]


def test_a_mixed_file_is_checked_and_asked_like_any_other(library, tmp_path, capsys):
    from paired_eval.passk.benchmarks import items_of_file
    from paired_eval.passk.grading import grade

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


def test_no_question_is_in_two_splits_or_under_two_seeds(library):
    train = questions(40, 0, "train")
    assert train[:20] == questions(20, 0, "train")
    assert len({*train}) == 40
    others = [questions(40, 1, "train"), questions(20, 0, "test"), questions(20, 1, "test")]
    assert not any({*train} & {*other} for other in others)


# The library's scorers


def items(name: str, count: int) -> list[str]:
    """Labels of a data set that are sound."""
    made = task.generate(count, 0, "train", name)
    return [task.label(item) for item in made]


EXAMPLES = ("ab", "arc_agi", "graph_color", "rearc", "rubiks_cube")


def test_right_answers_score_one_others_less_and_none_nothing(library):
    for name in EXAMPLES:
        for label in items(name, 3):
            scores = {answer: task.score(answer, label) for answer in ("", "<answer> </answer>")}
            assert {score.status for score in scores.values()} == {"no_answer"}
            assert task.score(task.right_response(label), label).status == "correct", name
            wrong = task.score(task.wrong_response(label), label)
            assert wrong.value < 1 and wrong.status in ("wrong", "malformed"), name


@pytest.mark.parametrize(
    ("dataset", "right", "metadata"),
    [
        ("word_sorting", "ab, cd, ef", {"sorted_words": ["ab", "cd", "ef"]}),
        ("letter_jumble", "This is it", {}),
        ("time_intervals", "5 days", {"task_type": "date"}),
    ],
)
def test_a_right_answer_with_more_is_none(library, dataset, right, metadata):
    label = label_of(dataset, right, **metadata)
    assert task.score(f"<answer>{right}</answer>", label).status == "correct"
    for more in ("{} or C", "{}, C", "{}\n7 8 9", "not {}", "It is false that {}"):
        answer = more.format(right)
        assert task.score(f"<answer>{answer}</answer>", label).value < 1, answer


@pytest.mark.parametrize("name", ["n_queens", "simple_integration", "gsm_symbolic"])
def test_a_file_made_before_its_data_set_was_refused_is_not_graded(name):
    with pytest.raises(ValueError, match=f"{name}' is not offered: its scorer"):
        task.score("<answer>x</answer>", label_of(name, "x"))


@pytest.mark.timeout(300)
def test_an_answer_that_takes_for_ever_costs_its_time_alone(library, monkeypatch):
    with pool.GradingPool(1, timeout_seconds=2.0) as impatient:
        monkeypatch.setattr(pool, "_POOL", impatient)
        for name in ("chain_sum", "gcd"):
            (label,) = items(name, 1)
            for answer in ("9**9**9**9", "1e99999999", "(" * 2_000, "[" * 9_000):
                assert task.score(f"<answer>{answer}</answer>", label).value < 1, (name, answer)
            assert task.score(task.right_response(label), label).status == "correct", name


def test_a_part_of_the_score_is_a_reward_and_no_right_answer(library):
    label = label_of("rotate_matrix", "3 1\n4 2")
    texts = ("3 1\n4 2", "It is\n3 1\n4 2", "1 2\n3 4")
    queries = [f"? <answer>{text}</answer>" for text in texts]
    result = reward_function("reasoning_gym")(queries, ["? "] * 3, [label] * 3)
    assert result["rewards"].tolist() == pytest.approx([1, 7 / 13, 0])
    assert result["extra_logs"]["accuracy"].tolist() == [1, 0, 0]
    assert result["extra_logs"]["status/wrong"].tolist() == [0, 1, 1]
