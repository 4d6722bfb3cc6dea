"""A tiny reward model trained by the real program, interrupted, resumed, and found to be good."""

import json
import math
import os
import random
import signal
from pathlib import Path

import pytest
import torch
from forked import Forked
from kit import read_lines, scalars, until
from transformers import AutoTokenizer

from openrlhf_js.cli import rm
from openrlhf_js.plugin import run
from openrlhf_js.reward_model.checkpoint import checkpoint_problems
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.reward_model.preferences import Keys, read_pairs, rendered
from openrlhf_js.tiny.model import make_model, make_tokenizer, save
from openrlhf_js.tiny.tasks import sort

pytestmark = pytest.mark.integration

PAIRS, BATCH = 4096, 64
STEPS = PAIRS // BATCH
LOG_ODDS = 1.5  # of being preferred, for each digit 7 that a response has more than the other


def upstreams_rewards(folder: Path, texts: list[str]) -> list[float]:
    """By the checkpoint as upstream's RewardModelActor loads it."""
    run.prepare_device("cpu")
    from openrlhf.models import get_llm_for_sequence_regression

    how = {"attn_implementation": "sdpa", "param_dtype": "bf16"}
    model = get_llm_for_sequence_regression(str(folder), "reward", **how).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ended = (text + tokenizer.eos_token for text in texts)
    encoded = [tokenizer(x, return_tensors="pt", add_special_tokens=False) for x in ended]
    with torch.no_grad():
        return [model(each["input_ids"], each["attention_mask"]).item() for each in encoded]


def write_pairs(path: Path, count: int, seed: int) -> None:
    """Labels drawn from true scores as Bradley and Terry have it; the prompt says nothing."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for number in range(count):
            chosen, rejected = rng.sample(range(5), 2)
            if rng.random() >= 1 / (1 + math.exp(LOG_ODDS * (rejected - chosen))):
                chosen, rejected = rejected, chosen
            row: dict[str, object] = {"prompt": f"sort({number})="}
            for side, sevens in (("chosen", chosen), ("rejected", rejected)):
                digits = ["7"] * sevens + rng.choices("012345689", k=4 - sevens)
                rng.shuffle(digits)
                row |= {side: "".join(digits), f"{side}_score": LOG_ODDS * sevens}
            file.write(json.dumps(row) + "\n")


@pytest.fixture
def start(tmp_path: Path):
    """Starts a small training in a session of its own."""
    tokenizer = make_tokenizer(sort)
    tokenizer.pad_token = None  # as Llama's: OpenRLHF pads with the end, and saves that
    save(make_model(tokenizer, seed=0, width=64, layers=2), tokenizer, tmp_path / "model")
    write_pairs(tmp_path / "train.jsonl", PAIRS, 0)
    write_pairs(tmp_path / "held_out.jsonl", 2000, 1)
    left: list[Forked] = []

    def begin(*flags: str) -> Forked:
        given = {
            "--pretrain": "model",  # older spellings and today's, side by side
            "--dataset": "train.jsonl",
            "--eval.dataset": "held_out.jsonl",
            "--data.prompt_key": "prompt",
            "--data.max_len": 24,
            "--train.batch_size": BATCH,
            "--train.micro_batch_size": BATCH,
            "--adam.lr": 1e-3,
            "--ckpt.path": "checkpoints",
            "--ckpt.save_steps": 8,
            "--ckpt.output_dir": "trained",
            "--logger.tensorboard_dir": "tensorboard",
            "--js.device": "cpu",
        }
        words = [str(word) for item in given.items() for word in item]
        words = ["train", *words, *flags]
        process = Forked(tmp_path, tmp_path / "log.txt", words, rm.main)
        left.append(process)
        return process

    yield begin
    for process in left:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def log_of(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")


def test_train_interrupt_resume_and_evaluate(start, tmp_path):
    process = start("--logger.wandb.run_name", "first")
    latest = tmp_path / "checkpoints" / "latest"
    until(lambda: process.poll() is not None or latest.exists(), 200)
    assert process.poll() is None, log_of(tmp_path)[-3000:]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    last = log_of(tmp_path).splitlines()[-1]
    assert last.startswith("openrlhf_js: interrupted; --ckpt.load_enable resumes from global_step")
    assert not (tmp_path / "trained" / "config.json").exists()
    saved = int(latest.read_text().removeprefix("global_step"))

    resumed = start("--logger.wandb.run_name", "second", "--ckpt.load_enable")
    assert resumed.wait(400) == 0, log_of(tmp_path)[-3000:]
    assert f"consumed_samples: {BATCH * saved}" in log_of(tmp_path)
    first, second = (scalars(tmp_path / "tensorboard" / x) for x in ("first", "second"))
    assert [step for step, _ in second["train/loss"]] == list(range(saved + 1, STEPS + 1))
    (_, accuracy_before), (_, loss_before) = first["train/acc"][0], first["train/loss"][0]
    assert accuracy_before < 0.75 and loss_before == pytest.approx(math.log(2), abs=0.1)
    step, accuracy_after = second["eval/acc_mean"][-1]
    assert step == STEPS

    folder, held_out = tmp_path / "trained", tmp_path / "held_out.jsonl"
    assert checkpoint_problems(folder, normalize=True) == []
    words = [str(held_out), "--model", str(folder), "--prompt_key", "prompt", "--max_len", "24"]
    words += ["--device", "cpu", "--out", str(tmp_path / "evaluation")]
    assert rm.main(["eval", *words]) == 0
    found = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert found["accuracy"]["value"] == pytest.approx(accuracy_after, abs=0.01)
    truth = [row["chosen_score"] > row["rejected_score"] for row in read_lines(held_out)]
    assert found["accuracy"]["value"] >= 0.95 * sum(truth) / len(truth)
    assert found["calibration"]["error"] <= 0.05

    sides = [side for pair in read_pairs(held_out, Keys("prompt")) for side in rendered(pair)[:2]]
    ours = RewardModel.load(folder, max_len=24, normalize=True).score(sides)
    assert abs(sum(ours) / len(ours)) < 0.1  # normalised on these very pairs
    some = sides[:200]
    plain = RewardModel.load(folder, max_len=24, normalize=False, dtype="float32").score(some)
    assert upstreams_rewards(folder, some) == pytest.approx(plain, abs=1e-3)
