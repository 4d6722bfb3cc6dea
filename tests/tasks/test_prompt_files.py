"""Prompt files: how rows are made, written atomically, read back and checked."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import write_lines
from PIL import Image

from openrlhf_js.tasks import GRADED, TASKS, prompt_files, task_of
from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.check import check
from openrlhf_js.tasks.prompt_files import Example, read

ITEMS: dict[str, tuple[dict[str, Any], str]] = {
    "countdown": ({"numbers": [3, 5, 7], "target": 15}, "countdown/3"),
    "geometry3k": ({"problem": "<image> x?", "answer": "2", "images": ["a.png"]}, "geometry3k"),
    "gsm8k": ({"question": "1 + 1?", "answer": "It is 2.\n#### 2"}, "gsm8k"),
    "math": ({"problem": "1 + 1?", "answer": "2", "source": "math500"}, "math/math500"),
    "maze": ({"rows": ["*****", "*S.E*", "*****"], "length": 2}, "maze/3x5"),
}


def echo(**changes: Any) -> Any:
    """A task whose label is the answer that scores; `changes` break it."""

    def score(response: str, label: str) -> Score:
        if label == "bad":
            raise ValueError("bad label")
        return scored("correct" if response == label else "wrong", f"{response!r}, not {label!r}")

    def load(split: str, source: str = "", *, progress: Any = None) -> Iterator[dict[str, Any]]:
        return ({"text": f"{split} {number}", "answer": str(number)} for number in range(10))

    made = {
        "NAME": "echo",
        "prompt": lambda item: [{"role": "user", "content": item["text"]}],
        "label": lambda item: item["answer"],
        "score": score,
        "right_response": lambda label: label,
        "wrong_response": lambda label: label + "!",
        "load": load,
    }
    return SimpleNamespace(**{**made, **changes})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda **changes: monkeypatch.setitem(GRADED, "echo", echo(**changes))


@pytest.fixture
def _echo(install: Callable[..., None]) -> None:
    install()


def row(text: str = "say 1", label: Any = "1", **more: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": text}]
    return {"input": asked, "label": label, "datasource": "echo", **more}


# Rows and items


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_rows_have_the_columns_that_upstream_joins(name: str) -> None:
    item, datasource = ITEMS[name]
    made = prompt_files.row(TASKS[name], item)
    assert list(made) == ["input", "label", "datasource", *(["images"] if "images" in item else [])]
    assert {tuple(message) for message in made["input"]} == {("role", "content")}
    assert made["datasource"] == datasource and task_of(datasource) is TASKS[name]
    for unknown in ("", "mathematics", "/math", "MATH"):
        with pytest.raises(ValueError, match=r"countdown.*maze"):
            task_of(unknown)


def test_a_sample_of_loaded_items_keeps_their_order_and_follows_its_seed() -> None:
    def numbers(seed: int, count: int | None) -> list[int]:
        return [int(x["answer"]) for x in prompt_files.items(echo(), "train", count, seed, {})]

    assert numbers(0, None) == numbers(1, 10) == list(range(10))
    drawn = [numbers(seed, 4) for seed in range(20)]
    assert all(each == sorted(set(each)) and len(each) == 4 for each in drawn)
    assert drawn == [numbers(seed, 4) for seed in range(20)]
    assert {number for each in drawn for number in each} == set(range(10))
    with pytest.raises(ValueError, match="the train split of echo has 10 problems, not 11"):
        numbers(0, 11)


# Writing


def test_the_manifest_describes_the_file(tmp_path: Path) -> None:
    task = TASKS["maze"]
    for name in ("a.jsonl", "b.jsonl"):
        made = prompt_files.items(task, "train", 7, 3, {"lengths": (4, 5)})
        manifest = prompt_files.write(tmp_path / name, task, made, {"seed": 3})
    content = (tmp_path / "b.jsonl").read_bytes()
    assert content == (tmp_path / "a.jsonl").read_bytes()
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
        (row(label=5), "'label' must hold text, not int"),
        ({**row(), "datasource": "nothing"}, "no task grades"),
        *(({**row(), "input": x}, "messages with a role") for x in ([], [{"role": "user"}], 5)),
        (row("a \ud800 b"), "surrogates not allowed"),
        (row(images="a.png"), "'images' must hold a list of paths"),
    ],
)
def test_a_line_that_is_no_row_has_its_number(line: Any, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps(row("first\u2028line"), ensure_ascii=False).encode()
    line = line if isinstance(line, bytes) else json.dumps(line).encode()
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + line + b"\r\n" + good)
    lines = list(read(path))
    assert [each.place for each in lines] == [f"{path}, line {number}" for number in (1, 3, 4)]
    assert isinstance(lines[0].example, Example)
    assert lines[0].example.messages[0]["content"] == "first\u2028line"
    assert isinstance(lines[1].example, ValueError) and problem in str(lines[1].example)


@pytest.mark.usefixtures("_echo")
def test_other_columns_and_plain_text_can_be_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"q": "hello", "a": "1", "datasource": "echo/x"}])
    (line,) = read(path, "q", "a")
    assert isinstance(line.example, Example)
    assert line.example.messages == [{"role": "user", "content": "hello"}]
    assert (line.example.label, line.example.datasource) == ("1", "echo/x")


# Checking


@pytest.mark.parametrize(
    ("changes", "label", "problem"),
    [
        ({}, "bad", "the label is malformed: bad label"),
        ({"right_response": lambda label: "?"}, "1", "the gold answer scores 0 (wrong: "),
        ({"wrong_response": lambda label: label}, "1", "a wrong answer scores 1 ("),
    ],
)
def test_answers_that_are_graded_wrongly(changes, label, problem, tmp_path, install):
    install(**changes)
    path = write_lines(tmp_path / "a.jsonl", [row(label=label)])
    found = check([path])
    ((kind, (text,)),) = found.problems.items()
    assert kind == "wrong grade" and text.startswith(f"{path}, line 1: {problem}")


@pytest.mark.usefixtures("_echo")
def test_repeated_prompts_are_found_whatever_their_white_space(tmp_path: Path) -> None:
    texts = "one  two", "three", "one\ntwo ", "one two"
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
    found = check([a], [b])
    assert found.problems["overlap"] == [f"{a}, line 2: the same prompt as {b}, line 3"]


@pytest.mark.usefixtures("_echo")
def test_images_count_by_their_content(tmp_path: Path) -> None:
    for name, color in {"red": "red", "red2": "red", "blue": "blue"}.items():
        Image.new("RGB", (4, 3), color).save(tmp_path / f"{name}.png")
    names = "red", "blue", "red2", "none"
    rows = [row("<image> x?", images=[str(tmp_path / f"{name}.png")]) for name in names]
    path = write_lines(tmp_path / "a.jsonl", [*rows, row("<image> y?")])
    problems = check([path]).problems
    assert problems["repeated prompt"] == [f"{path}, line 3: the same prompt as {path}, line 1"]
    assert problems["image"] == [
        f"{path}, line 4: no file {tmp_path / 'none.png'}",
        f"{path}, line 5: 1 <image> in the prompt, 0 images",
    ]


@pytest.mark.usefixtures("_echo")
def test_long_prompts_and_few_of_many_problems_are_listed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [row("x " * number) for number in (1, 2, 3, 9)])

    def words(example: Example) -> int:
        return len(example.messages[0]["content"].split())

    found = check([path], count_tokens=words, max_tokens=3)
    assert found.problems["too long"] == [f"{path}, line 4: the prompt takes 9 tokens, more than 3"]
    assert (found.rows()[0]["median_tokens"], found.rows()[0]["max_tokens"]) == (2, 9)
    bad = write_lines(tmp_path / "b.jsonl", [5] * 600)
    for found in (check([bad]), check([path], [bad])):
        assert len(found.problems["bad row"]) == 600
