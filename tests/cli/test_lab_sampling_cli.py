"""`openrlhf-js lab value` and `lab mse` from the command line, on a model with random weights."""

import argparse
import errno
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from openrlhf_js.cli import lab, lab_mse, lab_sampling, lab_value
from openrlhf_js.cli.lab_flags import add_sampling_flags, sampling
from openrlhf_js.cli.lab_run import guarded, show
from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.sampling_flags import device_of, dtype_of
from openrlhf_js.lab import store as lab_store
from openrlhf_js.lab.store import open_samples

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def given(letters):
    """A folder with model, prompts and reward file."""
    rows = [
        {"input": a + b, "label": b, "datasource": f"kind/{a}"} for a in "ab" for b in LETTERS[2:]
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (letters / "prompts.jsonl").write_text(text)
    return letters


def words(given, out, *more):
    return [
        *("--model", str(given / "model"), "--prompts", str(given / "prompts.jsonl")),
        *("--reward", str(given / "reward.py"), "--out", str(out)),
        *("--responses", "16", "--max_new_tokens", "4", "--batch_size", "40", *more),
    ]


def test_value_then_mse_without_sampling_again(given, tmp_path, capsys, monkeypatch):
    assert lab.main(["value", *words(given, tmp_path)]) == 0
    said = capsys.readouterr()
    summary = json.loads((tmp_path / "value.json").read_text())
    assert [row["group"] for row in summary["rows"]] == ["all", "kind/a", "kind/b"]
    assert said.out.rstrip().endswith(summary["finding"])
    assert "sampling 204 responses with transformers on cpu" in said.err
    values = np.load(tmp_path / "value.npz")
    samples = open_samples(tmp_path)
    assert values["values"] == pytest.approx(samples.rewards.mean(1))
    assert samples.rewards.shape == (12, 16)
    assert 0 < samples.rewards.mean() < 1
    assert (tmp_path / "value.png").read_bytes().startswith(b"\x89PNG")

    monkeypatch.setattr(lab_sampling, "loaded", None)  # would fail if a model were loaded
    assert lab.main(["mse", "--out", str(tmp_path), "--batches", "20"]) == 0
    said = capsys.readouterr()
    summary = json.loads((tmp_path / "mse.json").read_text())
    assert {row["responses"] for row in summary["rows"]} == {2, 4, 8}
    assert summary["batch_prompts"] == 12
    assert said.out.rstrip().endswith(summary["finding"])
    assert summary["samples"]["max_new_tokens"] == 4
    assert (tmp_path / "mse.png").read_bytes().startswith(b"\x89PNG")
    assert lab.main(["value", *words(given, tmp_path)]) == 0


def test_queries_are_graded_as_a_run_decodes_them(given, tmp_path):
    assert lab_value.main(words(given, tmp_path)) == 0
    samples = open_samples(tmp_path)
    for i, group in enumerate(samples.response_tokens):
        for j, tokens in enumerate(group):
            text = "".join(["<pad>", "<eos>", *LETTERS][each] for each in tokens)
            assert samples.rewards[i, j] == (samples.labels[i] in text)
            assert samples.finished[i, j] == (tokens[-1] == 1)
            assert 1 <= len(tokens) <= 4


def test_more_and_fewer(given, tmp_path, capsys):
    parser = Parser()
    add_sampling_flags(parser)
    few = ["--prompts_count", "5", "--responses", "3"]
    small = sampling(parser.parse_args(words(given, tmp_path, *few)))
    assert small.rewards.shape == (5, 3)
    large = sampling(parser.parse_args(words(given, tmp_path)))
    assert large.rewards.shape == (12, 16)
    assert large.first(5, 3).prompts == small.prompts
    assert large.first(5, 3).rewards.tolist() == small.rewards.tolist()
    there = ["--out", str(tmp_path)]
    assert sampling(parser.parse_args(there)).rewards.shape == (12, 16)
    assert sampling(parser.parse_args([*there, *few])).rewards.shape == (5, 3)
    narrow = ["--prompts_count", "3", "--responses", "20"]
    assert sampling(parser.parse_args(words(given, tmp_path, *narrow))).rewards.shape == (3, 20)
    assert sampling(parser.parse_args(there)).rewards.shape == (12, 16)
    with pytest.raises(ValueError, match=r"has 12 prompts with 16 responses each, not 12 with 99"):
        sampling(parser.parse_args([*there, "--responses", "99"]))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--temperature", "0.5"], "temperature: 1.0 there, 0.5 now"),
        (["--max_new_tokens", "5"], "max_new_tokens: 4 there, 5 now"),
        (["--seed", "1"], "seed: 0 there, 1 now"),
        (["--dtype", "bf16"], "dtype: 'float32' there, 'bfloat16' now"),
    ],
)
def test_samples_of_other_settings(given, tmp_path, capsys, more, message):
    few = ["--prompts_count", "2", "--responses", "2"]
    assert lab_value.main(words(given, tmp_path, *few)) == 0
    assert lab_value.main(words(given, tmp_path, *few, *more)) == 2
    assert message in capsys.readouterr().err


def test_a_reward_file_that_was_mended(given, tmp_path, capsys):
    reward, right = tmp_path / "reward.py", (given / "reward.py").read_text()
    reward.write_text(right.replace("return", "1 / (labels[0] == 'c')\n    return"))
    call = [*words(given, tmp_path / "out"), "--reward", str(reward)]
    assert lab_value.main(call) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "for the prompt ending in" in said
    assert "What was sampled is kept" in said
    reward.write_text(right)
    assert lab_value.main(call) == 0
    assert "graded 12 responses anew" in capsys.readouterr().err
    assert lab_value.main(words(given, tmp_path / "new")) == 0
    first, second = (open_samples(tmp_path / name).rewards for name in ("out", "new"))
    assert first.tolist() == second.tolist()


