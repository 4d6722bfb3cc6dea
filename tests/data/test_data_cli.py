"""`openrlhf-js data`: what it writes, says and exits with, and that OpenRLHF reads the files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openrlhf_js.cli import data, data_flags, data_output, progress
from openrlhf_js.data.writing import options_of
from openrlhf_js.plugin.parser import upstream_parser
from openrlhf_js.tasks import TASKS, math
from openrlhf_js.tasks.base import Generated

GENERATORS = ["countdown", "knights_knaves", "maze"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def build(out: Path, task: str = "countdown", split: str = "train", *more: str) -> Path:
    """A file of 12 problems, unless `more` says otherwise."""
    flags = ["--split", split, "--out", str(out), "--count", "12", *more]
    assert data.main(["build", task, *flags]) == 0
    return out / f"{task}-{split}.jsonl"


def run(*argv: str | Path) -> int:
    return data.main([str(each) for each in argv])


def start(*argv: str | Path, **settings: Any) -> subprocess.Popen[str]:
    """The program as a process of its own."""
    command = [sys.executable, "-m", "openrlhf_js.cli.main", "data", *map(str, argv)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **settings})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer whose tokens are words, with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    made.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save_pretrained(folder)
    return folder


# build


@pytest.mark.parametrize("task", GENERATORS)
def test_what_is_built_passes_its_check_and_is_shown(
    task: str, tmp_path: Path, capsys: Captured
) -> None:
    path = build(tmp_path, task)
    test = build(tmp_path, task, "test")
    assert run("check", path, "--against", test) == 0
    assert "Nothing is wrong with these 12 rows" in capsys.readouterr().out
    assert run("show", path, "--count", "2", "--seed", "1") == 0
    shown = capsys.readouterr().out
    assert shown.count("a right answer scores 1: correct") == 2
    assert shown.count("a wrong answer scores 0: wrong") == 2
    assert max(map(len, shown.splitlines())) <= 80


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    first = build(tmp_path / "a", "knights_knaves").read_bytes()
    assert build(tmp_path / "b", "knights_knaves").read_bytes() == first
    assert build(tmp_path / "c", "knights_knaves", "train", "--seed", "1").read_bytes() != first


def test_the_manifest_holds_all_parameters(tmp_path: Path) -> None:
    path = build(tmp_path, "maze", "train", "--size", "7", "--name", "maze-train")
    manifest = json.loads(path.with_suffix(".manifest.json").read_text())
    assert manifest["parameters"] == {
        "task": "maze",
        "split": "train",
        "count": 12,
        "seed": 0,
        "size": 7,
        "lengths": [4, 5, 6, 7, 8],
    }
    assert manifest["rows_by_datasource"] == {"maze/7x7": 12}


def test_files_are_named_after_what_was_asked_for(tmp_path: Path) -> None:
    build(tmp_path, "knights_knaves", "test", "--people", "2,9")
    build(tmp_path, "knights_knaves", "test")
    build(tmp_path, "knights_knaves", "test", "--people", "3", "--name", "small")
    names = {each.name for each in tmp_path.glob("*.jsonl")}
    assert names == {"knights_knaves-2-9-test.jsonl", "knights_knaves-test.jsonl", "small.jsonl"}


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("task", GENERATORS)
def test_without_a_count_there_are_as_many_as_in_the_paper(
    task: str, split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def items(task: Any, split: str, count: int, *_: Any) -> Iterator[Any]:
        seen.append(count)
        return iter(())

    monkeypatch.setattr(data, "items", items)
    assert run("build", task, "--split", split, "--out", tmp_path) == 2
    paper = {"countdown": (20_000, 200), "knights_knaves": (30_000, 300), "maze": (20_000, 200)}
    assert seen == [paper[task][split == "test"]]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_explains_its_options(task: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as left:
        run("build", task, "--help")
    assert left.value.code == 0
    text = capsys.readouterr().out
    for option in ["count", "seed", "out", *options_of(TASKS[task])]:
        assert f"--{option.replace('_', '-')} " in text
    assert f"data build {task} " in data_flags.BUILD_EXAMPLES
    assert (task in data_flags.COUNTS) == isinstance(TASKS[task], Generated)


def test_every_data_set_of_mathematics_is_offered() -> None:
    _, text = data_flags.OPTIONS["dataset"]
    offered = {name: text.index(f" {name}") for name in math.DATASETS}
    for name, layout in math.DATASETS.items():
        if len(layout.splits) == 1:
            assert ("test" in layout.splits) == (offered[name] > text.index("to test:"))


def test_the_manifest_says_which_data_set_was_used(tmp_path: Path, capsys: Captured) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    flags = ("--split", "test", "--source", source, "--out", tmp_path)
    assert run("build", "math", *flags) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 row  ")
    manifest = json.loads((tmp_path / "math-test.manifest.json").read_text())
    assert manifest["parameters"]["dataset"] == "math500"
    assert run("check", tmp_path / "math-test.jsonl") == 0
    assert "Nothing is wrong with this row." in capsys.readouterr().out


def test_a_tokenizer_without_a_template_says_what_to_do(tmp_path: Path, capsys: Captured) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    path = build(tmp_path)
    capsys.readouterr()
    assert run("check", path, "--tokenizer", tmp_path / "model") == 2
    assert re.search(r"no chat template, .*: take the model's", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["maze", "--people", "4"], r"takes no --people; it takes --split, .*--size, --lengths"),
        (["math", "--split", "validation"], r"invalid choice: 'validation'"),
        (["gsm8k", "--split", "validation"], r"invalid choice: 'validation'"),
        (["gsm8k", "--source", ""], r"--source: is empty"),
        (["maze", "--out", ""], r"--out: is empty"),
        (["gsm8k", "--source", "a/b.parquet"], r"there is no file a/b.parquet"),
        (["maze", "--count", "0"], r"'0' is not a whole number from 1"),
        (["maze", "--split", "validation"], r"invalid choice: 'validation'"),
        (["maze", "--name", "a,b"], r"must not contain ,"),
        (["countdown", "--numbers", "3;4"], r"'3;4' is not a list of whole numbers such as 3,4"),
        (["countdown", "--numbers", "77"], r"numbers must be"),
        (["chess"], r"invalid choice: 'chess'.*'countdown'"),
    ],
)
def test_wrong_flags_leave_with_one_line(
    flags: list[str], problem: str, tmp_path: Path, capsys: Captured
) -> None:
    name, *more = flags
    try:
        status: Any = run("build", name, "--split", "train", "--out", tmp_path / "new", *more)
    except SystemExit as left:
        status = left.code
    said = capsys.readouterr().err
    assert status == 2
    assert re.search(problem, said) and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_only_by_force(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path)
    before = path.read_bytes()
    with pytest.raises(SystemExit) as left:
        build(tmp_path, "countdown", "train", "--seed", "9")
    assert left.value.code == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert build(tmp_path, "countdown", "train", "--seed", "9", "--force").read_bytes() != before


def test_an_out_that_is_a_file_is_said(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path)
    with pytest.raises(SystemExit) as left:
        build(path)
    assert left.value.code == 2
    assert "is not a folder" in capsys.readouterr().err


def test_gsm8k_from_a_local_file(tmp_path: Path, capsys: Captured) -> None:
    source = tmp_path / "my file.jsonl"
    rows = [{"question": f"{n} + 1?", "answer": f"Add.\n#### {n + 1}"} for n in range(30)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = build(tmp_path, "gsm8k", "test", "--source", str(source))
    assert len(path.read_text().splitlines()) == 12
    assert run("check", path) == 0
    manifest = json.loads(path.with_suffix(".manifest.json").read_text())
    assert manifest["parameters"]["source"] == str(source)
    assert "datasets" in manifest["versions"]
    before = path.read_bytes()
    source.write_text("{}\n")
    again: list[str | Path] = [
        "--split",
        "test",
        "--out",
        tmp_path,
        "--name",
        "gsm8k-test",
        "--force",
    ]
    assert run("build", "gsm8k", *again, "--source", source) == 2
    assert path.read_bytes() == before and not list(tmp_path.glob(".*"))


def test_what_is_taken_for_a_split_is_said(tmp_path: Path, capsys: Captured) -> None:
    source = tmp_path / "own.jsonl"
    source.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    flags = ("--source", source, "--out", tmp_path)
    assert run("build", "gsm8k", "--split", "train", *flags) == 0
    assert capsys.readouterr().err == (
        f"note: {source} does not say which split it is: all of it is taken as train, and another "
        "split built from it would be the same\n"
    )
    source.rename(source := tmp_path / "own-train.jsonl")
    flags = ("--source", source, "--out", tmp_path)
    assert run("build", "gsm8k", "--split", "train", *flags, "--force") == 0
    assert capsys.readouterr().err == ""
    assert run("build", "gsm8k", "--split", "test", *flags) == 2
    said = capsys.readouterr().err
    assert "is the train split by its name, not test" in said and said.count("\n") == 1


def test_a_source_whose_name_is_no_text(tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b"test-\xff.jsonl")
    source.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    path = build(tmp_path, "gsm8k", "test", "--source", str(source), "--count", "1")
    manifest = json.loads(path.with_suffix(".manifest.json").read_text())
    assert manifest["parameters"]["source"] == str(source)


# What it says to do next


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_flags_that_it_names_are_upstreams(
    split: str, tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / "a folder"
    path = build(folder, "maze", split)
    said = capsys.readouterr().out
    assert f"'{path}'" in said
    data_output.built(
        SimpleNamespace(print=lambda text, **_: print(text)),  # type: ignore[arg-type]
        path,
        TASKS["maze"],
        split,
        {"rows": 1, "rows_by_datasource": {}, "images_per_prompt": 2},
    )
    said += capsys.readouterr().out
    flags = set(re.findall(r"--(?:data|eval|reward)\.\w+", said))
    assert {"--data.image_key", "--data.max_images_per_prompt"} <= flags
    assert flags <= set(upstream_parser()._option_string_actions)
    (reward,) = set(re.findall(r"remote_url (\S+)", said))
    assert (Path(__file__).parents[2] / reward).is_file()


# What OpenRLHF reads


def test_upstream_reads_a_mix_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from openrlhf.datasets import PromptDataset
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
    read = PromptDataset(mixed, words, strategy)
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
    path.write_text("\n".join([*lines, lines[4], "[not bold]", '{"label": "\x1b[31m"}']) + "\n")
    capsys.readouterr()
    assert run("check", path) == 1
    said = capsys.readouterr().out
    assert f"{path}:13: the same prompt as {path}:5" in said
    assert f"{path}:14: not JSON" in said
    assert f"{path}:15: not JSON" in said
    assert run("check", path, "--problems", "1") == 1
    said = capsys.readouterr().out
    assert f"{path}:15" not in said and "... and 1 more" in said


def test_prompts_are_measured_in_tokens(tmp_path: Path, tokenizer: Path, capsys: Captured) -> None:
    path = build(tmp_path, "countdown")
    row = json.loads(path.open().readline())
    prompt = f"<|user|>{row['input'][0]['content']}<|assistant|>"
    words = len(prompt.split())
    capsys.readouterr()
    assert run("check", path, "--tokenizer", tokenizer) == 0
    assert re.search(rf"countdown/3 .* {words} ", capsys.readouterr().out)
    long = ["--prompt-max-len", str(words - 1)]
    assert run("check", path, "--tokenizer", tokenizer, *long) == 1
    assert f"takes {words} tokens, more than {words - 1}" in capsys.readouterr().out
    assert run("show", path, "--count", "1", "--tokenizer", tokenizer) == 0
    shown = capsys.readouterr().out.replace("\n", " ").replace("  ", "")
    assert "<|user|>" in shown and "<|assistant|>" in shown


def test_images_take_tokens_too(tmp_path: Path, tokenizer: Path, capsys: Captured) -> None:
    from PIL import Image
    from transformers import AutoTokenizer, CLIPImageProcessorPil, LlavaProcessor

    words = AutoTokenizer.from_pretrained(tokenizer)
    words.add_tokens(["<image>"], special_tokens=True)
    template = (
        "{% for part in messages[0].content %}"
        "{{ '<image>' if part.type == 'image' else ' ' + part.text }}{% endfor %}"
    )
    edge = {"height": 28, "width": 28}
    LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=edge),
        words,
        patch_size=14,  # so 2 x 2 tokens
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=template,
    ).save_pretrained(tmp_path / "model")
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    row = {"input": "<image>Find x now.", "label": "2", "datasource": "geometry3k"}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**row, "images": [str(tmp_path / "a.png")]}))
    assert run("check", path, "--tokenizer", tmp_path / "model") == 0
    assert re.search(r"geometry3k +1 +1 +1 +7 +7 +0", capsys.readouterr().out)
    assert run("check", path, "--tokenizer", tokenizer) == 1
    assert "the model takes text only" in capsys.readouterr().out
    assert run("show", path) == 0
    assert "a.png: 40 x 30 pixels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["check", "nothing.jsonl"], "nothing.jsonl: No such file"),
        (
            ["check", "nothing.jsonl", "--tokenizer", "nobody/nothing"],
            "nothing.jsonl: No such file",
        ),
        (["show", "nothing.jsonl", "--tokenizer", "nobody/nothing"], "nothing.jsonl: No such file"),
        (["check", "."], "Is a directory"),
        (["check", "good.jsonl", "--against", "./good.jsonl"], "is named twice"),
        (["check", "good.jsonl", "--prompt-max-len", "9"], "needs --tokenizer"),
        (["check", "good.jsonl", "--tokenizer", "."], "no tokenizer in ."),
        (["check", "packed.jsonl"], "packed.jsonl is compressed"),
        (["show", "packed.jsonl"], "packed.jsonl is compressed"),
        (["show", "empty.jsonl"], "empty.jsonl holds no row"),
        (["show", "good.jsonl", "--people", "4"], "takes no --people; it takes --count"),
    ],
)
def test_files_that_cannot_be_used_leave_with_one_line(
    argv: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    build(tmp_path).rename(tmp_path / "good.jsonl")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "packed.jsonl").write_bytes(b"\x1f\x8b\x08\x00")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    try:
        status: Any = run(*argv)
    except SystemExit as left:
        status = left.code
    said = capsys.readouterr()
    assert status == 2 and not said.out
    assert problem in said.err and said.err.count("\n") == 1


# show


def test_text_of_a_file_is_neither_markup_nor_control(tmp_path: Path, capsys: Captured) -> None:
    path = build(tmp_path, "maze")
    row = json.loads(path.open().readline())
    row["input"][0]["content"] = "[bold]a[/bold] \x1b[31m \u202e é :smile: "
    path.write_text(json.dumps(row) + "\n[5]\n")
    capsys.readouterr()
    assert run("show", path) == 1
    shown = capsys.readouterr().out
    assert r"[bold]a[/bold] \x1b[31m \u202e é :smile:" in shown
    assert "not a JSON object, but list" in shown


# As a process


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    path = build(tmp_path, "maze", "train", "--count", "400")
    running = start("show", path, "--count", "400")
    assert running.stdout and running.stderr
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    running = start(
        "build", "countdown", "--split", "train", "--count", "9999999", "--out", tmp_path
    )
    deadline = time.monotonic() + 20
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(number)
    _, said = running.communicate()
    assert running.returncode == 130
    assert said.count("\n") == 1 and "stopped" in said
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    running = start(
        *("build", "maze", "--split", "train", "--count", "500", "--out", tmp_path),
        preexec_fn=small_files,
    )
    _, said = running.communicate()
    assert running.returncode == 1
    assert said == f"openrlhf-js data build maze: {tmp_path}/maze-train.jsonl: File too large\n"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / ("x" * 250 + ".jsonl")
    flags = ("--split", "train", "--count", "1", "--out", tmp_path, "--name", path.stem)
    assert run("build", "maze", *flags) == 1
    assert capsys.readouterr().err == f"openrlhf-js data build maze: {path}: File name too long\n"


def test_any_terminal_shows_any_text(tmp_path: Path) -> None:
    path = build(tmp_path, "maze")
    row = json.loads(path.open().readline())
    row["input"][0]["content"] = "é ∀"
    path.write_text(json.dumps(row))
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    out, said = start("show", path, env=ascii_only).communicate()
    assert said == "" and "\\xe9 \\u2200" in out


# Progress


def test_progress_is_said_after_two_seconds_only(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from rich.console import Console

    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Bar("building", 1000, Console(stderr=True)) as bar:
        bar.update(10, 10)
        now[0] = 101.9
        bar.update(90, 90)
        assert capsys.readouterr().err == ""
        now[0] = 102.0
        bar.update(100, 100)
        now[0] = 111.9
        bar.update(500, 500)
        now[0] = 112.0
        bar.update(600, 600)
        now[0] = 130.0
        bar.update(9, 9)
    assert capsys.readouterr().err == (
        "building: 10%, 100 rows, 50/s, 0:18 left\n"
        "building: 60%, 600 rows, 50/s, 0:08 left\n"
        "building: 1%, 9 rows, 0/s\n"
    )


@pytest.fixture
def raw_dapo(tmp_path: Path) -> Path:
    """3 problems in 90,000 rows of DAPO's raw layout, as one row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "prompt": [{"role": "user", "content": f"What is {number} + 1? " + 40 * "So? "}],
            "reward_model": {"ground_truth": str(number + 1)},
            "extra_info": {"index": "x" * 100},
        }
        for number in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows * 30_000), tmp_path / "dapo-17k.parquet")
    return tmp_path / "dapo-17k.parquet"


