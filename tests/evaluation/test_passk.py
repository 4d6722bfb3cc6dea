"""pass@k: benchmarks, grading, the vote, samples on disk, and what they say."""

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from kit import write_lines
from passk_kit import group, items, lines
from pyarrow import parquet

from openrlhf_js.evaluation.passk import benchmarks, evaluate, grading, summary
from openrlhf_js.evaluation.passk.benchmarks import (
    Asked,
    Benchmark,
    asked_of,
    benchmark_names,
    items_of_file,
    named_benchmark,
    read_benchmark,
    uid_of,
)
from openrlhf_js.evaluation.passk.compare import values_of
from openrlhf_js.evaluation.passk.grading import (
    LONGEST_ANSWER,
    grade,
    grade_all,
    majority,
)
from openrlhf_js.evaluation.passk.summary import summarise
from openrlhf_js.report.passk import notes, value_of
from openrlhf_js.sampling.endpoint import EndpointError, NoReply
from openrlhf_js.sampling.sampler import Sampled
from openrlhf_js.stats import clustered_proportion
from openrlhf_js.tasks import TASKS
from openrlhf_js.tasks.prompt_files import example

PAPER = Path(__file__).with_name("passk_paper.txt").read_text().splitlines()[2:]
LAYOUTS = {  # a file as the hub has it, a row, and a right answer in another notation
    "amc23": (
        "data/test-00000-of-00001.parquet",
        {"id": 0, "answer": 27.0, "question": "How many?", "url": "a"},
        "27",
    ),
    "aime24": (
        "data/train-00000-of-00001.parquet",
        {"id": 60, "problem": "Find it.", "solution": "So", "answer": "033", "year": "2024"},
        "33",
    ),
    "aime25": ("test.jsonl", {"problem": "Find it.", "answer": "70", "id": "0"}, "70.0"),
    "hmmt_feb25": (
        "data/train-00000-of-00001.parquet",
        {
            "problem_idx": 1,
            "problem": "Compute.",
            "answer": r"\frac{1}{576}",
            "problem_type": ["A"],
        },
        "1/576",
    ),
    "minerva": ("test.jsonl", {"question": "How far?", "answer": "4.5e33"}, r"4.5 \times 10^{33}"),
}
ROW = {"input": "2 + 2?", "label": "4", "datasource": "gsm8k"}


def test_the_papers_benchmarks():
    assert {*benchmark_names()} == {line.split()[0] for line in PAPER} | LAYOUTS.keys()
    for name, *values in map(str.split, PAPER):
        found = named_benchmark(name)
        assert (found.name, found.split, found.top_p) == (name, "test", 1.0)
        drawing = found.temperature, found.max_new_tokens, found.samples, found.count or "-"
        assert [*map(str, drawing)] == values


@pytest.mark.parametrize("name", LAYOUTS)
def test_benchmarks_in_the_layout_of_the_hub(name, tmp_path):
    file, row, answer = LAYOUTS[name]
    path = tmp_path / name / file
    path.parent.mkdir(parents=True)
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    (asked,) = asked_of([name], tmp_path / "out", {}, {name: str(tmp_path / name)})
    (problem,) = asked.items.values()
    assert problem.datasource == f"math/{name}"
    assert row.get("problem", row.get("question")) in problem.messages[-1]["content"]
    assert grade(problem, rf"So it is \boxed{{{answer}}}.").status == "correct"
    assert grade(problem, r"So it is \boxed{1}.").status == "wrong"


