"""pass@k: benchmarks, grading, the vote, samples on disk, and what they say."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from kit import read_lines, write_lines
from passk_kit import group, items, lines
from pyarrow import parquet

import answer_graders
from answer_graders.prompt_files import example
from answer_graders.tasks import STATUSES, TASKS
from paired_eval.pages.passk import notes, passes, value_of
from paired_eval.passk import evaluate, grading, summary
from paired_eval.passk.benchmarks import Asked, Benchmark, asked_of, read_benchmark, uid_of
from paired_eval.passk.compare import values_of
from paired_eval.passk.grading import grade, majority
from paired_eval.passk.summary import summarise
from paired_eval.sampling.endpoint import EndpointError, NoReply
from paired_eval.sampling.sampler import Sampled
from paired_eval.stats import clustered_proportion

LAYOUTS = {  # a file as the hub has it, a row, and a right answer in another notation
    "amc23": ("test.parquet", {"question": "How many?", "answer": 27.0, "url": "a"}, "27"),
    "aime24": ("train.parquet", {"problem": "Find it.", "answer": "033", "year": "2024"}, "33"),
    "aime25": ("test.jsonl", {"problem": "Find it.", "answer": "70", "id": "0"}, "70.0"),
    "hmmt_feb25": ("train.parquet", {"problem": "Do.", "answer": r"\frac{1}{576}"}, "1/576"),
    "minerva": ("test.jsonl", {"question": "How far?", "answer": "4.5e33"}, r"4.5 \times 10^{33}"),
}
ROW = {"input": "2 + 2?", "label": "4", "datasource": "gsm8k"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_benchmarks_in_the_layout_of_the_hub(name, tmp_path):
    file, row, answer = LAYOUTS[name]
    path = tmp_path / name / file
    path.parent.mkdir(parents=True)
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    (asked,) = asked_of(
        tasks=[name],
        out=tmp_path / "out",
        overrides={},
        sources={name: str(tmp_path / name)},
    )
    (problem,) = asked.items.values()
    assert problem.datasource == f"math/{name}"
    assert row.get("problem", row.get("question")) in problem.messages[-1]["content"]
    assert grade(problem, rf"So it is \boxed{{{answer}}}.").status == "correct"
    assert grade(problem, r"So it is \boxed{1}.").status == "wrong"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "own.yaml"),
        ("task: maze\ntemprature: 1", "temperature"),
        ("task: labyrinth", "'labyrinth'"),
        ("task: maze\nfile: x", "either a task or a file"),
    ],
)
def test_wrong_definitions(tmp_path, text, message):
    path = tmp_path / "own.yaml"
    path.write_text("\ufefffile: data/x.jsonl\ntemperature: 1\n")
    assert read_benchmark(path).file == tmp_path / "data/x.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_benchmark(path)


def test_items_are_told_apart_by_content(tmp_path, capsys):
    messages = [{"role": "user", "content": "2 + 2?"}]
    others = [{**ROW, "label": "5"}, {**ROW, "input": "3 + 1?"}, {**ROW, "images": ["a/1.png"]}]
    assert len({uid_of(example(row)) for row in (ROW, *others)}) == 4
    assert uid_of(example({**ROW, "images": ["b/1.png"]})) == uid_of(example(others[2]))
    assert uid_of(example({**ROW, "input": messages})) == uid_of(example(ROW))
    path = write_lines(tmp_path / "rows.jsonl", [ROW, {**ROW, "label": "5"}, ROW])
    (asked,) = asked_of([str(path)], tmp_path, overrides={"samples": 2}, sources={})
    assert [item.label for item in asked.items.values()] == ["4", "5"]  # asked once
    assert "another gold answer" in capsys.readouterr().out
    assert asked.benchmark.samples == 2


COUNTDOWN = '{"numbers": [2, 3, 4], "target": 24}'
KNK = '{"Owen": "sage", "Liam": "fool"}'
MAZE = '{"maze": ["******", "*S..E*", "*....*", "******"]}'


def item(datasource, label):
    return example({"input": "?", "label": label, "datasource": datasource})


def test_every_task_has_a_form_for_its_own_responses():
    labels = {"countdown": COUNTDOWN, "knights_knaves": KNK, "maze": MAZE}
    labels |= dict.fromkeys(("math", "gsm8k", "geometry3k", "questions"), "7")
    others = {"reasoning_gym"}  # test_reasoning_gym.py has it
    assert TASKS.keys() == labels.keys() | others
    for name, label in labels.items():
        task = TASKS[name]
        right = grade(item(name, label), task.right_response(label))
        wrong = grade(item(name, label), task.wrong_response(label))
        assert right.status == "correct"
        assert wrong.status == "wrong"
        assert right.answer
        assert wrong.answer
        assert right.answer != wrong.answer
    assert TASKS["math"].same_answer(r"\frac{1}{2}", "0.5")
    assert not TASKS["math"].same_answer("1", "{")  # which can be no gold answer
    assert not TASKS["countdown"].same_answer("1", "1.0")


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


def figure(task, quantity, j=None):
    return value_of(task, quantity, j)["value"]


def test_the_summary_by_hand():
    task = summarise(items(4), GROUPS)
    json.dumps(task, allow_nan=False)
    assert task["per_item"]["correct"] == [4, 1, 0, 2]
    assert figure(task, "mean_at_k") == pytest.approx((4 + 1 + 0 + 2) / 16)
    # 1 of 4 right: 3 of 6 pairs have it; 2 of 4: 5 of 6 pairs
    assert figure(task, "pass_at", 2) == pytest.approx((1 + 3 / 6 + 0 + 5 / 6) / 4)
    assert figure(task, "pass_at", 4) == pytest.approx(3 / 4)
    assert figure(task, "majority_at_k") == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert figure(task, "no_answer") == pytest.approx(5 / 16)
    shares = [figure(task, status) for status in STATUSES]
    assert sum(shares) == pytest.approx(1)
    shown = [row["j"] for row in task["rows"] if row["quantity"] == "pass_at"]
    assert shown == [1, 2, 4]

    interval = clustered_proportion([1, 1 / 4, 0, 1 / 2])
    row = value_of(task, "mean_at_k")
    assert row["low"] == pytest.approx(interval.low)
    assert row["high"] == pytest.approx(interval.high)


def test_lengths_and_truncation():
    first = group(0, "rw", tokens=10)
    second = group(1, "rr", tokens=20)
    first[1] = first[1]._replace(finish_reason="length", tokens=40)
    task = summarise(items(2), [first, second])
    assert figure(task, "tokens") == pytest.approx((10 + 40 + 20 + 20) / 4)
    assert figure(task, "tokens_correct") == pytest.approx(50 / 3)
    assert figure(task, "truncated") == pytest.approx(1 / 4)

    second[0] = second[0]._replace(tokens=None)
    uncounted = summarise(items(2), [first, second])
    assert figure(uncounted, "tokens") is None
    assert figure(uncounted, "tokens_correct") is None


class Fake:
    """A sampler that says 1, and whatever else it is told to."""

    name = "fake"
    same_model = False

    def __init__(self, odd=None, model="abc"):
        self.odd = odd or {}
        self.asked = []
        self.identity = {"model_sha256": model}

    def make_room(self, requests, parameters):
        pass

    def run(self, requests, parameters, on_samples):
        for request in requests:
            self.asked.append((request.number, request.draw))
            reply = self.odd.get(request.number, r"\boxed{1}")
            if isinstance(reply, str):
                reply = Sampled(
                    text=reply,
                    thinking="hm",
                    finish_reason="stop",
                    tokens=3,
                    seed=7,
                )
            on_samples([(request, reply)])


BENCHMARK = Benchmark(name="toy", file=Path("x"), samples=2)


def evaluated(out, sampler, count=4, seed=0, retry_failed=False, **changes):
    asked = [Asked(BENCHMARK.model_copy(update=changes), items(count))]
    results = evaluate.evaluate(sampler, asked, out, seed, retry_failed)
    (out / summary.FILE).write_text(json.dumps(results))
    return results


def test_only_what_is_missing_is_sampled(tmp_path):
    path = tmp_path / "samples/toy.jsonl"
    sampler = Fake()
    evaluated(tmp_path, sampler, 3)
    assert sampler.asked == list(itertools.product(range(3), range(2)))
    complete = path.read_bytes()

    path.write_bytes(complete[:-20])  # a kill cut the last line short
    sampler = Fake()
    evaluated(tmp_path, sampler, 3)
    assert sampler.asked == [(2, 1)]
    assert path.read_bytes() == complete

    sampler = Fake({3: "lone \ud800 half\u2028"})
    evaluated(tmp_path, sampler, 4, samples=3)
    assert sampler.asked == [(0, 2), (1, 2), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert lines(path)[-1]["text"] == "lone \ufffd half\u2028"
    asked = read_lines(path.with_suffix(".items.jsonl"))
    assert [item["uid"] for item in asked] == list(items(4))


def test_another_model_joins_neither_samples_nor_results(tmp_path):
    evaluated(tmp_path, Fake())
    other = Fake(model="other")
    with pytest.raises(ValueError, match=r"has results of another model .*'abc' and is 'other'"):
        evaluated(tmp_path, other, name="else")
    both = evaluated(tmp_path, Fake(), name="else")
    assert list(both["tasks"]) == ["toy", "else"]
    (tmp_path / summary.FILE).unlink()  # as after a kill
    with pytest.raises(ValueError, match=r"model_sha256 was 'abc' .*--same_model"):
        evaluated(tmp_path, other)


def test_a_new_grader_grades_again(tmp_path, monkeypatch, capsys):
    before = evaluated(tmp_path, Fake())["tasks"]["toy"]
    monkeypatch.setattr(grading, "grader_version", lambda: "new")
    wrong = grading.Grade("wrong", "1")
    monkeypatch.setattr(grading, "grade_all", lambda items, texts: [wrong] * len(texts))
    sampler = Fake()
    after = evaluated(tmp_path, sampler)["tasks"]["toy"]
    assert not sampler.asked
    assert sum(before["per_item"]["correct"]) > 0
    assert sum(after["per_item"]["correct"]) == 0
    assert after["graded_by"] == "new"
    assert "graded 8 responses again" in capsys.readouterr().err
    evaluated(tmp_path, Fake())
    assert "again" not in capsys.readouterr().err


def test_any_change_of_the_graders_is_another_version(tmp_path, monkeypatch):
    package = tmp_path / "answer_graders"
    shutil.copytree(Path(answer_graders.__file__).parent, package)
    monkeypatch.setattr(answer_graders, "__file__", str(package / "__init__.py"))
    version = grading.grader_version.__wrapped__
    before = version()
    assert version() == before
    for changed in ("math/vocabulary.py", "tasks/maze.py", "answers.py", "thinking.py", "pool.py"):
        with (package / changed).open("a") as file:
            file.write("# changed\n")
        assert version() != before, changed
        before = version()
    (package / "math/vocabulary.py").rename(package / "tasks/vocabulary.py")
    assert version() != before
    before = version()
    (package / "programs/data.py").write_text("# changed")
    assert version() == before


TOO_LONG = NoReply("too long", refused=True)


def test_refused_samples_are_in_no_figure_and_asked_again_only_if_the_user_says_so(tmp_path):
    results = evaluated(tmp_path, Fake({1: TOO_LONG}))
    task = results["tasks"]["toy"]
    assert task["items"] == 4
    assert task["per_item"]["answered"] == [2, 0, 2, 2]
    right = sum(task["per_item"]["correct"])
    assert figure(task, "mean_at_k") == pytest.approx(right / 6)  # of 3 items
    assert figure(task, "refused") == 1 / 4
    assert figure(task, "no_answer") == 0
    assert figure(task, "tokens") == 3  # of those that came
    assert any("2 of 8 responses were refused" in note for note in notes(results))

    rows = lines(tmp_path / "samples/toy.jsonl")
    assert [row["refused"] for row in rows if "refused" in row] == ["too long"] * 2
    sampler = Fake()
    evaluated(tmp_path, sampler)
    assert not sampler.asked
    task = evaluated(tmp_path, sampler, retry_failed=True)["tasks"]["toy"]
    assert sampler.asked == [(1, 0), (1, 1)]
    assert task["per_item"]["answered"] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match=r"8 requests were refused and none .*: too long"):
        evaluated(tmp_path / "all", Fake(dict.fromkeys(range(4), TOO_LONG)))


def test_pass_at_j_of_the_samples_that_were_answered():
    """By hand: 1 of 3 answered right, 2 of 4 wrong, none answered."""
    first = group(0, "rwww")
    first[3] = first[3]._replace(refused="too long")
    third = [sample._replace(refused="too long") for sample in group(2, "rrrr")]
    task = summarise(items(3), [first, group(1, "rrww"), third])
    assert figure(task, "mean_at_k") == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert figure(task, "pass_at", 2) == pytest.approx((2 / 3 + 5 / 6) / 2)
    assert figure(task, "pass_at", 4) == 1  # of the one item with four answers
    assert task["per_item"]["majority"] == [0, 0.5, None]
    assert values_of(task, "pass@4").tolist() == pytest.approx([np.nan, 1, np.nan], nan_ok=True)

    results = {"tasks": {"toy": {**task, "settings": {"max_new_tokens": 64}}}}
    (row,) = passes(results)
    assert row["4"].startswith("100.0") and row["4"].endswith(" of 1 items")


def test_uneven_numbers_of_responses():
    """By hand: 0 of 1 right, 2 of 3, 1 of 2; every item has the same weight."""
    task = summarise(items(3), [group(0, "w"), group(1, "rrw"), group(2, "rw")])
    assert task["samples"] == 3
    assert figure(task, "mean_at_k") == pytest.approx((0 + 2 / 3 + 1 / 2) / 3)
    assert figure(task, "pass_at", 2) == pytest.approx((1 + 1) / 2)  # of two items
    assert figure(task, "pass_at", 3) == 1


def test_unanswered_requests_are_an_error_and_the_rest_is_kept(tmp_path):
    with pytest.raises(EndpointError, match="2 of 8 requests have no reply; the last: item 2"):
        evaluated(tmp_path, Fake({1: NoReply("slow")}))
    sampler = Fake()
    evaluated(tmp_path, sampler)
    assert sampler.asked == [(1, 0), (1, 1)]


def test_a_copied_line_counts_once_and_is_named(tmp_path, capsys):
    path = tmp_path / "samples/toy.jsonl"
    before = evaluated(tmp_path, Fake())
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*text, text[2], text[3]]))
    capsys.readouterr()
    assert evaluated(tmp_path, Fake()) == before
    assert "line 10 repeats line 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"text": "other"}, {"seed": 8}, {"status": "malformed"}],
)
def test_a_line_that_contradicts_an_earlier_one_is_refused(tmp_path, change):
    path = tmp_path / "samples/toy.jsonl"
    evaluated(tmp_path, Fake())
    text = path.read_bytes().splitlines(keepends=True)
    changed = {**json.loads(text[2]), **change}
    path.write_bytes(b"".join(text) + json.dumps(changed).encode() + b"\n")
    with pytest.raises(ValueError, match=r"toy\.jsonl, line 10 contradicts line 3, which has the"):
        evaluated(tmp_path, Fake())


@pytest.mark.parametrize(
    ("place", "line", "message"),
    [
        (2, b'{"uid": "a", "dr\n', "line 3 is damaged"),
        (0, b'{"model_sh\n', "line 1 is damaged"),
        (9, b'{"model_sha256": "abc"}\n', "line 10 is no record"),
    ],
)
def test_a_damaged_line_is_refused(tmp_path, place, line, message):
    path = tmp_path / "samples/toy.jsonl"
    evaluated(tmp_path, Fake())
    text = path.read_bytes().splitlines(keepends=True)
    text.insert(place, line)
    path.write_bytes(b"".join(text))
    with pytest.raises(ValueError, match=rf"toy\.jsonl, {message}"):
        evaluated(tmp_path, Fake())


def test_the_items_of_earlier_results_stay(tmp_path):
    path = tmp_path / "toy.items.jsonl"
    known = items()
    evaluate._add_items(path, known)
    first = next(iter(known))
    evaluate._add_items(path, {first: known[first]})  # a trial of fewer items
    assert [row["uid"] for row in read_lines(path)] == list(known)
