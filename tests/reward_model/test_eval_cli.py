"""`openrlhf-js rm eval` on a model with random weights: whole, resumed and refused."""

import json
import re

import pytest
import torch
from kit import write_lines
from safetensors.torch import load_file, save_file

from baseline_research.tiny import preferences
from openrlhf_js.cli import rm
from openrlhf_js.reward_model.model import RewardModel


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    preferences.write_reward_model(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    rows = preferences.pairs(300, held_out=True)
    return write_lines(tmp_path / "data" / "held_out.jsonl", rows)


def call(data, model, folder, *more):
    fixed = ["--model", str(model), "--prompt_key", "prompt", "--dtype", "float32"]
    return ["eval", str(data), *fixed, "--out", str(folder), *more]


def test_a_model_is_evaluated_and_the_same_command_resumes(data, model, tmp_path, capsys):
    out = tmp_path / "out"
    words = call(data, model, out)
    assert rm.main(words) == 0
    evaluation = json.loads((out / "evaluation.json").read_text())
    printed = capsys.readouterr()

    rows = [json.loads(line) for line in data.read_text().splitlines()]
    scorer = RewardModel.load(model, dtype="float32")
    chosen_scores = scorer.score([row["prompt"] + row["chosen"] for row in rows])
    rejected_scores = scorer.score([row["prompt"] + row["rejected"] for row in rows])
    points = 0.0
    for chosen, rejected in zip(chosen_scores, rejected_scores, strict=True):
        points += (chosen > rejected) + (chosen == rejected) / 2
    margin = (sum(chosen_scores) - sum(rejected_scores)) / 300
    assert evaluation["pairs"] == 300
    assert evaluation["prompts"] == len({row["prompt"] for row in rows})
    assert evaluation["accuracy"]["value"] == pytest.approx(points / 300)
    assert evaluation["margin"]["value"] == pytest.approx(margin, abs=1e-5)
    assert sum(subset["pairs"] for subset in evaluation["subsets"].values()) == 300
    longer = [len(row["chosen"]) > len(row["rejected"]) for row in rows]
    equal = [len(row["chosen"]) == len(row["rejected"]) for row in rows]
    alone = (sum(longer) + sum(equal) / 2) / 300  # letters and the end, a token each
    assert evaluation["length"]["accuracy_of_length_alone"]["value"] == pytest.approx(alone)
    assert f"{100 * points / 300:.1f} %" in printed.out
    assert "3 letters" in printed.out
    assert "warning" not in printed.err

    scores = (out / "scores.jsonl").read_bytes()
    cut = scores[: len(scores) // 2]
    (out / "scores.jsonl").write_bytes(cut)
    assert rm.main(words) == 0
    again = json.loads((out / "evaluation.json").read_text())
    assert again["accuracy"] == evaluation["accuracy"]
    kept = cut[: cut.rfind(b"\n") + 1]
    assert (out / "scores.jsonl").read_bytes().startswith(kept)
    assert rm.main([*words, "--max-len", "8"]) == 2
    assert "max_len: 2048 there, 8 now" in capsys.readouterr().err
    data.write_text(data.read_text().partition("\n")[2])
    assert rm.main(words) == 2
    assert re.search(r"texts: '\w+' there", capsys.readouterr().err)


def test_rewards_that_are_not_numbers_give_no_figure(data, tmp_path, capsys):
    folder = tmp_path / "broken"
    preferences.write_reward_model(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["score.weight"] = torch.full_like(tensors["score.weight"], float("nan"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert rm.main(call(data, folder, tmp_path / "out")) == 2
    assert "the sides of pair 1 got the rewards" in capsys.readouterr().err
    assert not (tmp_path / "out" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.jsonl", "--model", "MODEL"], r"absent\.jsonl"),
        (["FILE", "--model", "MODEL", "--chosen_key", "better"], "line 1.*better"),
        (["FILE", "--model", "MODEL", "--apply_chat_template"], "--apply_chat_template"),
        (["FILE", "--model", "DATA"], "no tokenizer"),
    ],
)
def test_what_cannot_be_used(data, model, tmp_path, words, message, capsys):
    names = {"FILE": str(data), "MODEL": str(model), "DATA": str(data.parent)}
    arguments = [str(names.get(word, word)) for word in words]
    assert rm.main(["eval", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
