"""Every data set of mathematics is read from its own layout, and its boxed answers are graded."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answer_graders.tasks import math

PROBLEMS = [("What is 2 + 2?", "4"), ("Two\n\nparagraphs: $x$?", "-7")]
OLYMPIAD = {"question": "How many?", "is_multiple_answer": False, "unit": None, "error": None}


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def load(path, rows, dataset, split="test"):
    return list(math.load(split, parquet(path / "data.parquet", rows), dataset))


def test_dapo_without_repetitions(tmp_path):
    rows = [{"prompt": problem, "solution": answer} for problem, answer in PROBLEMS]
    parquet(tmp_path / "all" / "train-00000-of-00001.parquet", rows * 100)
    parquet(tmp_path / "en" / "train-00000-of-00001.parquet", rows[:1])
    files = "- config_name: all\n  data_files: all/train-*\n"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{files}---\n")
    assert list(math.load("train", str(tmp_path))) == [
        {"problem": problem, "answer": answer, "source": "dapo"} for problem, answer in PROBLEMS
    ]


@pytest.mark.parametrize(
    ("dataset", "row", "answer"),
    [
        (None, {"problem": "How many?", "answer": r"\frac{1}{2}", "level": 1}, r"\frac{1}{2}"),
        ("amc23", {"question": "How many?", "answer": 27.0}, "27"),
        ("minerva", {"question": "How many?", "answer": "0.5"}, "0.5"),
    ],
)
def test_an_item(tmp_path, dataset, row, answer):
    (item,) = load(tmp_path, [row], dataset)
    source = dataset or "math500"
    assert item == {"problem": "How many?", "answer": answer, "source": source}


def test_olympiadbench_answers(tmp_path):
    for line in Path(__file__).with_name("olympiad.txt").read_text().splitlines():
        if not line.startswith("{"):
            continue
        row, expected = map(json.loads, line.split(" ~ "))
        (item,) = load(tmp_path, [{**OLYMPIAD, **row}], "olympiadbench")
        assert item == {"problem": "How many?", **expected, "source": "olympiadbench"}
        plain = isinstance(expected["answer"], str) and len(expected) == 1
        assert math.label(item) == (expected["answer"] if plain else json.dumps(expected))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("answer_type", [str, int])
def test_your_own_file_is_taken_whole(tmp_path, split, answer_type):
    rows = [{"problem": f"{n} + 1?", "answer": answer_type(n + 1)} for n in (0, 1, 0)]
    assert load(tmp_path, rows, "plain", split) == [
        {"problem": "0 + 1?", "answer": "1", "source": "plain"},
        {"problem": "1 + 1?", "answer": "2", "source": "plain"},
    ]


def test_your_own_file_that_is_refused(tmp_path):
    rows = [{"problem": "1 + 1?", "answer": "2"}]
    with pytest.raises(ValueError, match=r"lacks prompt, solution; it has .*problem.*answer"):
        load(tmp_path, rows, None, "train")
    with pytest.raises(ValueError, match="needs a source with problem and answer"):
        math.load("train", None, "plain")


@pytest.mark.parametrize(
    ("split", "dataset"),
    [("test", "dapo"), ("train", "math500"), ("train", "nothing"), ("validation", None)],
)
def test_a_data_set_or_split_that_does_not_exist(split, dataset):
    with pytest.raises(ValueError, match=r"there are dapo: train; .*plain: train, test"):
        math.load(split, None, dataset)


def test_by_default_the_hub_is_asked_for_the_data_set(monkeypatch):
    asked = []

    def rows(source, split, columns, config):
        asked.append((source, split, columns, config))
        return iter([])

    monkeypatch.setattr(math.hub, "rows", rows)
    for split, dataset in [("train", None), ("test", None), ("test", "olympiadbench")]:
        assert not list(math.load(split, None, dataset))
    columns = ("question", "final_answer", "is_multiple_answer", "unit", "error")
    assert asked == [
        ("open-r1/DAPO-Math-17k-Processed", "train", ("prompt", "solution"), "all"),
        ("HuggingFaceH4/MATH-500", "test", ("problem", "answer"), None),
        ("Hothan/OlympiadBench", "train", columns, "OE_TO_maths_en_COMP"),
    ]


GOLDS = [
    "27",
    "-1",
    r"\frac{1}{2}",
    r"[0, \infty)",
    r"\{1, 2\}",
    "x^2 + 1",
    "x = 5",
    r"\text{(C)}",
    r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
    "4210_5",
    ["3", r"\sqrt{2}"],
]
LABELS = [math.label({"answer": gold}) for gold in GOLDS] + [
    math.label({"answer": "4.56", "unit": r"\mathrm{cm}", "tolerance": "1e-1"}),
    math.label({"answer": "90", "unit": r"^{\circ}"}),
]


@pytest.mark.parametrize("label", LABELS)
def test_the_gold_answer_scores_one_and_another_does_not(label):
    assert math.score(math.right_response(label), label).status == "correct"
    assert math.score(math.wrong_response(label), label).status == "wrong"
    assert math.score("Hard to say.", label).status == "no_answer"


@pytest.mark.parametrize("answer", [" ", None, [], ["1", ""]])
def test_an_item_without_an_answer_has_no_label(answer):
    with pytest.raises(ValueError):
        math.label({"problem": "What?", "answer": answer})
