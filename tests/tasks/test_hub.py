"""Rows come out of every layout that a data set is published or saved in; errors name the place."""

import json
import logging
import os
import subprocess
import sys
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openrlhf_js.tasks import hub

ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "level": n} for n in range(3)]
TRIMMED = [{"question": row["question"], "answer": row["answer"]} for row in ROWS]
COLUMNS = ("question", "answer")


def parquet(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def lines(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(source, split="train", columns=COLUMNS, config=None):
    return list(hub.rows(str(source), split, columns, config))


def test_files_of_every_kind_give_the_same_rows(tmp_path):
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(ROWS, indent=1))
    for file in (
        parquet(tmp_path / "a.parquet"),
        lines(tmp_path / "a.jsonl"),
        lines(tmp_path / "a.json"),
        whole,
    ):
        assert read(file) == read(file, "test") == TRIMMED


def test_only_a_newline_ends_a_line(tmp_path):
    row = {"question": "a\u2028b\u0085c", "answer": "1"}
    file = lines(tmp_path / "a.jsonl", [row, row])
    with file.open("a") as more:
        more.write("\n")  # a blank line is no row
    assert read(file) == [row, row]


@pytest.mark.parametrize(
    ("layout", "config", "split", "expected"),
    [
        ("data/train-0.parquet data/test-0.parquet", None, "test", "data/test-0.parquet"),
        ("train-1.parquet train-0.parquet", None, "train", "train-0.parquet train-1.parquet"),
        ("main/train-0.parquet main/test-0.parquet", "main", "test", "main/test-0.parquet"),
        ("main/test-0.parquet socratic/test-0.parquet", "main", "test", "main/test-0.parquet"),
        ("train-0.parquet test-0.parquet", "main", "test", "test-0.parquet"),  # main/ itself
        ("data/some-set-17k.parquet", None, "train", "data/some-set-17k.parquet"),
        ("Set/OE/OE.parquet Set/TP/TP.parquet", "OE", "train", "Set/OE/OE.parquet"),
        ("test.jsonl notes.md .cache/huggingface/test.jsonl", None, "test", "test.jsonl"),
        ("main/train/0.parquet main/test/0.parquet", "main", "test", "main/test/0.parquet"),
        ("train.jsonl contest.jsonl", None, "train", "train.jsonl"),
        ("problems.json dataset_infos.json", None, "train", "problems.json"),
    ],
)
def test_a_downloaded_folder_gives_the_files_of_the_split(
    tmp_path, layout, config, split, expected
):
    for name in layout.split():
        write = parquet if name.endswith("parquet") else lines
        write(tmp_path / name, [{"question": name, "answer": "1"}])
    found = read(tmp_path, split, config=config)
    assert [row["question"] for row in found] == expected.split()


@pytest.mark.parametrize(
    ("layout", "config", "complaint"),
    [
        (["data/train-0.parquet"], None, "no file for split 'test'.* it has data/train-0.parquet"),
        (["problems.jsonl"], None, "name the file itself"),
        (["a/test.jsonl", "b/test.jsonl"], "main", "no file for split 'test' of 'main'"),
        (["test.jsonl", "data/test-0.parquet"], None, "several formats"),
        ([], None, "no data file"),
    ],
)
def test_a_folder_without_the_split_says_what_it_has(tmp_path, layout, config, complaint):
    for name in layout:
        (parquet if name.endswith("parquet") else lines)(tmp_path / name)
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path, "test", config=config)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", b'{"question": "q", "answer": "a"}\n{"question": \n', r"line 2 is not JSON"),
        ("a.jsonl", b'{"question": "q", "answer": "a"}\n\n[1]\n', r"line 3 is not a JSON object"),
        ("a.jsonl", b'{"question": "q"}\n', r"line 1 lacks answer; it has question"),
        ("a.jsonl", b'{"question": "\xff"}\n', r"line 1 is not JSON"),
        ("a.jsonl", b'{"question": ' + b"[" * 100_000, r"line 1 is not JSON"),
        ("a.json", b'[{"question": "q", "answer": "a"}, 5]', r"row 2 is not a JSON object"),
        ("a.json", b'[{"question": "q"', r"is not JSON"),
        ("a.jsonl", b"", r"has no rows"),
        ("a.jsonl", b"\n\n", r"has no rows"),
        ("a.parquet", b"PAR1 and no more", r"is not readable as parquet"),
        ("a.csv", b"question,answer\n", r"can read .parquet, .jsonl, .json, not '.csv'"),
    ],
)
def test_a_broken_file_names_the_place(tmp_path, name, content, complaint):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_parquet_without_a_column_or_rows(tmp_path):
    with pytest.raises(ValueError, match="lacks solution; it has question, answer, level"):
        read(parquet(tmp_path / "a.parquet"), columns=("question", "solution"))
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS)[:0], empty)
    with pytest.raises(ValueError, match="has no rows"):
        read(empty)


def test_rows_stream(tmp_path):
    file = lines(tmp_path / "a.jsonl")
    with file.open("a") as more:
        more.write("broken\n")
    rows = hub.rows(str(file), "train", COLUMNS)
    assert [next(rows) for _ in ROWS] == TRIMMED
    with pytest.raises(ValueError, match="line 4"):
        next(rows)


def test_folders_that_datasets_has_saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_list(ROWS)
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=one, test=one.select([1])).save_to_disk(tmp_path / "both")
    assert read(tmp_path / "one") == TRIMMED
    assert read(tmp_path / "both") == TRIMMED
    assert read(tmp_path / "both", "test") == [TRIMMED[1]]
    with pytest.raises(ValueError, match="no split 'validation'; it has train, test"):
        read(tmp_path / "both", "validation")
    with pytest.raises(ValueError, match="lacks solution"):
        read(tmp_path / "one", columns=("solution",))
    (tmp_path / "one" / "dataset_info.json").unlink()
    with pytest.raises(ValueError, match="one is not readable as `datasets` saves it"):
        read(tmp_path / "one")


