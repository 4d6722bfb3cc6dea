"""`openrlhf-js rm eval` on a model with random weights: whole, resumed and refused."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from openrlhf_js.cli import rm
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.tasks import write_lines


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    preferences.write_reward_model(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    held_out = preferences.split(0, preferences.HELD_OUT_PROMPTS).held_out
    path = tmp_path / "data" / "held_out.jsonl"
    path.parent.mkdir()
    write_lines(path, preferences.preferences([held_out], 300, seed=0))
    return path


def call(data, model, folder, *more):
    fixed = ["--model", str(model), "--prompt_key", "prompt", "--dtype", "float32"]
    return ["eval", str(data), *fixed, "--out", str(folder), *more]


def test_a_model_is_evaluated(data, model, tmp_path, capsys):
    out = tmp_path / "out"
    assert rm.main(call(data, model, out)) == 0
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
    # letters and the end, a token each
    lengths = [len(row["chosen"].replace("<eos>", "!")) for row in rows]

    assert evaluation["pairs"] == 300
    assert evaluation["prompts"] == len({row["prompt"] for row in rows})
    assert evaluation["accuracy"]["value"] == pytest.approx(points / 300)
    assert evaluation["margin"]["value"] == pytest.approx(margin, abs=1e-5)
    assert sum(subset["pairs"] for subset in evaluation["subsets"].values()) == 300
    assert evaluation["length"]["mean_chosen"] == pytest.approx(sum(lengths) / 300)
    assert evaluation["settings"]["max_len"] == 2048
    assert evaluation["identity"]["max_len"] == 2048
    assert (out / "report.html").stat().st_size > 10_000
    assert f"{100 * points / 300:.1f} %" in printed.out
    assert "different letters" in printed.out
    assert "warning" not in printed.err


def test_the_same_command_resumes_and_other_settings_do_not(data, model, tmp_path, capsys):
    folder = tmp_path / "out"
    words = call(data, model, folder)
    assert rm.main(words) == 0
    first = json.loads((folder / "evaluation.json").read_text())
    scores = (folder / "scores.jsonl").read_bytes()
    cut = scores[: len(scores) // 2]
    (folder / "scores.jsonl").write_bytes(cut)
    assert rm.main(words) == 0
    again = json.loads((folder / "evaluation.json").read_text())
    assert again["accuracy"] == first["accuracy"]
    kept = cut[: cut.rfind(b"\n") + 1]
    assert (folder / "scores.jsonl").read_bytes().startswith(kept)
    assert rm.main([*words, "--max-len", "8"]) == 2
    assert "max_len: 2048 there, 8 now" in capsys.readouterr().err
    data.write_text(data.read_text().partition("\n")[2])
    assert rm.main(words) == 2
    assert re.search(r"texts: '\w+' there", capsys.readouterr().err)


def test_repeated_and_reversed_pairs_are_counted(data, model, tmp_path, capsys):
    rows = [
        {"prompt": "ab", "chosen": "a<eos>", "rejected": "b<eos>"},
        {"prompt": "ab", "chosen": "b<eos>", "rejected": "a<eos>"},
        {"prompt": "ab", "chosen": "a<eos>", "rejected": "b<eos>"},
        {"prompt": "ba", "chosen": "a<eos>", "rejected": "b<eos>"},
    ]
    write_lines(data, rows)
    assert rm.main(call(data, model, tmp_path / "out")) == 0
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert evaluation["repetitions"] == {"repeated": 1, "reversed": 1}
    assert "1 repeat an earlier pair" in capsys.readouterr().out


def test_a_forgotten_prompt_is_a_warning(data, model, tmp_path, capsys):
    words = call(data, model, tmp_path / "out")
    words.remove("prompt")
    words.remove("--prompt_key")
    assert rm.main(words) == 0
    warning = "warning: 300 of 300 pairs are scored without their prompt: --prompt_key prompt adds"
    assert warning in capsys.readouterr().err


def test_rewards_that_are_not_numbers_give_no_figure(data, tmp_path, capsys):
    folder = tmp_path / "broken"
    preferences.write_reward_model(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["score.weight"] = torch.full_like(tensors["score.weight"], float("nan"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert rm.main(call(data, folder, tmp_path / "out")) == 1
    assert "the sides of pair 1 got the rewards" in capsys.readouterr().err
    assert not (tmp_path / "out" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.jsonl", "--model", "MODEL"], r"absent\.jsonl: No such file"),
        (["FILE", "--model", "MODEL", "--chosen_key", "better"], "line 1: no value under.*better"),
        (["FILE", "--model", "MODEL", "--apply_chat_template"], "for sides that hold messages"),
        (["FILE", "--model", "BARE", "--apply_chat_template"], "has no chat template"),
        (["FILE", "--model", "DATA"], "has no tokenizer"),
    ],
)
def test_what_cannot_be_used(data, model, tmp_path, words, message, capsys):
    names = {"FILE": str(data), "MODEL": str(model), "DATA": str(data.parent)}
    if "BARE" in words:
        names["BARE"] = shutil.copytree(model, tmp_path / "bare")
        (tmp_path / "bare" / "chat_template.jinja").unlink()
    try:
        status = rm.main(
            ["eval", *(str(names.get(w, w)) for w in words), "--out", str(tmp_path / "o")]
        )
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert re.search(message, capsys.readouterr().err)
