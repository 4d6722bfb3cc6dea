"""Data sets: how rows are made, written whole, read back and checked."""

from __future__ import annotations

import hashlib
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from openrlhf_js.data import writing
from openrlhf_js.data.check import Budget, Report, check
from openrlhf_js.data.reading import Keys, read
from openrlhf_js.tasks import TASKS, task_of
from openrlhf_js.tasks.base import Generated, Loaded, Score, scored

ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "countdown": ({"numbers": [3, 5, 7], "target": 15}, "countdown/3"),
    "geometry3k": ({"problem": "<image> x?", "answer": "2", "images": ["a.png"]}, "geometry3k"),
    "gsm8k": ({"question": "1 + 1?", "answer": "It is 2.\n#### 2"}, "gsm8k"),
    "knights_knaves": ({"people": ["A", "B"]}, "knights_knaves/2"),
    "math": ({"problem": "1 + 1?", "answer": "2", "source": "math500"}, "math/math500"),
    "maze": ({"rows": ["****", "*SE*", "****"], "length": 1}, "maze/3x4"),
}


def echo(**changes: Any) -> SimpleNamespace:
    """A task whose label is the answer that scores; `changes` break it."""

    def score(response: str, label: str) -> Score:
        if label == "bad":
            raise ValueError("bad label")
        return scored("correct" if response == label else "wrong", f"{response!r}, not {label!r}")

    def load(
        split: str, source: str | None = None, *, progress: Any = None
    ) -> Iterator[dict[str, Any]]:
        return ({"text": f"{split} {number}", "answer": str(number)} for number in range(10))

    made = SimpleNamespace(
        NAME="echo",
        prompt=lambda item: [{"role": "user", "content": item["text"]}],
        label=lambda item: item["answer"],
        score=score,
        right_response=lambda label: label,
        wrong_response=lambda label: label + "!",
        load=load,
    )
    return SimpleNamespace(**{**vars(made), **changes})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def put(**changes: Any) -> Any:
        task = echo(**changes)
        monkeypatch.setitem(TASKS, "echo", task)
        return task

    return put


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(text: str = "say 1", label: Any = "1", **more: Any) -> dict[str, Any]:
    return {
        "input": [{"role": "user", "content": text}],
        "label": label,
        "datasource": "echo",
        **more,
    }


def found(report: Report) -> dict[str, list[str]]:
    return dict(report.problems)


# What a row is


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_a_datasource_leads_back_to_its_task(name: str) -> None:
    item, expected = ITEMS[name]
    assert writing.datasource(TASKS[name], item) == expected
    assert task_of(expected) is TASKS[name]


@pytest.mark.parametrize("datasource", ["", "mathematics", "math500", "/math", "MATH"])
def test_an_unknown_datasource_names_the_tasks(datasource: str) -> None:
    with pytest.raises(ValueError, match=r"countdown.*maze"):
        task_of(datasource)


def test_rows_have_the_columns_that_upstream_joins() -> None:
    made = writing.row(TASKS["countdown"], ITEMS["countdown"][0])
    assert list(made) == ["input", "label", "datasource"]
    assert {tuple(message) for message in made["input"]} == {("role", "content")}
    assert json.loads(made["label"]) == {"numbers": [3, 5, 7], "target": 15}
    shown = writing.row(TASKS["geometry3k"], ITEMS["geometry3k"][0])
    assert list(shown) == ["input", "label", "datasource", "images"]
    assert shown["images"] == ["a.png"]


# Which items


def test_options_come_from_the_signature() -> None:
    assert writing.options_of(TASKS["knights_knaves"]) == {"people": (4, 5, 6)}
    assert writing.options_of(TASKS["gsm8k"]) == {"source": "openai/gsm8k"}
    assert list(writing.options_of(TASKS["math"])) == ["source", "dataset"]


def test_a_task_makes_its_problems_or_loads_them() -> None:
    made = {name for name, task in TASKS.items() if isinstance(task, Generated)}
    loaded = {name for name, task in TASKS.items() if isinstance(task, Loaded)}
    assert made == {"countdown", "knights_knaves", "maze"}
    assert loaded == {"geometry3k", "gsm8k", "math"}
    for name in loaded - {"math"}:
        task = TASKS[name]
        assert isinstance(task, Loaded) and task.used("train", source="a") == {"source": "a"}


def numbers(seed: int, count: int | None) -> list[int]:
    made = writing.items(echo(), "train", count, seed, {})
    return [int(item["answer"]) for item in made]


def test_a_sample_of_loaded_items_keeps_their_order_and_follows_its_seed() -> None:
    assert numbers(0, None) == list(range(10))
    drawn = [numbers(seed, 4) for seed in range(20)]
    assert all(each == sorted(set(each)) and len(each) == 4 for each in drawn)
    assert drawn == [numbers(seed, 4) for seed in range(20)]
    assert {number for each in drawn for number in each} == set(range(10))
    assert numbers(1, 10) == list(range(10))


def test_too_few_items_are_said() -> None:
    with pytest.raises(ValueError, match="only 10 such problems in its train split, not 11"):
        numbers(0, 11)