def test_definitions_here_come_before_those_of_the_package(tmp_path, monkeypatch):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval/maze.yaml").write_text("\ufefftask: maze\ncount: 3")
    (tmp_path / "eval/arena_x.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert named_benchmark("maze").count == 3
    assert "arena_x" not in benchmark_names()
    (tmp_path / "own.yaml").write_text("file: data/x.jsonl\ntemperature: 1\n")
    assert read_benchmark(tmp_path / "own.yaml").file == tmp_path / "data/x.jsonl"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "own.yaml: while parsing"),
        ("task: maze\ntemprature: 1", "temprature 1: extra inputs are not permitted"),
        ("task: labyrinth", "no task 'labyrinth'; there are countdown"),
        ("task: maze\nfile: x", "either a task or a file"),
        ("task: maze\nsamples: 0", "samples 0: "),
    ],
)
def test_wrong_definitions(tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_benchmark(tmp_path / "own.yaml")


def test_items_are_told_apart_by_content():
    messages = [{"role": "user", "content": "2 + 2?"}]
    others = [{**ROW, "label": "5"}, {**ROW, "input": "3 + 1?"}, {**ROW, "images": ["a/1.png"]}]
    assert len({uid_of(example(row)) for row in (ROW, *others)}) == 4
    assert uid_of(example({**ROW, "images": ["b/1.png"]})) == uid_of(example(others[2]))
    assert uid_of(example({**ROW, "input": messages})) == uid_of(example(ROW))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "x"}, "no value under the key 'label'; keys seen: input"),
        ({**ROW, "input": ["x"]}, "must hold text, or messages with a role and a content"),
        ({**ROW, "label": "four"}, "the label must be a number"),
    ],
)
def test_rows_that_are_no_items(tmp_path, row, message):
    path = write_lines(tmp_path / "rows.jsonl", [ROW, row])
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: .*" + message):
        items_of_file(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no item: build it with `openrlhf-js data build`"):
        items_of_file(path)


COUNTDOWN = '{"numbers": [2, 3, 4], "target": 24}'
KNK = '{"Owen": "sage", "Liam": "fool"}'
MAZE = '{"maze": ["******", "*S..E*", "*....*", "******"]}'


def item(datasource, label):
    return example({"input": "?", "label": label, "datasource": datasource})


@pytest.mark.parametrize(
    ("datasource", "label", "text", "status", "answer"),
    [
        ("math/math500", "7", r"so \boxed{6}, no: \boxed{ 7 }", "correct", "7"),
        ("math", "7", "it is 7", "no_answer", None),
        ("gsm8k", "7", r"\boxed{8} #### 7", "wrong", "8"),
        ("countdown/3", COUNTDOWN, "<answer> (4) * 3 * 2 = 24 </answer>", "correct", "24"),
        ("countdown/3", COUNTDOWN, "<answer> 4 / 3 </answer>", "wrong", "4/3"),
        ("countdown/3", COUNTDOWN, "<answer> 4 / (3 - 3) </answer>", "wrong", "division by zero"),
        ("countdown/3", COUNTDOWN, "<answer> 4 ** 3 </answer>", "malformed", None),
        ("maze/6x4", MAZE, "<answer> Right, right -> R </answer>", "correct", "RRR"),
        ("maze/6x4", MAZE, "<answer> ['D', 'R'] </answer>", "wrong", "DR"),
    ],
)
def test_statuses_and_answers(datasource, label, text, status, answer):
    assert grade(item(datasource, label), text) == (status, answer)


def test_answers_that_mean_the_same_are_the_same():
    found = {
        grade(item("knights_knaves/2", KNK), rf"\boxed{{{said}}}").answer
        for said in ("Owen is a fool, and Liam is a fool", "Liam and Owen are fools")
    }
    assert found == {"liam: fool, owen: fool"}
    mathematics, countdown = TASKS["math"], TASKS["countdown"]
    assert mathematics.same_answer(r"\frac{1}{2}", "0.5")
    assert not mathematics.same_answer("1", "2")
    assert not mathematics.same_answer("1", "{")  # which can be no gold answer
    assert not countdown.same_answer("1", "1.0")


def test_every_task_has_a_form_for_its_own_responses():
    labels = {"countdown": COUNTDOWN, "knights_knaves": KNK, "maze": MAZE}
    labels |= dict.fromkeys(("math", "gsm8k", "geometry3k"), "7")
    others = {"reasoning_gym"}  # test_reasoning_gym.py has it
    assert TASKS.keys() == labels.keys() | others
    for name, label in labels.items():
        right, wrong = (
            grade(item(name, label), respond(label))
            for respond in (TASKS[name].right_response, TASKS[name].wrong_response)
        )
        assert (right.status, wrong.status) == ("correct", "wrong")
        assert right.answer and wrong.answer and right.answer != wrong.answer


def test_long_answers_are_cut_and_the_order_is_kept():
    found = grade_all([item("math", "7")] * 3, ["\\boxed{" + "1 + " * 200 + "1}", "", r"\boxed{7}"])
    assert [each.status for each in found][1:] == ["no_answer", "correct"]
    assert len(found[0].answer) == LONGEST_ANSWER


ANSWERS = {"correct": "gold", "no_answer": None, "malformed": "x ("}


def vote(*marks, same=lambda a, b: a == b):
    """Each mark is a status, or the text of a wrong answer."""
    statuses = [mark if mark in (*ANSWERS, "timeout") else "wrong" for mark in marks]
    return majority(statuses, [ANSWERS.get(mark, mark) for mark in marks], same)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (("correct", "correct", "a"), 1),
        (("correct", "a"), 1 / 2),  # by lot
        (("correct", "a", "b"), 1 / 3),
        (("correct", "correct", "a", "a", "b"), 1 / 2),
        (("correct", "no_answer", "no_answer"), 1),  # who has no answer does not vote
        (("correct", "malformed", "malformed"), 1),
        (("no_answer", "no_answer"), 0),
        (("correct", "timeout", "timeout"), 0),  # answers all the same
    ],
)
def test_the_vote_by_hand(marks, expected):
    for order in itertools.permutations(marks):
        assert vote(*order) == pytest.approx(expected)


