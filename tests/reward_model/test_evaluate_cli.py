import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from openrlhf_js.cli import progress, rm_eval
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.model import make_tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from stub_server import stub


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A reward model with random weights, as OpenRLHF saves them."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(preferences.TASK)
    torch.manual_seed(0)
    settings = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        num_labels=1,
    )
    Qwen2ForSequenceClassification(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    preferences.write(tmp_path / "data", train=10, held_out=300)
    return tmp_path / "data" / "held_out.jsonl"


def call(data, model, folder, *more):
    fixed = ["--model", str(model), "--prompt-key", "prompt", "--dtype", "float32"]
    return [str(data), *fixed, "--output", str(folder), *more]


def test_a_model_is_evaluated(data, model, tmp_path, capsys):
    assert rm_eval.main(call(data, model, tmp_path / "out")) == 0
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    scorer = RewardModel.load(model, dtype="float32")
    chosen = scorer.score([row["prompt"] + row["chosen"] for row in rows])
    rejected = scorer.score([row["prompt"] + row["rejected"] for row in rows])
    right = sum((a > b) + (a == b) / 2 for a, b in zip(chosen, rejected, strict=True))
    assert found["pairs"] == 300
    assert found["prompts"] == len({row["prompt"] for row in rows})
    assert found["accuracy"]["value"] == pytest.approx(right / 300)
    assert found["margin"]["value"] == pytest.approx((sum(chosen) - sum(rejected)) / 300, abs=1e-5)
    assert sum(part["pairs"] for part in found["subsets"].values()) == 300
    assert found["length"]["unit"] == "tokens"
    # Letters and the end, a token each.
    assert found["length"]["mean_chosen"] == pytest.approx(
        sum(len(row["chosen"].replace("<eos>", "!")) for row in rows) / 300
    )
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert f"{100 * right / 300:.1f} %" in shown
    assert "different letters" in shown


def test_a_second_call_goes_on_and_finds_the_same(data, model, tmp_path, capsys):
    folder = tmp_path / "out"
    assert rm_eval.main(call(data, model, folder, "--pairs-at-once", "50")) == 0
    first = (folder / "evaluation.json").read_text()
    scores = (folder / "scores.jsonl").read_bytes()
    cut = scores[: len(scores) // 2]
    (folder / "scores.jsonl").write_bytes(cut)
    assert rm_eval.main(call(data, model, folder, "--pairs-at-once", "50")) == 0
    again = json.loads((folder / "evaluation.json").read_text())
    assert again["accuracy"] == json.loads(first)["accuracy"]
    assert again["margin"]["value"] == pytest.approx(json.loads(first)["margin"]["value"], abs=1e-5)
    kept = cut[: cut.rfind(b"\n") + 1]
    assert (folder / "scores.jsonl").read_bytes().startswith(kept)


def test_another_file_or_other_options_do_not_go_on(data, model, tmp_path, capsys):
    folder = tmp_path / "out"
    assert rm_eval.main(call(data, model, folder)) == 0
    assert rm_eval.main(call(data, model, folder, "--max-len", "8")) == 2
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join(lines[1:]))
    assert rm_eval.main(call(data, model, folder)) == 2
    said = capsys.readouterr().err
    assert "with another max_len" in said
    assert "with another texts" in said


def test_what_takes_long_shows_how_far_it_is(data, model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0)
    assert rm_eval.main(call(data, model, tmp_path / "out")) == 0
    reading, scoring = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"reading the model: \d+%, 0 MB, .*", reading)
    assert re.fullmatch(r"scoring: 43%, 128 pairs, .*", scoring)


