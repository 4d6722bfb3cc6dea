"""Prompt files: how rows are made, written atomically, read back and checked."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from kit import write_lines
from PIL import Image
from pyarrow import parquet

from answer_graders import prompt_files
from answer_graders.prompt_files import Example, check, read
from answer_graders.record import PublishedProblems, Score, Task, scored
from answer_graders.tasks import TASKS, task_of

ITEMS: dict[str, dict[str, Any]] = {
    "countdown": {"numbers": [3, 5, 7], "target": 15},
    "geometry3k": {"problem": "<image> x?", "answer": "2", "images": ["a.png"]},
    "gsm8k": {"question": "1 + 1?", "answer": "It is 2.\n#### 2"},
    "math": {"problem": "1 + 1?", "answer": "2", "source": "math500"},
    "maze": {"rows": ["*****", "*S.E*", "*****"], "length": 2},
}
DATASOURCES = {
    "countdown": "countdown/3",
    "geometry3k": "geometry3k",
    "gsm8k": "gsm8k",
    "math": "math/math500",
    "maze": "maze/3x5",
}


def _score(response: str, label: str) -> Score:
    if label == "bad":
        raise ValueError("bad label")
    return scored("correct" if response == label else "wrong", f"{response!r}, not {label!r}")


def _load(split: str, source: str = "") -> Iterator[dict[str, Any]]:
    for number in range(10):
        yield {"text": f"{split} {number}", "answer": str(number)}


def echo(**changes: Any) -> Task:
    """A task whose label is the answer that scores; `changes` break it."""
    fields = {
        "name": "echo",
        "summary": "Echo",
        "right_if": "it is the label",
        "label_form": "any text but `bad`",
        "prompt": lambda item: [{"role": "user", "content": item["text"]}],
        "label": lambda item: item["answer"],
        "score": _score,
        "right_response": lambda label: label,
        "wrong_response": lambda label: label + "!",
        "problems": PublishedProblems(load=_load, options={}, splits=("train",)),
    }
    return Task(**{**fields, **changes})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda **changes: monkeypatch.setitem(TASKS, "echo", echo(**changes))


@pytest.fixture
def _echo(install: Callable[..., None]) -> None:
    install()


def row(text: str = "say 1", label: Any = "1", **columns: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"input": messages, "label": label, "datasource": "echo", **columns}


# Rows and items


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_rows_have_the_columns_that_upstream_joins(name: str) -> None:
    columns = prompt_files.row(TASKS[name], ITEMS[name])
    images = ["images"] if "images" in ITEMS[name] else []
    assert list(columns) == ["input", "label", "datasource", *images]
    assert {tuple(message) for message in columns["input"]} == {("role", "content")}
    assert columns["datasource"] == DATASOURCES[name]
    assert task_of(columns["datasource"]) is TASKS[name]
    with pytest.raises(ValueError, match=r"countdown.*maze"):
        task_of(f"/{name}")


def sample(seed: int, count: int | None) -> list[int]:
    """The numbers of the problems that a seed draws of the ten."""
    items = prompt_files.items(echo(), "train", count, seed, {})
    return [int(item["answer"]) for item in items]


def test_a_sample_of_loaded_items_keeps_their_order_and_follows_its_seed() -> None:
    assert sample(0, None) == sample(1, 10) == list(range(10))
    samples = [sample(seed, 4) for seed in range(20)]
    for numbers in samples:
        assert len(set(numbers)) == 4
        assert numbers == sorted(numbers)
    assert samples == [sample(seed, 4) for seed in range(20)]
    assert set().union(*samples) == set(range(10))
    with pytest.raises(ValueError, match="the train split of echo has 10 problems, not 11"):
        sample(0, 11)


# Writing


def test_the_manifest_describes_the_file(tmp_path: Path) -> None:
    manifests = []
    for name in ("a.jsonl", "b.jsonl"):
        items = prompt_files.items(TASKS["maze"], "train", 7, 3, {"lengths": (4, 5)})
        manifest = prompt_files.write(tmp_path / name, TASKS["maze"], items, {"seed": 3})
        manifests.append(manifest)
    content = (tmp_path / "b.jsonl").read_bytes()
    assert content == (tmp_path / "a.jsonl").read_bytes()
    manifest = manifests[1]
    assert manifest == json.loads((tmp_path / "b.manifest.json").read_text())
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["rows"] == len(content.splitlines()) == 7
    assert manifest["rows_by_datasource"] == {"maze/6x6": 7}
    assert manifest["parameters"] == {"seed": 3}
    assert manifest["versions"]["python"] == sys.version.split()[0]


def test_a_broken_item_or_none_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(KeyError):
        prompt_files.write(path, echo(), [{"text": "x", "answer": "1"}, {"text": "x"}], {})
    with pytest.raises(ValueError, match="echo gave no problem"):
        prompt_files.write(path, echo(), [], {})
    assert not list(tmp_path.iterdir())


# Reading


@pytest.mark.usefixtures("_echo")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b"{}", "no value under the key 'input'; keys seen: "),
        (row(label=None), "'label'; keys seen: input, label, datasource"),
        (row(label=0.5), 'a label must be text, as in "42", or a whole number, got float: 0.5'),
        (row(datasource="nothing"), "no task grades"),
        (row(input=[{"role": "user"}]), "messages with a role"),
        (row("a \ud800 b"), "surrogates not allowed"),
        (row(images="a.png"), "'images' must hold a list of paths"),
    ],
)
def test_a_line_that_is_no_row_has_its_number(line: Any, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    byte_order_mark = b"\xef\xbb\xbf"
    good = json.dumps(row("first\u2028line"), ensure_ascii=False).encode()
    bad = line if isinstance(line, bytes) else json.dumps(line).encode()
    path.write_bytes(byte_order_mark + good + b"\n\n" + bad + b"\r\n" + good)
    first, second, third = read(path)
    places = [first.place, second.place, third.place]
    assert places == [f"{path}, line {number}" for number in (1, 3, 4)]
    assert isinstance(first.example, Example)
    assert first.example.messages[0]["content"] == "first\u2028line"
    assert isinstance(second.example, ValueError)
    assert problem in str(second.example)


@pytest.mark.usefixtures("_echo")
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_a_whole_number_is_a_label_in_every_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        rows = [row(label=42), row(label=-7)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif suffix == ".csv":
        path.write_text("input,label,datasource\nsay 1,42,echo\nsay 1,-7,echo\n")
    elif suffix == ".json":
        path.write_text(json.dumps([row(label=42), row(label=-7)]))
    else:
        write_lines(path, [row(label=42), row(label=-7)])
    examples = [line.example for line in read(path)]
    assert [example.label for example in examples if isinstance(example, Example)] == ["42", "-7"]
    assert not check([path]).problems.keys() - {"repeated prompt"}


@pytest.mark.usefixtures("_echo")
def test_other_columns_and_plain_text_can_be_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"q": "hello", "a": "1", "datasource": "echo/x"}])
    (line,) = read(path, "q", "a")
    assert isinstance(line.example, Example)
    assert line.example.messages == [{"role": "user", "content": "hello"}]
    assert line.example.label == "1"
    assert line.example.datasource == "echo/x"


# Checking


@pytest.mark.parametrize(
    ("changes", "label", "kind", "problem"),
    [
        ({}, "bad", "wrong grade", "the label is malformed: bad label"),
        ({"right_response": lambda label: "?"}, "1", "wrong grade", "the gold answer scores 0 ("),
        ({"wrong_response": lambda label: label}, "1", "wrong grade", "a wrong answer scores 1 ("),
        ({"reads_label": lambda label: label != "1"}, "1", "unread gold", "'1': other notations"),
    ],
)
def test_answers_that_are_graded_wrongly(changes, label, kind, problem, tmp_path, install):
    install(**changes)
    path = write_lines(tmp_path / "a.jsonl", [row(label=label), row("other", "2")])
    problems = check([path]).problems
    assert problems.keys() == {kind}
    assert problems[kind][0].startswith(f"{path}, line 1: {problem}")


@pytest.mark.usefixtures("_echo")
def test_repeated_prompts_are_found_whatever_their_white_space(tmp_path: Path) -> None:
    texts = ["one  two", "three", "one\ntwo ", "one two"]
    a = write_lines(tmp_path / "a.jsonl", map(row, texts))
    system = {**row(), "input": [{"role": "system", "content": "three"}]}  # no question
    b = write_lines(tmp_path / "b.jsonl", [row("THREE"), system, row("three")])
    assert check([a, b]).problems == {
        "repeated prompt": [
            f"{a}, line 3: the same prompt as {a}, line 1",
            f"{a}, line 4: the same prompt as {a}, line 1",
            f"{b}, line 3: the same prompt as {a}, line 2",
        ]
    }
    overlap = check([a], [b]).problems["overlap"]
    assert overlap == [f"{a}, line 2: the same prompt as {b}, line 3"]


@pytest.mark.usefixtures("_echo")
def test_images_count_by_their_content(tmp_path: Path) -> None:
    for name, color in {"red": "red", "red2": "red", "blue": "blue"}.items():
        Image.new("RGB", (4, 3), color).save(tmp_path / f"{name}.png")
    rows = []
    for name in ("red", "blue", "red2", "none"):
        rows.append(row("<image> x?", images=[str(tmp_path / f"{name}.png")]))
    path = write_lines(tmp_path / "a.jsonl", [*rows, row("<image> y?")])
    problems = check([path]).problems
    assert problems["repeated prompt"] == [f"{path}, line 3: the same prompt as {path}, line 1"]
    assert problems["image"] == [
        f"{path}, line 4: no file {tmp_path / 'none.png'}",
        f"{path}, line 5: a prompt has 0 images, and 1 times <image>",
    ]


@pytest.mark.usefixtures("_echo")
def test_all_bad_rows_are_listed_of_either_side(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "a.jsonl", [row()])
    bad = write_lines(tmp_path / "b.jsonl", [5] * 600)
    assert len(check([bad]).problems["bad row"]) == 600
    assert len(check([good], against=[bad]).problems["bad row"]) == 600
