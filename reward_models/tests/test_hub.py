"""Rows come out of every layout that a data set is published in, and become problems once."""

import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answer_graders import hub

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "level": n} for n in range(3)]
TRIMMED = [{"question": row["question"], "answer": row["answer"]} for row in ROWS]
COLUMNS = ("question", "answer")


def put(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(source, split="train", columns=COLUMNS, config=None):
    return list(hub.rows(str(source), split, columns, config))


def test_a_downloaded_folder_gives_the_split_of_a_configuration(tmp_path):
    for config in ("main", "socratic"):
        for split in ("train", "test"):
            rows = [{**ROWS[0], "question": f"{config} {split}?"}]
            put(tmp_path / config / f"{split}-00000-of-00001.parquet", rows)
    files = "- config_name: main\n  data_files: [{split: test, path: main/test-*}]\n"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{files}---\n")
    put(tmp_path / ".cache" / "test.jsonl")
    assert [row["question"] for row in read(tmp_path, "test", config="main")] == ["main test?"]
    with pytest.raises(ValueError, match="does not give its split train"):
        read(tmp_path, "train", config="main")


@pytest.mark.parametrize("name", ["a.jsonl", "test.json", "data/my.parquet", "a.csv"])
def test_a_file_is_taken_whole_whatever_its_name(tmp_path, name):
    file = put(tmp_path / name)
    if file.suffix == ".csv":
        lines = [f"{row['question']},{row['answer']}" for row in TRIMMED]
        file.write_text("\n".join(["question,answer", *lines]) + "\n")
    assert read(file, "train") == read(file, "test") == TRIMMED


def test_a_hub_id_is_loaded_as_datasets_does(monkeypatch):
    datasets = pytest.importorskip("datasets")
    image = {"bytes": b"not decoded", "path": "1.png"}
    stored = datasets.Dataset.from_list([{**row, "images": [image]} for row in ROWS])
    stored = stored.cast_column("images", datasets.List(datasets.Image()))
    calls = []

    def load_dataset(hub_id, config, *, split, streaming):
        assert not streaming
        calls.append((hub_id, config, split))
        if split == "train":
            raise datasets.exceptions.DatasetNotFoundError("no split train\nbut test")
        return stored

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows = read("owner/name", "test", (*COLUMNS, "images"), config="main")
    assert rows == [{**row, "images": [image]} for row in TRIMMED]
    assert calls == [("owner/name", "main", "test")]
    with pytest.raises(ValueError, match=r"no split train\); .*hf download") as caught:
        read("owner/name", "train", config="main")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [('{"question": "q"}\n', "row 1 lacks answer; it has"), ("", "no rows")],
)
def test_a_row_without_a_column_or_no_row_is_named_with_its_file(tmp_path, content, complaint):
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"a.jsonl.* {complaint}"):
        read(file)


@pytest.mark.parametrize("source", ["missing.jsonl", "owner/name.parquet", "a/b/c", "/no/folder"])
def test_a_source_that_can_only_be_a_path_never_asks_the_hub(source):
    with pytest.raises(ValueError, match="there is no file or folder"):
        read(source)


# Problems


def make(rows):
    items = hub.distinct(
        rows=rows,
        name="some set",
        item=lambda row: {
            "problem": hub.text(row, "problem"),
            "answer": hub.gold_text(row, "answer"),
        },
        problem=lambda item: item["problem"],
        gold=lambda item: item["answer"],
    )
    return list(items)


def test_each_problem_once_in_the_order_of_the_rows_and_none_with_two_answers():
    problems = {"b\u00e9  1": "1", "a": "2", " be\u0301\n1": "1", "A": "2"}  # case matters
    rows = [{"problem": problem, "answer": answer} for problem, answer in problems.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [item["problem"] for item in make(rows)] == ["b\u00e9  1", "a", "A"]
    rows = [{"problem": p, "answer": a} for p, a in ("a1", "b1", "a2", "a1")]
    with pytest.warns(UserWarning, match="some set: 1 problems with several answers left out"):
        assert [item["problem"] for item in make(rows)] == ["b"]


def test_a_gold_answer_is_text_or_a_number_and_another_one_is_named_with_its_row():
    golds = {5: "5", -12_000_000_000_000_000_000: "-12000000000000000000", 27.0: "27", "8.0": "8"}
    golds |= {0.5: "0.5"}
    rows = [{"problem": f"problem {gold}", "answer": gold} for gold in golds]
    assert [item["answer"] for item in make(rows)] == list(golds.values())
    for refused in (None, " \n", ["5"], True, float("nan"), float("inf")):
        rows = [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": refused}]
        with pytest.raises(ValueError, match=r"some set, row 2: .* must be text"):
            make(rows)
