"""Files are whole or absent, and a bad row says where it stands."""

import gzip
import json
from pathlib import Path

import pytest

from answer_graders.programs.files import atomic_write, fingerprint, read_rows, write_json

ROWS = [{"q": "a", "n": 1}, {"q": "ü", "n": 2}]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    lines = "\n\n".join(json.dumps(row) for row in ROWS)
    (tmp_path / "a.jsonl").write_text("\ufeff" + lines)
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "A.JSONL").write_text(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    seconds = {
        "a.jsonl": "line 3",
        "A.JSONL": "line 3",
        "a.jsonl.gz": "line 3",
        "a.json": "item 2",
        "a.parquet": "row 2",
    }
    for name, second in seconds.items():
        found = list(read_rows(tmp_path / name))
        assert [row.value for row in found] == ROWS
        assert found[1].place == second
    table = "q,n\na,1\nü,2\n"
    (tmp_path / "a.csv").write_text(table)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(table.encode()))
    for name in ("a.csv", "a.csv.gz"):
        assert [row.value["q"] for row in read_rows(tmp_path / name)] == ["a", "ü"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": "\xff"}', "line 1: not JSON"),
        (b'{"a": "\\ud800"}', "line 1: not JSON"),
        (b'{"a": 1', "line 1: not JSON"),
        (b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "line 1: not JSON"),
        (b'{"a": ' + b"9" * 10**4 + b"}", "line 1: not JSON"),
        (b"3", "line 1: not a JSON object"),
    ],
)
def test_a_bad_row_says_where_and_why(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line)
    with pytest.raises(ValueError, match=problem):
        [row.object(path) for row in read_rows(path)]


def test_fingerprints_differ_by_name_and_content(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    a, b, c = (tmp_path / name for name in "abc")
    assert len({fingerprint([a]), fingerprint([b]), fingerprint([c]), fingerprint([a, b])}) == 4
    assert fingerprint([a, b]) == fingerprint([b, a])
