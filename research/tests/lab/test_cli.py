"""`openrlhf-js lab` on a model with random weights."""

import errno
import json
import re

import numpy as np
import pytest
import torch
from kit import write_lines
from passk_kit import TOKENS, write_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from baseline_research.cli import lab
from baseline_research.lab.grading import RewardFailed
from baseline_research.lab.pool import open_samples
from paired_eval.sampling import engines

SMALL = ("--batches", "20", "--batch_prompts", "4")
REWARD = """
def reward_func(queries, prompts, labels):
    responses = [query[len(prompt):] for query, prompt in zip(queries, prompts)]
    rewards = [float(label in response) for label, response in zip(labels, responses)]
    return {"rewards": rewards}
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a model of letters, prompts, and a reward for saying the label."""
    folder = tmp_path_factory.mktemp("letters")
    write_model(folder / "model")
    (folder / "reward.py").write_text(REWARD)
    rows = {"easy": [], "hard": []}
    for name, first_letters in (("easy", "ab"), ("hard", "cd")):
        for first in first_letters:
            for second in "abcd":
                label = second if name == "easy" else second * 2
                row = {"input": first + second, "label": label, "datasource": name}
                rows[name].append(row)
    write_lines(folder / "easy.jsonl", rows["easy"])
    write_lines(folder / "hard.jsonl", rows["hard"])
    write_lines(folder / "prompts.jsonl", rows["easy"] + rows["hard"])
    return folder


def words(given, out, *more, prompts=("prompts",)):
    """The flags of a program that samples into a folder."""
    flags = ["--model", str(given / "model")]
    flags += ["--reward", str(given / "reward.py")]
    flags += ["--prompts"]
    flags += [str(given / f"{name}.jsonl") for name in prompts]
    flags += ["--out", str(out)]
    flags += ["--max_new_tokens", "4"]
    flags += ["--device", "cpu"]
    flags += ["--responses", "16"]
    flags += map(str, more)
    return flags


@pytest.fixture(scope="module")
def sampled(given, tmp_path_factory):
    """A folder with samples that programs take as they are."""
    out = tmp_path_factory.mktemp("sampled")
    assert lab.main(["value", *words(given, out)]) == 0
    return out


def summary(out, name):
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with np.load(out / f"{name}.npz", allow_pickle=False) as arrays:
        assert arrays.files
    return json.loads((out / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("mse", ["--m", 2, 4, "--batches", 5, "--batch_prompts", 8]),
        ("gradient", [*SMALL, "--m", 2, 3, "--baselines", "js", "bloo", "remax"]),
        ("heterogeneity", [*SMALL, "--m", 2, 3]),
    ],
)
def test_programs_take_the_samples_that_are_there(sampled, capsys, request, name, more):
    call = [name, "--out", str(sampled), "--device", "cpu", *map(str, more)]
    assert lab.main(call) == 0
    printed = capsys.readouterr().out
    result = summary(sampled, name)
    files = [str(sampled / f"{name}.{end}") for end in ("json", "npz", "png")]
    assert printed.splitlines()[-3:] == files
    assert result["caption"] in printed
    assert "95 % intervals over" in result["caption"]
    assert result["settings"]["m"] == [m for m in (2, 3, 4) if m in more]
    assert result["samples"]["max_new_tokens"] == 4
    assert {"quantity", "value", "low", "high"} < result["rows"][0].keys()
    if name != "mse":
        request.getfixturevalue("undrawn")
        assert lab.main(call) == 0
        assert summary(sampled, name)["rows"] == result["rows"]


def test_values_and_what_was_sampled(given, sampled):
    result = summary(sampled, "value")
    samples = open_samples(sampled)
    assert samples.rewards.shape == (16, 16)
    assert samples.greedy_rewards.shape == (16,)
    means = [row for row in result["rows"] if row["quantity"] == "mean_value"]
    assert means[0]["value"] == pytest.approx(samples.rewards.mean())
    assert {row["group"] for row in result["rows"]} == {"all", "easy", "hard"}
    for i, group in enumerate(samples.response_tokens):  # graded as a run decodes them
        label = samples.prompts[i].label
        for j, tokens in enumerate(group):
            text = "".join(TOKENS[token] for token in tokens)
            assert samples.rewards[i, j] == (label in text)
            assert samples.finished[i, j] == (tokens[-1] == 1)
            assert 1 <= len(tokens) <= 4