def test_progress_moves_while_rows_are_read(
    raw_dapo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    flags = ("--split", "train", "--dataset", "dapo_raw", "--source", raw_dapo, "--count", "2")
    assert run("build", "math", *flags, "--out", tmp_path) == 0
    said = capsys.readouterr().err
    read = re.findall(r"^reading dapo-17k.parquet: (\d+)%, ([\d,]+) rows, ", said, re.MULTILINE)
    shares = [int(share) for share, _ in read]
    numbers = [int(rows.replace(",", "")) for _, rows in read]
    assert len(read) > 3 and shares[0] < 50 < shares[-1] <= 100
    assert numbers == sorted(set(numbers)) and numbers[-1] > 45_000
    for share, number in zip(shares, numbers, strict=True):
        assert share == pytest.approx(number / 900, abs=1)
    assert said.index("building math-") > said.rindex("reading")
    assert "3 distinct problems in 90,000 rows; 17,917 are expected" in said


def test_progress_moves_while_rows_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    path = build(tmp_path)
    capsys.readouterr()
    assert run("show", path, "--seed", "1") == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 12 and said[-1].startswith("reading countdown-train.jsonl: 100%, 12 rows")


def test_a_terminal_shows_a_bar_while_rows_are_read(raw_dapo: Path, tmp_path: Path) -> None:
    import pty

    program = (
        "import sys\n"
        "from openrlhf_js.cli import data, progress\n"
        "progress.FIRST_SECONDS = 0\n"
        "sys.exit(data.main(sys.argv[1:]))"
    )
    flags = ["--dataset", "dapo_raw", "--source", str(raw_dapo), "--out", str(tmp_path)]
    command = [sys.executable, "-c", program, "build", "math", "--split", "train", *flags]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert running.communicate() and running.returncode == 0
    bars = re.findall(rb"reading dapo-17k.parquet.*? ([\d,]+) rows, ", shown)
    assert len(set(bars)) > 1
    final = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "\n")
    assert final.rstrip().endswith("17,917 are expected")  # no bar is left standing


def test_an_interrupt_while_rows_are_read_leaves_nothing(raw_dapo: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    source = tmp_path / "many"
    source.mkdir()
    for number in range(20):
        (source / f"{number}.parquet").hardlink_to(raw_dapo)
    flags = ("--dataset", "dapo_raw", "--source", source, "--out", out)
    running = start("build", "math", "--split", "train", *flags)
    assert running.stderr
    first = running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate()
    assert first.startswith("reading many: ")
    assert running.returncode == 130 and said.endswith("stopped; the data set was not written\n")
    assert not out.exists()
