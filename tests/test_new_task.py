"""A new task is one file: its record is all that data, checks, rewards and evaluation need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from answer_graders.answers import boxed_or_tagged
from answer_graders.programs import data
from answer_graders.record import (
    BenchmarkRecord,
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Task,
    is_new,
    random_of,
    scored,
    split_of,
)
from answer_graders.rewards import reward_by_datasource, reward_function
from answer_graders.tasks import GRADERS, TASKS, task_of
from paired_eval.passk.benchmarks import asked_of

ROOT = Path(__file__).parents[1]

# The whole file of a task.


def generate(count: int, seed: int, split: str = "train", largest: int = 999) -> Iterator[Item]:
    """Numbers, all different."""
    random = random_of("parity", split, seed)
    seen = set[int]()
    while len(seen) < count:
        number = random.randint(1, largest)
        if split_of(f"parity {number}") == split and is_new(seen, str(number)):
            yield {"number": number}


def prompt(item: Item) -> list[Message]:
    """Asks for the answer in a box."""
    return [{"role": "user", "content": f"Is {item['number']} even or odd? Box the answer."}]


def label(item: Item) -> str:
    """`even` or `odd`."""
    return "odd" if item["number"] % 2 else "even"


def score(response: str, label: str) -> Score:
    """Grades the last box."""
    if label not in ("even", "odd"):
        raise ValueError(f"a label is even or odd, got {label!r}")
    answer = boxed_or_tagged(response)
    if answer is None:
        return scored("no_answer", "nothing in a box")
    return scored("correct" if answer == label else "wrong", answer)


PARITY = Task(
    name="parity",
    summary="Parity: whether a number is even",
    right_if="its last `\\boxed{}` holds `even` or `odd`",
    label_form="`even` or `odd`",
    problems=GeneratedProblems(
        generate=generate,
        options={"largest": Option(int, "the largest number")},
        default_counts={"train": 40, "test": 10},
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=lambda label: f"\\boxed{{{label}}}",
    wrong_response=lambda label: "\\boxed{both}",
    benchmarks={"parity": BenchmarkRecord(count=8, samples=4, temperature=0.7, max_new_tokens=64)},
)

# And what follows from it.


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch) -> Task:
    """The task as the catalogue would list it."""
    monkeypatch.setitem(TASKS, "parity", PARITY)
    return PARITY


@pytest.mark.usefixtures("parity")
def test_its_data_is_built_and_checked(tmp_path: Path, capsys: Any) -> None:
    assert data.main(["build", "parity", "--split", "train", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "40 rows" in printed
    assert "reward_models/mixed.py" in printed
    path = tmp_path / "parity-train.jsonl"
    assert json.loads(path.read_text().splitlines()[0])["datasource"] == "parity"
    assert data.main(["check", str(path)]) == 0


@pytest.mark.usefixtures("parity")
def test_help_is_read_from_it(capsys: Any) -> None:
    data.main(["build", "--help"])
    assert "parity          Parity: whether a number is even" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        data.main(["build", "parity", "--help"])
    printed = capsys.readouterr().out
    assert "A response is right if its last" in printed
    assert "the largest number (default: 999)" in " ".join(printed.split())


@pytest.mark.usefixtures("parity")
@pytest.mark.parametrize("is_mixed", [False, True], ids=["own file", "mixed.py"])
def test_its_responses_are_rewarded(is_mixed: bool) -> None:
    grade = partial(reward_by_datasource, datasources=["parity"] * 3)
    reward_func = grade if is_mixed else reward_function("parity")
    responses = ["\\boxed{odd}", "\\boxed{even}", "odd"]
    rewarded = reward_func(responses, [""] * 3, ["odd"] * 3)
    assert rewarded["rewards"].tolist() == [1, 0, 0]
    assert rewarded["extra_logs"]["status/no_answer"].tolist() == [0, 0, 1]


@pytest.mark.usefixtures("parity")
def test_its_benchmark_is_asked(tmp_path: Path) -> None:
    (asked,) = asked_of(["parity"], tmp_path, overrides={}, sources={})
    assert (asked.benchmark.samples, asked.benchmark.max_new_tokens) == (4, 64)
    assert len(asked.items) == 8
    assert {item.datasource for item in asked.items.values()} == {"parity"}


# The records of the tasks that there are


@pytest.mark.parametrize("name", TASKS)
def test_a_record_names_what_there_is(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert task_of(f"{name}/any kind") is task
    assert f'TASK = "{name}"' in (GRADERS / task.reward_file).read_text()
    assert task.problems.options.keys() == task.defaults().keys() - {"images_dir"}
    for benchmark in task.benchmarks.values():
        assert benchmark.options.keys() <= task.problems.options.keys()
        assert benchmark.split in task.problems.splits
    if isinstance(task.problems, GeneratedProblems):
        assert task.problems.default_counts.keys() == set(task.problems.splits)


class TableRow(NamedTuple):
    """A row of the table of reward files."""

    right_if: str
    label_form: str


def reward_files() -> Mapping[str, TableRow]:
    """The table of reward_models/README.md."""
    rows = {}
    for line in (ROOT / "reward_models/README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 3 and cells[0].endswith(".py`"):
            rows[cells[0].strip("`")] = TableRow(cells[1], cells[2])
    return rows


@pytest.mark.parametrize("name", TASKS)
def test_the_table_of_reward_files_says_what_the_record_says(name: str) -> None:
    task = TASKS[name]
    assert reward_files()[task.reward_file] == TableRow(task.right_if, task.label_form)