# Writing


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    for stop in (KeyboardInterrupt, OSError):
        with pytest.raises(stop) as caught, writing.whole_file(path) as file:
            file.write(b"half")
            raise stop
        if stop is OSError:
            assert caught.value.filename == str(path)
        assert [each.name for each in tmp_path.iterdir()] == ["a"]
        assert path.read_bytes() == b"old"
    with writing.whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_folders_that_stay_empty_go_again(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), writing.folder_for(out):
            assert out.is_dir()
            raise error
        assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError), writing.folder_for(out):
        (out / "kept").touch()
        raise ValueError
    assert (out / "kept").exists()
    with pytest.raises(ValueError), writing.folder_for(empty := tmp_path / "empty"):
        raise ValueError
    empty.mkdir()
    with pytest.raises(ValueError), writing.folder_for(empty):
        raise ValueError
    assert empty.is_dir()  # it was there before


def test_the_manifest_describes_the_file(tmp_path: Path) -> None:
    task = TASKS["maze"]
    manifests = [
        writing.write(
            path := tmp_path / name,
            task,
            writing.items(task, "train", 7, 3, {"lengths": (4, 5)}),
            {"seed": 3},
        )
        for name in ("a.jsonl", "b.jsonl")
    ]
    content = path.read_bytes()
    assert content == (tmp_path / "a.jsonl").read_bytes()
    manifest = json.loads(writing.manifest_path(path).read_text())
    assert manifest == json.loads(json.dumps(manifests[1]))
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["rows"] == len(content.splitlines()) == 7
    assert manifest["rows_by_datasource"] == {"maze/6x6": 7}
    assert manifest["rows_by_length"] == {"4": 4, "5": 3}
    assert manifest["parameters"] == {"seed": 3}
    assert manifest["versions"]["python"] == sys.version.split()[0]


def test_a_broken_item_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no label"):
        broken = echo(label=lambda item: (_ for _ in ()).throw(ValueError("no label")))
        writing.write(tmp_path / "a.jsonl", broken, [{"text": "x"}], {})
    with pytest.raises(ValueError, match="echo gave no problem"):
        writing.write(tmp_path / "a.jsonl", echo(), [], {})
    assert not list(tmp_path.iterdir())


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    endless = ({"text": f"{number} " * 100, "answer": "1"} for number in range(5000))
    tracemalloc.start()
    writing.write(tmp_path / "a.jsonl", echo(), endless, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "a.jsonl").stat().st_size > 2_000_000
    assert peak < 1_000_000


# Reading


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b'{"input": "\xff"}', "not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "a number is too long"),
        (b"[1]", "not a JSON object, but list"),
        (b"{}", "no value under the key 'input'; keys seen: none"),
        (json.dumps(row(label=None)).encode(), "'label'; keys seen: input, label, datasource"),
        (json.dumps(row(label=5)).encode(), "'label' holds int; it must hold text"),
        (json.dumps({**row(), "datasource": "nothing"}).encode(), "no task grades"),
        (json.dumps({**row(), "input": []}).encode(), "'input' must hold a list of messages"),
        (json.dumps({**row(), "input": [{"role": "user"}]}).encode(), "a role and a content"),
        (json.dumps({**row(), "input": ["text"]}).encode(), "a role and a content"),
        (json.dumps(row("a \ud800 b")).encode(), r"holds '\ud800', half a character"),
        (json.dumps(row(label="\udfff")).encode(), r"holds '\udfff', half a character"),
        (json.dumps(row(images="a.png")).encode(), "'images' must hold a list of paths"),
    ],
)
def test_a_line_that_is_no_row_is_said(
    line: bytes, problem: str, tmp_path: Path, install: Callable[..., Any]
) -> None:
    install()
    path = tmp_path / "a.jsonl"
    good = json.dumps(row("first\u2028line"), ensure_ascii=False).encode()
    pair = json.dumps(row("\U0001f600")).encode()  # two escapes that make one character
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + line + b"\r\n" + pair)
    lines = list(read(path))
    assert [each.number for each in lines] == [1, 3, 4]
    assert lines[0].example and lines[0].example.text == "first\u2028line"
    assert problem in lines[1].problem and lines[1].example is None
    assert lines[2].example and not lines[2].problem


def test_other_columns_and_plain_text_can_be_read(
    tmp_path: Path, install: Callable[..., Any]
) -> None:
    install()
    path = write_rows(tmp_path / "a.jsonl", {"q": "hello", "a": "1", "datasource": "echo/x"})
    (line,) = read(path, Keys("q", "a"))
    assert line.example
    assert line.example.messages == [{"role": "user", "content": "hello"}]
    assert (line.example.label, line.example.datasource) == ("1", "echo/x")


# Checking


def test_a_sound_file_has_no_problem(tmp_path: Path, install: Callable[..., Any]) -> None:
    install()
    rows = [row(f"say {number}", str(number)) for number in range(700)]
    report = check([write_rows(tmp_path / "a.jsonl", *rows)])
    assert not found(report) and not report.counts
    tally = report.tallies["echo"]
    assert (tally.items, tally.gold_right, tally.wrong_refused) == (700, 700, 700)


