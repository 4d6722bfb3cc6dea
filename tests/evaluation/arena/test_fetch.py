"""Files of a benchmark, from a folder that the user has, and what is missing of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.benches import bench_of
from openrlhf_js.evaluation.arena.fetch import (
    copy_files,
    folder_source,
    judge_texts,
    judgment_names,
    wanted_names,
    write_texts,
)
from openrlhf_js.evaluation.arena.fetched import check, record
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import fetched_texts, prompts
from openrlhf_js.evaluation.arena.official_texts import Texts
from openrlhf_js.evaluation.arena.settings import JudgeSettings

sys.path.insert(0, str(Path(__file__).parent))
import arena_clones as clones

BENCH = "arena-hard-v2.0"


@pytest.fixture(autouse=True)
def official(monkeypatch: pytest.MonkeyPatch) -> None:
    clones.make_official(monkeypatch)


@pytest.mark.parametrize("code", [True, False])
def test_everything(tmp_path: Path, code: bool) -> None:
    source = folder_source(clones.clone(tmp_path / "clone", code=code), BENCH)
    folder, bench = Folder(tmp_path / "data", BENCH), bench_of(BENCH)
    names = [*wanted_names(bench, ["x/other"]), *judgment_names(source, BENCH, "gpt-4.1")]
    assert names == [
        "question.jsonl",
        "model_answer/o3-mini-2025-01-31.jsonl",
        "model_answer/gemini-2.0-flash-001.jsonl",
        "model_answer/other.jsonl",
        "model_judgment/gpt-4.1/other.jsonl",
    ]
    hashes = copy_files(source, folder, names, pytest.fail)
    assert list(hashes) == names
    assert copy_files(source, folder, names, pytest.fail) == hashes
    texts = judge_texts(source, bench, pytest.fail)
    wanted = ["hard_prompt", "creative_writing", "coding", "math"]
    write_texts(folder, bench, texts, source.name, pytest.fail)
    assert list(fetched_texts(folder)[1]) == wanted
    told = prompts(folder, bench, clones.BASELINES, JudgeSettings("j", 1))
    assert all(prompt.official for prompt in told.values())
    assert check(folder, bench, pytest.fail) == ({"hard_prompt": 3, "creative_writing": 2}, [])


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    source = folder_source(clones.clone(tmp_path / "clone"), BENCH)
    folder = Folder(tmp_path / "data", BENCH)
    folder.root.mkdir(parents=True)
    folder.questions.write_text("mine")
    said: list[str] = []
    assert copy_files(source, folder, ["question.jsonl", "no.jsonl"], said.append) == {}
    assert folder.questions.read_text() == "mine"
    assert said == [
        f"{folder.questions} is there and differs from the one of {source.name}; it is left as it "
        "is",
        f"{source.name} has no data/{BENCH}/no.jsonl",
    ]


def test_the_judge_s_texts_are_never_overwritten(tmp_path: Path) -> None:
    folder, bench = Folder(tmp_path, BENCH), bench_of(BENCH)
    folder.root.mkdir()
    texts = Texts(clones.TEMPLATE, {"hard_prompt": "be fair"}, ("a",))
    write_texts(folder, bench, texts, "here", pytest.fail)
    before = (folder.root / "judge_prompts.json").read_bytes()
    write_texts(folder, bench, texts, "there", pytest.fail)
    said: list[str] = []
    write_texts(folder, bench, texts._replace(system={"math": "x"}), "there", said.append)
    assert (folder.root / "judge_prompts.json").read_bytes() == before
    assert len(said) == 1 and "is there and differs from the texts of there" in said[0]


def test_the_record_grows(tmp_path: Path) -> None:
    folder = Folder(tmp_path, BENCH)
    record(folder, "here", {"a": "1", "b": "2"}, False)
    record(folder, "there", {"b": "2", "c": "3"}, True)
    assert json.loads((folder.root / "fetched.json").read_bytes()) == {
        "complete": True,
        "files": {
            "a": {"source": "here", "sha256": "1"},
            "b": {"source": "here", "sha256": "2"},
            "c": {"source": "there", "sha256": "3"},
        },
    }
    (folder.root / "fetched.json").write_text("[]")
    with pytest.raises(ValueError, match="is no record of this program"):
        record(folder, "here", {}, True)


def test_the_bench_of_a_clone_may_be_named_itself(tmp_path: Path) -> None:
    root = clones.clone(tmp_path / "clone")
    for place in (root, root / "data", root / "data" / BENCH):
        assert folder_source(place, BENCH).clone == root
    with pytest.raises(ValueError, match=r"holds no data/arena-hard-v0\.1/question\.jsonl"):
        folder_source(root, "arena-hard-v0.1")


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    root = clones.clone(tmp_path)
    folder, bench = Folder(root / "data", BENCH), bench_of(BENCH)
    folder.answers("gemini-2.0-flash-001").unlink()
    path = folder.answers("o3-mini-2025-01-31")
    rows = [json.loads(line) for line in path.open("rb")]
    del rows[0]["metadata"]
    clones.write(path, [rows[0], rows[2], {**rows[0], "uid": "strange"}])
    questions = [json.loads(line) for line in folder.questions.open("rb")]
    clones.write(folder.questions, questions[1:])
    said: list[str] = []
    assert check(folder, bench, said.append) == (
        {"hard_prompt": 2, "creative_writing": 2},
        [
            f"{folder.questions}: 2 questions of hard_prompt; officially 3",
            f"{path}: no answer to 1 of 2 questions of hard_prompt, the first is 'h1'",
            f"{folder.answers('gemini-2.0-flash-001')} is not there: the baseline of "
            "creative_writing",
        ],
    )
    assert said == [
        f"{path}: 2 of 3 uids are of no question (the first is 'h0'); they are left out"
    ]
    clones.write(path, [{**row, "metadata": None} for row in rows])
    found = check(folder, bench, lambda _: None).missing
    assert f"{path}: answers without style counts; style control needs them" in found
    folder.questions.unlink()
    assert check(folder, bench, pytest.fail).missing == [f"{folder.questions} is not there"]


def test_a_bench_of_ones_own(tmp_path: Path) -> None:
    folder, bench = Folder(tmp_path, "poems"), bench_of("poems", "b")
    clones.write(folder.questions, [{"uid": "1", "category": "rhyme", "prompt": "?"}])
    clones.write(folder.answers("b"), [clones.answer("b", "1", "?")])
    assert check(folder, bench, pytest.fail) == ({"rhyme": 1}, [])
    assert wanted_names(bench, []) == ["question.jsonl", "model_answer/b.jsonl"]