def test_spellings_vote_together_and_are_compared_only_where_it_decides():
    marks = ("correct", "correct", "1/2", "0.5", "50 %", "3")
    halves = {"1/2", "0.5", "50 %"}
    assert vote(*marks) == 1
    assert vote(*marks, same=lambda a, b: {a, b} <= halves) == 0

    def never(a, b):
        raise AssertionError("compared")

    assert vote("correct", "correct", "a", same=never) == 1
    assert vote("a", "b", "c", same=never) == 0


MARKS = ["rrrr", "rwwn", "nnnn", "rrwm"]
GROUPS = [group(i, marks) for i, marks in enumerate(MARKS)]


def test_the_summary_by_hand():
    found = summarise(items(4), GROUPS)
    json.dumps(found, allow_nan=False)

    def value(*of):
        return value_of(found, *of)["value"]

    assert value("mean_at_k") == pytest.approx((4 + 1 + 0 + 2) / 16)
    # 1 of 4 right: 3 of 6 pairs have it; 2 of 4: 5 of 6 pairs
    assert value("pass_at", 2) == pytest.approx((1 + 3 / 6 + 0 + 5 / 6) / 4)
    assert value("pass_at", 4) == pytest.approx(3 / 4)
    assert value("majority_at_k") == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert value("no_answer") == pytest.approx(5 / 16)
    statuses = ("correct", "wrong", "no_answer", "malformed", "timeout", "error")
    assert sum(map(value, statuses)) == pytest.approx(1)
    assert found["per_item"]["correct"] == [4, 1, 0, 2]
    interval = clustered_proportion([1, 1 / 4, 0, 1 / 2])
    row = value_of(found, "mean_at_k")
    assert [row["value"], row["low"], row["high"]] == pytest.approx([*interval])
    shown = [row["j"] for row in found["rows"] if row["quantity"] == "pass_at"]
    assert shown == [1, 2, 4]