@pytest.mark.parametrize(
    ("changes", "label", "problem", "right", "refused"),
    [
        ({}, "bad", "the label is malformed: bad label", 0, 0),
        ({"right_response": lambda label: "?"}, "1", "the gold answer scores 0 (wrong: ", 0, 1),
        ({"wrong_response": lambda label: label}, "1", "a wrong answer scores 1 (", 1, 0),
    ],
)
def test_answers_that_are_graded_wrongly(
    changes: dict[str, Any],
    label: str,
    problem: str,
    right: int,
    refused: int,
    tmp_path: Path,
    install: Callable[..., Any],
) -> None:
    install(**changes)
    path = write_rows(tmp_path / "a.jsonl", row(label=label))
    report = check([path])
    ((kind, (text,)),) = found(report).items()
    assert kind == "graded wrongly" and text.startswith(f"{path}:1: {problem}")
    assert report.tallies["echo"].gold_right == right
    assert report.tallies["echo"].wrong_refused == refused


def test_repeated_prompts_are_found_whatever_their_white_space(
    tmp_path: Path, install: Callable[..., Any]
) -> None:
    install()
    first = write_rows(
        tmp_path / "a.jsonl", *map(row, ("one  two", "three", "one\ntwo ", "one two"))
    )
    second = write_rows(tmp_path / "b.jsonl", row("THREE"), row("three"))
    report = check([first, second])
    assert found(report) == {
        "duplicate": [f"{first}:3: the same prompt as {first}:1",
                      f"{first}:4: the same prompt as {first}:1",
                      f"{second}:2: the same prompt as {first}:2"]
    }  # fmt: skip
    report = check([first], [second])
    assert found(report)["overlap"] == [f"{first}:2: the prompt stands in {second}:2 too"]
    assert (report.tallies["echo"].overlap, report.tallies["echo"].duplicates) == (1, 2)


def test_a_system_prompt_is_not_a_question(tmp_path: Path, install: Callable[..., Any]) -> None:
    install()
    asked = [{"role": role, "content": "a"} for role in ("user", "system")]
    rows = [{**row(), "input": [message]} for message in asked]
    assert not found(check([write_rows(tmp_path / "a.jsonl", *rows)]))


def test_images_count_by_what_they_hold(tmp_path: Path, install: Callable[..., Any]) -> None:
    install()
    for name, color in {"red": "red", "red2": "red", "blue": "blue"}.items():
        Image.new("RGB", (4, 3), color).save(tmp_path / f"{name}.png")
    (tmp_path / "text.png").write_text("not an image")
    rows = [
        row("<image> x?", images=[str(tmp_path / f"{name}.png")])
        for name in ("red", "blue", "red2", "none", "text")
    ]
    path = write_rows(tmp_path / "a.jsonl", *rows, row("<image> y?"))
    problems = found(check([path]))
    assert problems["duplicate"] == [f"{path}:3: the same prompt as {path}:1"]
    none, text, missing = problems["image"]
    assert none.startswith(f"{path}:4: no image: {tmp_path / 'none.png'} (No such file")
    assert text == f"{path}:5: not an image: {tmp_path / 'text.png'}"
    assert missing == f"{path}:6: 1 <image> in the prompt, but 0 images"


def test_prompts_over_the_budget(tmp_path: Path, install: Callable[..., Any]) -> None:
    install()
    path = write_rows(tmp_path / "a.jsonl", *(row("x " * number) for number in (1, 2, 3, 9)))
    report = check([path], budget=Budget(lambda example: len(example.text.split()), 3))
    assert found(report) == {"too long": [f"{path}:4: the prompt takes 9 tokens, more than 3"]}
    assert list(report.tallies["echo"].tokens) == [1, 2, 3, 9]


def test_few_problems_are_kept_and_all_are_counted(
    tmp_path: Path, install: Callable[..., Any]
) -> None:
    install()
    path = write_rows(tmp_path / "a.jsonl", *[5] * 600)
    report = check([path], shown=2)
    assert [text.partition(": ")[0] for text in found(report)["no row"]] == [
        f"{path}:1",
        f"{path}:2",
    ]
    assert report.counts == {"no row": 600}
    good = write_rows(tmp_path / "good.jsonl", row())
    assert check([good], [path]).counts == {"no row": 600}
    empty = write_rows(tmp_path / "empty.jsonl")
    assert found(check([empty])) == {"no row": [f"{empty}: the file holds no row"]}


def test_progress_adds_up_to_the_size_of_the_files(
    tmp_path: Path, install: Callable[..., Any]
) -> None:
    install()
    paths = [write_rows(tmp_path / name, *[row()] * 300) for name in ("a", "b")]
    sizes: list[int] = []
    check(paths[:1], paths[1:], progress=sizes.append)
    assert sum(sizes) == sum(path.stat().st_size for path in paths) and len(sizes) == 600
