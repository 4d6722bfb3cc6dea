"""Rows come out of every layout that a data set is published or saved in; errors name the place."""

import json
import logging
import os
import subprocess
import sys

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


def read(source, split=None, columns=COLUMNS, config=None):
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
        assert read(file) == TRIMMED


def test_marks_and_space_that_editors_leave(tmp_path):
    file = tmp_path / "a.json"
    texts = [json.dumps(row) for row in ROWS]
    for content in ("\r\n".join(texts), "\n\n [" + ",\r\n".join(texts) + "]\n", "\n".join(texts)):
        file.write_bytes(content.encode("utf-8-sig"))
        assert read(file) == TRIMMED


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
        write = parquet if name.endswith("parquet") else lines
        write(tmp_path / name, [{"question": name, "answer": "1"}])
    found = read(tmp_path, split, config=config)
    assert [row["question"] for row in found] == expected.split()


@pytest.mark.parametrize(
    "layout",
    ["a.jsonl", "problems/a.jsonl problems/b.jsonl", "data/my-latest-attestation.parquet"],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_files_that_name_no_split_are_taken_whole_and_it_is_said(tmp_path, layout, split):
    folder = tmp_path / "test"  # where the files lie says nothing of what they are
    for name in layout.split():
        (parquet if name.endswith("parquet") else lines)(folder / name)
    places = [folder, folder / layout] if " " not in layout else [folder]
    for source in places:
        assert not hub.has_splits(str(source))
        with pytest.warns(UserWarning, match=f"all of it is taken as {split}, and another"):
            assert read(source, split) == TRIMMED * len(layout.split())


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.jsonl", "train"),
        ("gsm8k_test.jsonl", "test"),
        ("my eval.jsonl", "test"),
        ("test-00000-of-00001.parquet", "test"),
        ("dev.json", "validation"),
        ("Training.jsonl", "train"),
    ],
)
def test_a_file_is_the_split_of_its_name_and_no_other(tmp_path, name, split):
    file = (parquet if name.endswith("parquet") else lines)(tmp_path / "d" / name)
    for source in (file, file.parent):
        assert hub.has_splits(str(source))
        assert read(source, split) == TRIMMED
        assert read(file) == TRIMMED  # asked for no split
    for other in {"train", "validation", "test"} - {split}:
        with pytest.raises(ValueError, match=f"is the {split} split by its name, not {other}: bu"):
            read(file, other)
        with pytest.raises(ValueError, match=f"no file for split '{other}'"):
            read(file.parent, other)


@pytest.mark.parametrize(
    ("layout", "config", "complaint"),
    [
        (
            ["data/train-0.parquet"],
            None,
            "split 'test'; it has data/train-0.parquet: build another split, or put 'test' in",
        ),
        (["a/test.jsonl", "b/test.jsonl"], "main", "no file for split 'test' of 'main'"),
        (["test.jsonl", "data/test-0.parquet"], None, "several formats .*: give one of them as"),
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
    rows = hub.rows(str(file), None, COLUMNS)
    assert [next(rows) for _ in ROWS] == TRIMMED
    with pytest.raises(ValueError, match="line 4"):
        next(rows)


@pytest.mark.parametrize(
    "layout", ["a.jsonl", "a.json", "a.parquet", "train-0.jsonl train-1.jsonl"]
)
def test_progress_follows_the_rows_to_the_end(tmp_path, layout):
    for name in layout.split():
        (parquet if name.endswith("parquet") else lines)(tmp_path / name)
    if layout == "a.json":
        (tmp_path / layout).write_text(json.dumps(ROWS))
    told = []
    split = "train" if "train" in layout else None
    found = list(hub.rows(str(tmp_path), split, COLUMNS, None, lambda *each: told.append(each)))
    shares, numbers = zip(*told, strict=True)
    assert list(numbers) == list(range(1, len(found) + 1))
    steps = [each / len(found) for each in numbers]
    assert shares == pytest.approx(steps, abs=0.01)  # all lines are of one length


def test_parquet_of_one_row_group_streams(tmp_path):
    program = """
import sys
import pyarrow
from openrlhf_js.tasks import hub
assert sum(1 for _ in hub.rows(sys.argv[1], None, ["text"])) == 10_000
print(pyarrow.default_memory_pool().max_memory())
"""
    file = tmp_path / "a.parquet"
    texts = [os.urandom(2000).hex() for _ in range(10_000)]
    pq.write_table(pa.table({"text": texts, "unread": texts}), file, row_group_size=10_000)
    run = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < file.stat().st_size / 3


def test_folders_that_datasets_has_saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_list(ROWS)
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=one, test=one.select([1])).save_to_disk(tmp_path / "both")
    assert read(tmp_path / "one") == TRIMMED
    assert not hub.has_splits(str(tmp_path / "one")) and hub.has_splits(str(tmp_path / "both"))
    with pytest.warns(UserWarning, match="one does not say which split it is"):
        assert read(tmp_path / "one", "test") == TRIMMED
    assert read(tmp_path / "both", "train") == TRIMMED
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