def test_served_scores_that_are_normalised_are_said_to_be(tmp_path, capsys):
    file = tmp_path / "held_out.jsonl"
    rows = [{"prompt": "1", "chosen": f"{i}", "rejected": f"{i - 1}"} for i in range(2, 6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with stub() as server:
        url = f"{server.url}/get_reward"
        words = [str(file), "--url", url, "--prompt-key", "prompt", "--output"]
        assert rm_eval.main([*words, str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    told = {"servers": [url], "normalized": True, "mean": 0.5, "std": 2.0}
    assert found["description"] == told
    shown = capsys.readouterr().out
    assert re.search(r"^normalised +yes +the server gives \(reward - 0.5\) / 2 *$", shown, re.M)
    assert "The server normalises" in shown


def test_without_a_folder_the_name_tells_model_and_file_apart(
    data, model, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    plain = [str(data), "--model", str(model), "--prompt-key", "prompt"]
    for more in ([], [], ["--dtype", "float32"]):
        assert rm_eval.main([*plain, *more]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_causal_model_is_one_line_and_status_2(data, tmp_path, capsys):
    folder = tmp_path / "causal"
    tokenizer = make_tokenizer(preferences.TASK)
    settings = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    Qwen2ForCausalLM(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    capsys.readouterr()
    assert rm_eval.main(call(data, folder, tmp_path / "out")) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"openrlhf-js rm eval: .*\n", shown.err)


def test_weights_that_are_not_numbers_give_no_figure(data, model, tmp_path, capsys):
    folder = tmp_path / "broken"
    whole = Qwen2ForSequenceClassification.from_pretrained(model)
    whole.score.weight.data[0, 0] = float("nan")
    whole.save_pretrained(folder)
    make_tokenizer(preferences.TASK).save_pretrained(folder)
    assert rm_eval.main(call(data, folder, tmp_path / "out")) == 1
    assert "the chosen response of pair 1 got the reward nan" in capsys.readouterr().err
    assert not (tmp_path / "out" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.jsonl", "--model", "."], r"absent\.jsonl"),
        (["FILE", "--model", "MODEL", "--chosen-key", "better"], "line 1: no value under.*better"),
        (["FILE", "--model", "MODEL", "--apply-chat-template"], "messages"),
        (["FILE", "--model", "MODEL", "--dtype", "int8"], "int8"),
        (["FILE", "--model", "MODEL", "--max-len", "0"], "--max-len is 0"),
        (["FILE"], "--model --url"),
        (["FILE", "--model", "MODEL", "--url", "http://x"], "not allowed with"),
        (["FILE", "--url", "http://x", "--apply-chat-template"], "needs --tokenizer"),
        (["FILE", "--url", "nonsense", "--prompt-key", "prompt"], "nonsense"),
        (["FILE", "--url", "http://x", "--timeout", "nan"], "--timeout is nan"),
    ],
)
def test_what_cannot_be_used_is_one_line(data, model, tmp_path, words, message, capsys):
    names = {"FILE": str(data), "MODEL": str(model)}
    words = [names.get(word, word) for word in words]
    try:
        status = rm_eval.main([*words, "--output", str(tmp_path / "out")])
    except SystemExit as left:
        status = left.code
    said = capsys.readouterr().err
    assert status == 2
    assert re.search(message, said)
    assert said.count("\n") == 1


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit) as left:
        rm_eval.main(["--help"])
    assert left.value.code == 0
    assert "openrlhf-js rm eval held_out.jsonl --model" in capsys.readouterr().out


@pytest.mark.timeout(240)  # a program that loads torch, on a busy machine
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_what_is_stopped_goes_on(model, tmp_path, number, status, capsys):
    preferences.write(tmp_path / "data", train=1, held_out=2000)
    words = call(tmp_path / "data" / "held_out.jsonl", model, tmp_path / "out")
    scores = tmp_path / "out" / "scores.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "openrlhf_js.cli.rm_eval", *words, "--pairs-at-once", "1"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and (not scores.exists() or scores.stat().st_size < 500):
            time.sleep(0.001)
        process.send_signal(number)
        said = process.communicate()[1]
    assert process.returncode == status
    assert ("stopped; the same call goes on from here" in said) == (number == signal.SIGINT)
    before = scores.read_bytes()
    assert 1 < before.count(b"\n") < 2000
    assert rm_eval.main(words) == 0
    after = scores.read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1])
    assert sorted(json.loads(line)["pair"] for line in after.splitlines()[1:]) == list(range(2000))