@pytest.mark.parametrize("j", [1, 2, 3, 4])
def test_pass_at_j_is_the_share_of_subsets_with_a_right_one(j):
    shares = [
        np.mean(["r" in subset for subset in itertools.combinations(marks, j)]) for marks in MARKS
    ]
    assert values_of(summarise(items(4), GROUPS), f"pass@{j}") == pytest.approx(np.array(shares))


def test_a_repeated_item_is_asked_once(tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [ROW, {**ROW, "label": "5"}, ROW])
    (found,) = benchmarks.asked_of([str(path)], tmp_path, {"samples": 2}, {})
    assert [each.label for each in found.items.values()] == ["4", "5"]
    assert found.benchmark.samples == 2


def test_lengths_and_truncation():
    made = [group(0, "rw", tokens=10), group(1, "rr", tokens=20)]
    made[0][1] = made[0][1]._replace(finish_reason="length", tokens=40)
    found = summarise(items(2), made)
    assert value_of(found, "tokens")["value"] == pytest.approx((10 + 40 + 20 + 20) / 4)
    assert value_of(found, "tokens_correct")["value"] == pytest.approx(50 / 3)
    assert value_of(found, "truncated")["value"] == pytest.approx(1 / 4)
    made[1][0] = made[1][0]._replace(tokens=None)
    found = summarise(items(2), made)
    for name in ("tokens", "tokens_correct"):
        assert value_of(found, name)["value"] is None


class Fake:
    """A sampler that says 1, and whatever else it is told to."""

    name, identity, same_model = "fake", {"model_sha256": "abc"}, False

    def __init__(self, odd=None):
        self.odd, self.asked = odd or {}, []

    def make_room(self, requests, parameters):
        pass

    def run(self, requests, parameters, on_samples):
        for request in requests:
            self.asked.append((request.number, request.draw))
            each = self.odd.get(request.number, r"\boxed{1}")
            if isinstance(each, str):
                each = Sampled(each, "hm", "stop", 3, 7)
            on_samples([(request, each)])


BENCHMARK = Benchmark(name="toy", file=Path("x"), samples=2)


def evaluated(out, sampler, count=4, seed=0, retry_failed=False, **changes):
    asked = [Asked(BENCHMARK.model_copy(update=changes), items(count))]
    found = evaluate.evaluate(sampler, asked, out, seed, retry_failed)
    (out / summary.FILE).write_text(json.dumps(found))
    return found


def test_samples_of_another_model_name_the_way_to_go_on(tmp_path):
    evaluated(tmp_path, Fake())
    (tmp_path / summary.FILE).unlink()  # as after a kill
    other = Fake()
    other.identity = {"model_sha256": "def"}
    with pytest.raises(ValueError, match=r"model_sha256 was 'abc' .*--same_model"):
        evaluated(tmp_path, other)