def test_ctrl_c(given, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab_sampling, "loaded", interrupted)
    assert lab_mse.main(words(given, tmp_path)) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "openrlhf-js lab mse: stopped; the same command goes on from here"


def test_a_full_disk(given, tmp_path, capsys, monkeypatch):
    def full(self, kind, *_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lab_store.Store, "missing", full)
    assert lab_value.main(words(given, tmp_path)) == 1
    said = capsys.readouterr().err.splitlines()
    advice = "the same command goes on from here"
    assert said == [f"openrlhf-js lab value: No space left on device; {advice}"]


def test_too_little_memory(capsys):
    def work():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore")

    assert guarded("lab", work) == 1
    assert "Tried to allocate\nGive a smaller --batch_size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--model", "/no/such/folder", "no folder here"),
        ("--prompts", "/no/such.jsonl", "/no/such.jsonl: No such file"),
        ("--reward", "/no/such.py", "is no Python file"),
        ("--prompts_count", "13", "there are 12 prompts; ask for fewer"),
        ("--max_new_tokens", "15", "Lower --max_new_tokens to 14 or less"),
        ("--label_key", "gold", "nothing under 'gold' (--label_key)"),
    ],
)
def test_what_cannot_be_used(given, tmp_path, capsys, flag, value, message):
    assert lab_value.main([*words(given, tmp_path), flag, value]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_no_model(given, tmp_path, capsys):
    assert lab_value.main([*words(given, tmp_path), "--model", str(tmp_path)]) == 2
    assert f"--model {tmp_path} is no model that can be loaded" in capsys.readouterr().err


def test_no_samples_yet(tmp_path, capsys):
    assert lab_mse.main(["--out", str(tmp_path)]) == 2
    assert "holds no samples: say with --model" in capsys.readouterr().err


def test_too_many_responses_for_the_pool(given, tmp_path, capsys):
    assert lab_mse.main([*words(given, tmp_path), "--m", "2,9"]) == 2
    assert "m = 9 is more than half of the 16 responses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--model x", "--model needs --prompts FILE or --task NAME"),
        ("--task maze", "--prompts and --task need --model"),
        ("--model x --prompts y", "--prompts needs --reward FILE"),
        ("--reward y", "--reward needs --model and --prompts"),
        ("--prompts x --task maze", "not allowed with argument"),
        ("--temperature 0.5", "--temperature needs --model: without it, what is there is taken"),
        ("--batch_size 8", "--batch_size needs --model"),
        ("--model x --task maze --input_template {}", "--input_template is not used with --task"),
        ("--model x --prompts y --reward z --input_template Q:", "write {} where the prompt"),
        ("--model x --prompts y --reward z --input_template {}{a}", "and no other braces"),
        ("--responses 0", "--responses is 0; give 1 or more"),
        ("--temperature 0", "--temperature is 0.0; give a number above 0"),
        ("--top_p 1.5", "--top_p is 1.5; give a number above 0, up to 1"),
        ("--seed -1", "--seed is -1; give 0 or more"),
        ("--m 1,2", "--m is 1; give 2 or more"),
        ("--m two", "--m 'two' are no whole numbers such as 2,4,8"),
        ("--batches 0", "--batches is 0; give 1 or more"),
    ],
)
def test_wrong_flags(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit) as stopped:
        lab_mse.main(["--out", str(tmp_path), *flags.split()])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_task_brings_its_own_prompts_and_rewards(monkeypatch):
    monkeypatch.setattr(lab_sampling, "TASK_POOL", 50)
    args = argparse.Namespace(
        task="countdown", split="train", prompts=None, prompts_count=None, seed=0
    )
    rows, source = lab_sampling._rows(args, Console())
    assert len(rows) == 50
    assert source["prompts"] == "task countdown, train"
    again, same = lab_sampling._rows(args, Console())
    assert (again, same) == (rows, source)
    args.prompts_count = 5
    assert lab_sampling._rows(args, Console())[0] == rows


def test_device_and_dtype(monkeypatch):
    args = argparse.Namespace(device="auto", dtype=None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (device_of(args), dtype_of(args)) == ("cpu", "float32")
    args.device = "cuda"
    with pytest.raises(ValueError, match="torch sees no GPU"):
        device_of(args)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (device_of(args), dtype_of(args)) == ("cuda", "bfloat16")
    args.dtype = "fp16"
    assert dtype_of(args) == "float16"


def test_tables(capsys):
    rows = [{"name": f"n{i}", "long value": 1234.5678, "none": None} for i in range(3)]
    show(Console(width=20), rows, list(rows[0]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-3:]] == [[f"n{i}", "1235", "-"] for i in range(3)]
    show(Console(), [{"group": "\x1b[31mred"}], ["group"])
    assert "\x1b" not in (said := capsys.readouterr().out) and "\\x1b[31mred" in said
    show(Console(width=80), rows[:1], ["name", "long value"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["name", "n0"], ["long", "value", "1235"]]


def test_help_names_every_program(capsys):
    assert lab.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in lab.PROGRAMS)
    folder = Path(lab.__file__).parent
    assert all((folder / f"{module}.py").is_file() for module, _ in lab.PROGRAMS.values())