@pytest.mark.usefixtures("undrawn")
def test_several_files_are_groups_and_fewer_prompts_are_the_first_of_more(given, tmp_path, capsys):
    both = ("easy", "hard")
    assert lab.main(["value", *words(given, tmp_path, "--prompts_count", 2, prompts=both)]) == 0
    few = open_samples(tmp_path)
    assert [prompt.group for prompt in few.prompts] == ["easy", "hard"] * 2
    more = ["--prompts_count", 3, "--responses", 18]
    assert lab.main(["value", *words(given, tmp_path, *more, prompts=both)]) == 0
    assert open_samples(tmp_path).prompts[:4] == few.prompts
    taken = ["value", "--out", str(tmp_path), "--responses"]
    assert lab.main([*taken, "5"]) == 0
    assert summary(tmp_path, "value")["responses"] == 5
    assert lab.main([*taken, "99"]) == 2
    assert "has 6 prompts with 18 responses each, not 6 with 99" in capsys.readouterr().err


def test_gradients_need_the_model_that_was_sampled_and_its_distribution(sampled, tmp_path, capsys):
    settings = sampled / "samples" / "settings.json"
    right = settings.read_text()
    try:
        for name, value, message in (
            ("top_p", 0.9, "sample with --top_p 1"),
            ("model", str(tmp_path / "gone"), "is not the model that was sampled"),
        ):
            settings.write_text(json.dumps({**json.loads(right), name: value}))
            assert lab.main(["heterogeneity", "--out", str(sampled), *SMALL, "--m", "2"]) == 2
            assert message in capsys.readouterr().err
    finally:
        settings.write_text(right)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "resumes"),
        (RewardFailed("r.py: no"), 1, "r.py: no"),
        (OSError(errno.ENOSPC, "No space left"), 1, "No space left"),
        (torch.OutOfMemoryError("Tried more"), 1, "--batch_size"),
    ],
)
def test_what_stops_a_program(given, tmp_path, capsys, monkeypatch, error, status, message):
    def fails(*_):
        raise error

    monkeypatch.setitem(engines.ENGINES, "transformers", fails)
    assert lab.main(["mse", *words(given, tmp_path)]) == status
    assert message in capsys.readouterr().err


SIMULATED = ["--prompts_count", "8", "--rounds", "40", "--m", "4", "2"]


def test_simulate_leaves_its_files_and_prints_its_table(tmp_path, capsys):
    assert lab.main(["simulate", "--out", str(tmp_path), *SIMULATED]) == 0
    result = summary(tmp_path, "simulate")
    names = [row["estimator"] for row in result["rows"]]
    assert list(dict.fromkeys(names)) == ["rloo", "js", "js_grad", "js_fixed"]
    assert {row["m"] for row in result["rows"]} == {2, 4}
    assert result["batches"] == 40
    assert result["caption"].startswith(result["title"])
    printed = capsys.readouterr().out
    assert result["caption"] in printed
    (js,) = [
        row
        for row in result["rows"]
        if (row["m"], row["estimator"], row["quantity"]) == (2, "js", "reduction_percent")
    ]
    assert f"{js['value']:.3g} (" in printed


@pytest.fixture(scope="module")
def checkpoints(given, tmp_path_factory):
    """Three checkpoints of a training, each with other weights."""
    folder = tmp_path_factory.mktemp("training")
    paths = []
    for number, name in enumerate(("base", "global_step20_hf", "global_step100_hf"), start=1):
        model = AutoModelForCausalLM.from_pretrained(given / "model")
        for parameter in model.parameters():
            parameter.data *= number
        model.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(given / "model").save_pretrained(folder / name)
        paths.append(str(folder / name))
    return paths


@pytest.mark.usefixtures("undrawn")
def test_several_checkpoints_are_one_result(given, checkpoints, tmp_path, capsys, monkeypatch):
    more = ["--m", "2", "--batches", "3"]
    call = ["mse", *words(given, tmp_path, *more)]
    call[2:3] = checkpoints
    assert lab.main(call) == 0
    printed = capsys.readouterr().out
    result = summary(tmp_path, "mse")
    steps = {row["checkpoint"]: row["step"] for row in result["rows"]}
    assert steps == {"base": 0, "global_step20_hf": 20, "global_step100_hf": 100}
    with np.load(tmp_path / "mse.npz") as arrays:
        assert {key.split("/")[0] for key in arrays.files} == set(steps)
    for checkpoint, step in steps.items():
        assert re.search(rf"^{checkpoint} +{step} ", printed, re.M)
        # as the program finds it of this one alone
        folder = tmp_path / checkpoint
        assert lab.main(["mse", "--out", str(folder), *more]) == 0
        expected = []
        for row in summary(folder, "mse")["rows"]:
            expected.append({"checkpoint": checkpoint, "step": step, **row})
        assert [row for row in result["rows"] if row["checkpoint"] == checkpoint] == expected
    monkeypatch.setattr(engines, "ENGINES", {})  # what is there is not sampled again
    assert lab.main(call) == 0
    assert summary(tmp_path, "mse")["rows"] == result["rows"]