def test_a_hub_id_is_loaded_as_datasets_does(tmp_path, monkeypatch):
    """The real `load_dataset`, on a local copy of what the hub would hold."""
    datasets = pytest.importorskip("datasets")
    image = {"bytes": b"not decoded", "path": "1.png"}
    table = pa.Table.from_pylist([{**row, "images": [image]} for row in ROWS])
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "answer": datasets.Value("string"),
            "level": datasets.Value("int64"),
            "images": datasets.List(datasets.Image()),
        }
    )
    hub_copy = tmp_path / "hub"
    (hub_copy / "main").mkdir(parents=True)
    pq.write_table(
        table.cast(features.arrow_schema), hub_copy / "main" / "test-00000-of-00001.parquet"
    )
    (hub_copy / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - split: test\n    path: main/test-*\n---\n"
    )
    real, calls = datasets.load_dataset, []

    def load_dataset(hub_id, config, *, split):
        calls.append((hub_id, config, split))
        return real(str(hub_copy), config, split=split, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = read("owner/name", "test", (*COLUMNS, "images"), config="main")
    assert found == [{**row, "images": [image]} for row in TRIMMED]
    assert calls == [("owner/name", "main", "test")]
    with pytest.raises(ValueError, match=r"does not give it .*hf download owner/name") as caught:
        read("owner/name", "train", config="main")
    assert "\n" not in str(caught.value)


def test_without_the_network_the_error_says_what_to_do(tmp_path):
    program = (
        "from openrlhf_js.tasks import hub\n"
        "try:\n    next(hub.rows('openai/gsm8k', 'test', ['question'], 'main'))\n"
        "except ValueError as error:\n    print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert run.stdout.count("\n") == 1, run.stderr
    assert "'openai/gsm8k' is no file or folder here" in run.stdout
    assert "hf download openai/gsm8k --repo-type dataset --local-dir FOLDER" in run.stdout


def test_what_datasets_says_comes_out_in_one_line(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*_arguments, **_options):
        raise datasets.exceptions.DatasetNotFoundError("gone\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        ValueError, match=r"the hub does not give it \(gone\): .* as --source FOLDER$"
    ):
        read("owner/name")


@pytest.mark.parametrize("source", ["missing.jsonl", "owner/name.parquet", "a/b.json"])
def test_a_missing_file_is_no_hub_id(source):
    with pytest.raises(ValueError, match=f"there is no file {source}"):
        read(source)


def test_the_hubs_client_is_quiet_while_it_is_asked(monkeypatch, caplog):
    datasets = pytest.importorskip("datasets")
    log = logging.getLogger("huggingface_hub.utils._http")
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    level = logging.getLogger("huggingface_hub").level

    def load_dataset(*_arguments, **_options):
        log.warning("Retrying in 1s [Retry 1/5].")
        raise OSError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ValueError, match="no network"):
        read("owner/name")
    assert not caplog.records
    log.warning("afterwards")
    assert [record.message for record in caplog.records] == ["afterwards"]
    assert logging.getLogger("huggingface_hub").level == level


@pytest.mark.parametrize("source", ["a/b/c", "/no/such/folder", "~/no"])
def test_a_source_that_can_only_be_a_path_never_asks_the_hub(source):
    with pytest.raises(ValueError, match="is no file or folder here, nor a hub id"):
        read(source)


def make(rows, expected=None):
    return list(
        hub.distinct(
            rows,
            "some set",
            lambda row: {"problem": hub.text(row, "problem"), "answer": hub.text(row, "answer")},
            lambda item: item["problem"],
            lambda item: item["answer"],
            expected,
        )
    )


def test_each_problem_once_in_the_order_of_the_rows():
    rows = [
        {"problem": "b\u00e9  1", "answer": "1"},
        {"problem": "a", "answer": "2"},
        {"problem": " be\u0301\n1", "answer": "1"},
        {"problem": "A", "answer": "2"},  # case tells problems apart
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [item["problem"] for item in make(rows, 3)] == ["b\u00e9  1", "a", "A"]
        assert make(rows) == make(rows, 3)


def test_an_unexpected_number_of_problems_is_told():
    rows = [{"problem": "a", "answer": "1"}] * 1200
    with pytest.warns(
        UserWarning, match="some set: 1 distinct problems in 1,200 rows; 2 are expec"
    ):
        assert len(make(rows, 2)) == 1


def test_a_problem_with_two_answers_is_left_out():
    rows = [
        {"problem": "a", "answer": "1"},
        {"problem": "b", "answer": "1"},
        {"problem": "a", "answer": "2"},
        {"problem": "a", "answer": "1"},
    ]
    with pytest.warns(UserWarning, match="1 distinct problems in 4 rows; 1 more were left out"):
        assert [item["problem"] for item in make(rows)] == ["b"]


def test_half_a_character_is_refused():
    with pytest.raises(ValueError, match=r"row 1: 'problem' holds '\\ud800', half a character"):
        make([{"problem": "a \ud800 b", "answer": "1"}])


@pytest.mark.parametrize("answer", [None, 5, "", " \n"])
def test_a_refused_row_is_named(answer):
    rows = [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": answer}]
    with pytest.raises(ValueError, match="some set, row 2: 'answer' must be text"):
        make(rows)