def test_only_what_is_missing_is_sampled(tmp_path):
    path = tmp_path / "samples/toy.jsonl"
    evaluated(tmp_path, first := Fake(), 3)
    assert first.asked == [(i, j) for i in range(3) for j in range(2)]
    with path.open("rb") as file:
        whole = file.read()
    path.write_bytes(whole[:-20])  # a kill cut the last line short
    evaluated(tmp_path, again := Fake(), 3)
    assert again.asked == [(2, 1)]
    assert path.read_bytes() == whole
    evaluated(tmp_path, more := Fake({3: "lone \ud800 half\u2028"}), 4, samples=3)
    assert more.asked == [(0, 2), (1, 2), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert lines(path)[-1]["text"] == "lone \ufffd half\u2028"
    asked = [json.loads(line) for line in path.with_suffix(".items.jsonl").open("rb")]
    assert [each["uid"] for each in asked] == [*items(4)]
    with pytest.raises(ValueError, match=r"temperature: 1\.0 there, 0\.5 now"):
        evaluated(tmp_path, Fake(), temperature=0.5)
    with pytest.raises(ValueError, match="holds records of other settings"):
        evaluated(tmp_path, Fake(), seed=1)


def test_another_model_does_not_join_results(tmp_path):
    evaluated(tmp_path, Fake())
    other = Fake()
    other.identity = {"model_sha256": "other"}
    with pytest.raises(ValueError, match=r"has results of another model .*'abc' and is 'other'"):
        evaluated(tmp_path, other, name="else")
    assert [*evaluated(tmp_path, Fake(), name="else")["tasks"]] == ["toy", "else"]


def test_a_new_grader_grades_again(tmp_path, monkeypatch, capsys):
    before = evaluated(tmp_path, Fake())["tasks"]["toy"]
    monkeypatch.setattr(grading, "grader_version", lambda: "new")
    wrong = grading.Grade("wrong", "1")
    monkeypatch.setattr(grading, "grade_all", lambda items, texts: [wrong] * len(texts))
    after = evaluated(tmp_path, again := Fake())["tasks"]["toy"]
    assert not again.asked
    assert sum(before["per_item"]["correct"]) > sum(after["per_item"]["correct"]) == 0
    assert after["graded_by"] == "new"
    assert "graded 8 responses again" in capsys.readouterr().err
    evaluated(tmp_path, Fake())
    assert "again" not in capsys.readouterr().err


def test_refused_samples_are_in_no_figure_and_asked_again_only_if_told(tmp_path, capsys):
    odd = {1: NoReply("too long", refused=True)}
    found = evaluated(tmp_path, Fake(odd))
    task = found["tasks"]["toy"]
    assert "2 responses are refused; the last: item 2: too long" in capsys.readouterr().err
    assert task["per_item"]["answered"] == [2, 0, 2, 2] and task["items"] == 4
    right = sum(task["per_item"]["correct"])
    assert value_of(task, "mean_at_k")["value"] == pytest.approx(right / 6)  # of 3 items
    assert value_of(task, "refused")["value"] == 1 / 4
    assert value_of(task, "no_answer")["value"] == 0
    assert value_of(task, "tokens")["value"] == 3  # of those that came
    (line,) = (line for line in notes(found) if "refused" in line)
    assert "2 of 8 responses were refused" in line and f"mean@k is {100 * right / 8:.1f} %" in line
    refused = [row for row in lines(tmp_path / "samples/toy.jsonl") if "refused" in row]
    assert [row["refused"] for row in refused] == ["too long"] * 2
    evaluated(tmp_path, again := Fake())
    assert not again.asked
    whole = evaluated(tmp_path, told := Fake(), retry_failed=True)["tasks"]["toy"]
    assert told.asked == [(1, 0), (1, 1)] and whole["per_item"]["answered"] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="refuses every item"):
        evaluated(tmp_path / "all", Fake(dict.fromkeys(range(4), odd[1])))


def test_pass_at_j_of_the_samples_that_were_answered():
    """By hand: 1 of 3 answered right, 2 of 4 wrong, none answered."""
    made = [group(0, "rwww"), group(1, "rrww"), group(2, "rrrr")]
    made[0][3] = made[0][3]._replace(refused="too long")
    made[2] = [sample._replace(refused="too long") for sample in made[2]]
    found = summarise(items(3), made)
    assert value_of(found, "mean_at_k")["value"] == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert value_of(found, "pass_at", 2)["value"] == pytest.approx((2 / 3 + 5 / 6) / 2)
    assert value_of(found, "pass_at", 4)["value"] == 1  # of the one item with four answers
    assert found["per_item"]["majority"] == [0, 0.5, None]
    assert values_of(found, "pass@4") == pytest.approx(np.array([np.nan, 1, np.nan]), nan_ok=True)


def test_unanswered_requests_are_an_error_and_the_rest_is_kept(tmp_path):
    with pytest.raises(EndpointError, match="2 of 8 requests have no reply; the last: item 2"):
        evaluated(tmp_path, Fake({1: NoReply("slow")}))
    evaluated(tmp_path, again := Fake())
    assert again.asked == [(1, 0), (1, 1)]
