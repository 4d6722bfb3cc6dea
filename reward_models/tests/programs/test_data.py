"""`openrlhf-js data`: what it writes, prints and exits with, and that OpenRLHF reads the files."""

import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import until

from answer_graders.programs import data
from answer_graders.tasks import GRADED, TASKS, math

Captured = pytest.CaptureFixture[str]


def run(*argv: str | Path) -> int:
    try:
        return data.main([str(each) for each in argv])
    except SystemExit as left:
        return int(str(left.code))


def build(out: Path, task: str = "countdown", split: str = "train", *more: str) -> Path:
    """A file of 12 problems, unless `more` says otherwise."""
    assert run("build", task, "--split", split, "--out", out, "--count", "12", *more) == 0
    return out / f"{task}-{split}.jsonl"


def start(*argv: str | Path, **settings: Any) -> subprocess.Popen[str]:
    """The program as a process of its own."""
    command = [sys.executable, "-m", "answer_graders.programs.data", *map(str, argv)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **settings})


@pytest.mark.parametrize("task", ["countdown", "knights_knaves", "maze"])
def test_what_is_built_passes_its_check(task, tmp_path, capsys):
    path, test = build(tmp_path, task), build(tmp_path, task, "test")
    assert run("check", path, "--against", test) == 0
    assert "Nothing is wrong" in capsys.readouterr().out
    first = path.read_bytes()
    assert build(tmp_path / "b", task).read_bytes() == first
    assert build(tmp_path / "c", task, "train", "--seed", "1").read_bytes() != first


def test_the_manifest_and_the_name_tell_what_was_asked_for(tmp_path: Path) -> None:
    path = build(tmp_path, "maze", "train", "--size", "7", "--name", "maze-train")
    manifest = json.loads(path.with_suffix(".manifest.json").read_text())
    asked = {"task": "maze", "split": "train", "count": 12, "seed": 0}
    own = {"size": 7, "lengths": [4, 5, 6, 7, 8], "wording": "own"}
    assert manifest["parameters"] == asked | own


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_explains_its_options(task: str, capsys: Captured) -> None:
    assert run("build", task, "--help") == 0
    text = capsys.readouterr().out
    for option in ["count", "seed", "out", *TASKS[task].problems.options]:
        assert f"--{option} " in text
    datasets = math.TASK.problems.options["dataset"].description
    assert all(f" {name}" in datasets for name in math.DATASETS)


def test_a_file_is_replaced_only_by_force(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path)
    before = path.read_bytes()
    flags = ("build", "countdown", "--split", "train", "--count", "12", "--seed", "9")
    assert run(*flags, "--out", tmp_path) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert run(*flags, "--out", tmp_path, "--force") == 0 and path.read_bytes() != before
    assert run(*flags, "--out", path) == 2  # a file


def test_the_flags_that_it_names_are_upstreams(tmp_path: Path, capsys: Captured) -> None:
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    manifest = {"rows": 1, "rows_by_datasource": {}, "images_per_prompt": 2}
    for split in ("train", "test"):
        data._say_what_was_built(tmp_path / "a b.jsonl", TASKS["maze"], split, manifest)
        said = capsys.readouterr().out
        assert f"'{tmp_path / 'a b.jsonl'}'" in said
        flags = set(re.findall(r"--(?:data|eval|reward)\.\w+", said))
        assert "--data.image_key" in flags <= set(upstream_parser()._option_string_actions)
        (reward,) = set(re.findall(r"remote_url (\S+)", said))
        assert (Path(__file__).parents[2] / reward).is_file()


def test_upstream_reads_a_mix_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    upstream = pytest.importorskip("openrlhf.datasets")
    from openrlhf.datasets.utils import blending_datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    plain, boxed = build(tmp_path / "a b"), build(tmp_path, "knights_knaves")
    with_image = tmp_path / "image.jsonl"
    shown = {"input": [{"role": "user", "content": "<image>x?"}], "label": "2"}
    with_image.write_text(json.dumps({**shown, "datasource": "geometry3k", "images": ["a.png"]}))
    keys = {"input_key": "input", "label_key": "label", "apply_chat_template": True}
    strategy = SimpleNamespace(
        args=SimpleNamespace(data=SimpleNamespace(**keys, image_key="images"), use_ms=False),
        is_rank_0=lambda: False,
        print=print,
    )
    mixed = blending_datasets(f"{plain},{boxed}, {with_image}", None, strategy)
    words = SimpleNamespace(
        apply_chat_template=lambda chat, tokenize, add_generation_prompt: chat[0]["content"]
    )
    read = upstream.PromptDataset(mixed, words, strategy)
    written = [json.loads(line) for path in (plain, boxed) for line in path.open()]
    assert [read[i] for i in range(24)] == [
        (row["datasource"], row["input"][0]["content"], row["label"], None) for row in written
    ]
    content = [{"type": "image"}, {"type": "text", "text": "x?"}]
    assert read[24] == ("geometry3k", content, "2", ["a.png"])


# check


def test_problems_have_line_numbers_and_status_1(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path, "maze")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[4], "[not bold] \x1b[31m"]) + "\n")
    capsys.readouterr()
    assert run("check", path) == 1
    said = capsys.readouterr().out
    assert f"{path}, line 13: the same prompt as {path}, line 5" in said
    assert f"{path}, line 14: not JSON" in said


def test_a_file_without_rows_ends_with_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "good.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    assert run("check", "good.jsonl") == 2
    said = capsys.readouterr()
    assert "good.jsonl: no row to check" in said.err and said.err.count("\n") == 1


# As a process


def test_an_interrupt_or_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    full = ("build", "maze", "--split", "train", "--count", "500", "--out", tmp_path)
    running = start(*full, preexec_fn=small_files)
    _, said = running.communicate()
    assert running.returncode == 1
    assert said == f"openrlhf-js data build maze: {tmp_path}/maze-train.jsonl: File too large\n"
    many = ("build", "countdown", "--split", "train", "--count", "9999999", "--out", tmp_path)
    running = start(*many)
    until(lambda: list(tmp_path.iterdir()))
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate()
    assert running.returncode == 130 and said.endswith(
        "openrlhf-js data build countdown: stopped\n"
    )
    assert not list(tmp_path.iterdir())


def test_every_task_that_is_listed_is_built_and_others_say_where_they_are_used(capsys: Captured):
    assert run("build", "--help") == 0
    listed = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert listed == list(TASKS)
    for name in listed:
        assert run("build", name, "--help") == 0
        assert f"usage: openrlhf-js data build {name}" in capsys.readouterr().out
    for name in GRADED.keys() - TASKS.keys():
        assert run("build", name, "--split", "train", "--out", "x") == 2
        said = capsys.readouterr().err
        assert said.startswith(f"openrlhf-js data build: {name} has no file to build")
        assert f"`openrlhf-js study --tasks {name}`" in said
