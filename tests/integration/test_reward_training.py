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
from openrlhf_js.plugin.run.device import prepare_device
from openrlhf_js.reward_model.checkpoint import checkpoint_problems
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.reward_model.preferences import Keys, read_pairs, rendered
from openrlhf_js.tiny.model import make_model, make_tokenizer, save
from openrlhf_js.tiny.tasks import sort

pytestmark = pytest.mark.integration

PAIRS = 4096
BATCH = 64
STEPS = PAIRS // BATCH
LOG_ODDS = 1.5  # of being preferred, for each digit 7 that a response has more than the other


def upstreams_rewards(folder: Path, texts: list[str]) -> list[float]:
    """By the checkpoint as upstream's RewardModelActor loads it."""
    prepare_device("cpu")
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
    tokenizer = make_tokenizer(sort.tokens)
    tokenizer.pad_token = None  # as Llama's: OpenRLHF pads with the end, and saves that
    save(make_model(tokenizer, seed=0, width=64, layers=2), tokenizer, tmp_path / "model")
    write_pairs(tmp_path / "train.jsonl", PAIRS, 0)
    write_pairs(tmp_path / "held_out.jsonl", 2000, 1)
    left: list[Forked] = []

    def begin(*flags: str) -> Forked:
        given = {
            "--model.model_name_or_path": "model",
            "--data.dataset": "train.jsonl",
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
    saved = _interrupted(start, tmp_path)
    logged = _resumed(start, tmp_path, saved)
    step, accuracy = logged["eval/acc_mean"][-1]
    assert step == STEPS
    _check_evaluation(tmp_path, accuracy)
    _check_scores(tmp_path / "trained", tmp_path / "held_out.jsonl")
    _train_an_adapter(start, tmp_path)


def _interrupted(start, folder: Path) -> int:
    """Interrupts a training once it has saved; the step of its checkpoint."""
    process = start("--logger.wandb.run_name", "first")
    latest = folder / "checkpoints" / "latest"
    until(lambda: process.poll() is not None or latest.exists(), 200)
    assert process.poll() is None, log_of(folder)[-3000:]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    last_line = log_of(folder).splitlines()[-1]
    assert last_line.startswith(
        "openrlhf_js: interrupted; --ckpt.load_enable resumes from global_step"
    )
    assert not (folder / "trained" / "config.json").exists()
    logged = scalars(folder / "tensorboard" / "first")
    _, first_accuracy = logged["train/acc"][0]
    _, first_loss = logged["train/loss"][0]
    assert first_accuracy < 0.75
    assert first_loss == pytest.approx(math.log(2), abs=0.1)
    return int(latest.read_text().removeprefix("global_step"))


def _resumed(start, folder: Path, saved: int) -> dict[str, list[tuple[int, float]]]:
    """Trains to the end, from where the checkpoint is; what was logged."""
    process = start("--logger.wandb.run_name", "second", "--ckpt.load_enable")
    assert process.wait(400) == 0, log_of(folder)[-3000:]
    assert f"consumed_samples: {BATCH * saved}" in log_of(folder)
    logged = scalars(folder / "tensorboard" / "second")
    steps = [step for step, _ in logged["train/loss"]]
    assert steps == list(range(saved + 1, STEPS + 1))
    return logged


def _check_evaluation(folder: Path, accuracy_in_training: float) -> None:
    """`rm eval` agrees with training, and the model is nearly as good as the truth."""
    held_out = folder / "held_out.jsonl"
    assert checkpoint_problems(folder / "trained", normalize=True) == []
    flags = {
        "model": folder / "trained",
        "prompt_key": "prompt",
        "max_len": 24,
        "device": "cpu",
        "out": folder / "evaluation",
    }
    words = ["eval", str(held_out)]
    for name, value in flags.items():
        words += [f"--{name}", str(value)]
    assert rm.main(words) == 0
    evaluation = json.loads((folder / "evaluation" / "evaluation.json").read_text())
    accuracy = evaluation["accuracy"]["value"]
    truths = [row["chosen_score"] > row["rejected_score"] for row in read_lines(held_out)]
    assert accuracy == pytest.approx(accuracy_in_training, abs=0.01)
    assert accuracy >= 0.95 * sum(truths) / len(truths)
    assert evaluation["calibration"]["error"] <= 0.05


def _check_scores(trained: Path, held_out: Path) -> None:
    """Scores are normalised on the held-out pairs, and those of upstream's own model."""
    texts = []
    for pair in read_pairs(held_out, Keys("prompt")):
        texts += rendered(pair)[:2]
    scores = RewardModel.load(trained, max_len=24, normalize=True).score(texts)
    assert abs(sum(scores) / len(scores)) < 0.1
    some_texts = texts[:200]
    plain_model = RewardModel.load(trained, max_len=24, normalize=False, dtype="float32")
    plain_scores = plain_model.score(some_texts)
    assert upstreams_rewards(trained, some_texts) == pytest.approx(plain_scores, abs=1e-3)


def _train_an_adapter(start, folder: Path) -> None:
    """With LoRA under ZeRO-3, where an epoch is 1.5 updates; the merged model is saved."""
    process = start(
        *("--ds.lora.rank", "8", "--ds.zero_stage", "3", "--ckpt.output_dir", "merged"),
        *("--data.max_samples", "100", "--train.max_epochs", "3", "--ckpt.save_steps", "-1"),
        *("--train.micro_batch_size", "32", "--logger.wandb.run_name", "adapter"),
    )
    assert process.wait(400) == 0, log_of(folder)[-3000:]
    rates = [rate for _, rate in scalars(folder / "tensorboard" / "adapter")["train/lr"]]
    assert len(rates) == 4
    assert rates == sorted(rates, reverse=True)
    _check_scores(folder / "merged", folder / "held_out.jsonl")
