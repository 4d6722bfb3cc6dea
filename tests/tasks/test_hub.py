"""Rows come out of every layout that a data set is published in, and become problems once."""

import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openrlhf_js.tasks import hub

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


def read(source, split=None, columns=COLUMNS, config=None):
    return list(hub.rows(str(source), split, columns, config))


@pytest.mark.parametrize(
    ("layout", "config", "split", "expected"),
    [
        ("data/train-0.parquet data/test-0.parquet", None, "test", "data/test-0.parquet"),
        ("train-1.parquet train-0.parquet", None, "train", "train-0.parquet train-1.parquet"),
        ("main/test-0.parquet socratic/test-0.parquet", "main", "test", "main/test-0.parquet"),
        ("train-0.parquet test-0.parquet", "main", "test", "test-0.parquet"),  # main/ itself
        ("data/some-set-17k.parquet", None, None, "data/some-set-17k.parquet"),
        ("Set/OE/OE.parquet Set/TP/TP.parquet", "OE", None, "Set/OE/OE.parquet"),
        ("test.jsonl notes.md .cache/huggingface/test.jsonl", None, "test", "test.jsonl"),
        ("main/train/0.parquet main/test/0.parquet", "main", "test", "main/test/0.parquet"),
        ("train.jsonl contest.jsonl", None, "train", "train.jsonl"),
        ("problems.json dataset_infos.json", None, None, "problems.json"),
    ],
)
def test_a_downloaded_folder_gives_the_files_of_the_split(
    tmp_path, layout, config, split, expected
):
    for name in layout.split():
        put(tmp_path / name, [{"question": name, "answer": "1"}])
    found = read(tmp_path, split, config=config)
    assert [row["question"] for row in found] == expected.split()


@pytest.mark.parametrize(
    "layout", ["a.jsonl", "problems/a.jsonl b.jsonl", "data/my-latest.parquet"]
)
def test_files_that_name_no_split_are_taken_whole_with_a_warning(tmp_path, layout):
    folder = tmp_path / "test"  # where the files lie says nothing
    for name in layout.split():
        put(folder / name)
    for source in [folder, folder / layout][: 2 - layout.count(" ")]:
        assert not hub.has_splits(str(source))
        with pytest.warns(UserWarning, match="all of it is taken as train, and another"):
            assert read(source, "train") == TRIMMED * len(layout.split())


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *(("train.jsonl", "train"), ("gsm8k_test.jsonl", "test"), ("my eval.jsonl", "test")),
        *(("test-00000-of-00001.parquet", "test"), ("dev.json", "validation")),
        *(("Training.jsonl", "train"), ("val-1.jsonl", "validation")),
    ],
)
def test_a_file_is_the_split_of_its_name_and_no_other(tmp_path, name, split):
    file = put(tmp_path / "d" / name)
    for source in (file, file.parent):
        assert hub.has_splits(str(source))
        assert read(source, split) == TRIMMED
        assert read(file) == TRIMMED  # asked for no split
        for other in {"train", "validation", "test"} - {split}:
            with pytest.raises(ValueError, match=f"no file for split '{other}', but {name}: build"):
                read(source, other)


def test_a_hub_id_is_loaded_as_datasets_does(monkeypatch):
    datasets = pytest.importorskip("datasets")
    image = {"bytes": b"not decoded", "path": "1.png"}
    stored = datasets.Dataset.from_list([{**row, "images": [image]} for row in ROWS])
    stored, calls = stored.cast_column("images", datasets.List(datasets.Image())), []

    def load_dataset(hub_id, config, *, split):
        calls.append((hub_id, config, split))
        if split == "train":
            raise datasets.exceptions.DatasetNotFoundError("no split train\nbut test")
        return stored

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = read("owner/name", "test", (*COLUMNS, "images"), config="main")
    assert found == [{**row, "images": [image]} for row in TRIMMED]
    assert calls == [("owner/name", "main", "test")]
    with pytest.raises(ValueError, match=r"does not give .*hf download owner/name") as caught:
        read("owner/name", "train", config="main")
    assert "\n" not in str(caught.value)


def test_a_row_without_a_column_or_no_row_is_named_with_its_file(tmp_path):
    file = tmp_path / "a.jsonl"
    for content, complaint in (
        ('{"question": "q"}\n', "line 1 lacks answer; it has"),
        ("", "no rows"),
    ):
        file.write_text(content)
        with pytest.raises(ValueError, match=f"a.jsonl.* {complaint}"):
            read(file)


@pytest.mark.parametrize("source", ["missing.jsonl", "owner/name.parquet", "a/b/c", "/no/folder"])
def test_a_source_that_can_only_be_a_path_never_asks_the_hub(source):
    with pytest.raises(ValueError, match="there is no file or folder"):
        read(source)


# Problems


def make(rows, expected=None):
    return list(
        hub.distinct(
            rows,
            "some set",
            lambda row: {name: hub.text(row, name) for name in ("problem", "answer")},
            lambda item: item["problem"],
            lambda item: item["answer"],
            expected,
        )
    )


def test_each_problem_once_in_the_order_of_the_rows():
    problems = {"b\u00e9  1": "1", "a": "2", " be\u0301\n1": "1", "A": "2"}  # case matters
    rows = [{"problem": problem, "answer": answer} for problem, answer in problems.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [item["problem"] for item in make(rows, 3)] == ["b\u00e9  1", "a", "A"]
    with pytest.warns(UserWarning, match="3 distinct problems in 1,200 rows; 2 are expected"):
        assert len(make(rows * 300, 2)) == 3


def test_a_problem_with_two_answers_is_left_out():
    rows = [{"problem": p, "answer": a} for p, a in ("a1", "b1", "a2", "a1")]
    with pytest.warns(UserWarning, match="1 distinct problems in 4 rows; 1 more were left out"):
        assert [item["problem"] for item in make(rows)] == ["b"]


@pytest.mark.parametrize("answer", [None, 5, "", " \n"])
def test_a_refused_row_is_named(answer):
    rows = [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": answer}]
    with pytest.raises(ValueError, match=r"some set, row 2: 'answer' must be text"):
        make(rows)
