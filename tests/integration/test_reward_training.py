"""A tiny reward model trained by the real program: interrupted, resumed, evaluated and served.

It scores as in training: EOS is added where it is missing, and put in the place of the last token
where the text was cut. OpenRLHF in Ray and its server score other tokens.
"""

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from forked import Forked
from kit import read_lines, scalars, until, write_lines
from small_models import LONG, TEXTS

from baseline_research.tiny.model import make_model, make_tokenizer, save
from baseline_research.tiny.tasks import sort
from openrlhf_js.cli import rm
from openrlhf_js.reward_model.checkpoint import (
    checkpoint_problems,
    normalisation,
    read_config,
    tensor_shapes,
)
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.reward_model.preferences import Keys, read_pairs, rendered
from openrlhf_js.trainers.openrlhf.run.device import prepare_device

pytestmark = pytest.mark.integration

PAIRS = 4096
BATCH = 64
STEPS = PAIRS // BATCH
MAX_LEN = 24
LOG_ODDS = 1.5  # of being preferred, for each digit 7 that a response has more than the other
TOLERANCE = 1e-3


def preferences(count: int, seed: int) -> list[dict[str, Any]]:
    """Labels drawn from true scores as Bradley and Terry have it; the prompt says nothing."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        chosen, rejected = rng.sample(range(5), 2)
        if rng.random() >= 1 / (1 + math.exp(LOG_ODDS * (rejected - chosen))):
            chosen, rejected = rejected, chosen
        row: dict[str, Any] = {"prompt": f"sort({number})="}
        for side, sevens in (("chosen", chosen), ("rejected", rejected)):
            digits = ["7"] * sevens + rng.choices("012345689", k=4 - sevens)
            rng.shuffle(digits)
            row |= {side: "".join(digits), f"{side}_score": LOG_ODDS * sevens}
        rows.append(row)
    return rows


@pytest.fixture
def start(tmp_path: Path):
    """Starts a small training in a session of its own."""
    tokenizer = make_tokenizer(sort.tokens)
    tokenizer.pad_token = None  # as Llama's: OpenRLHF pads with the end, and saves that
    save(make_model(tokenizer, seed=0, width=64, layers=2), tokenizer, tmp_path / "model")
    write_lines(tmp_path / "train.jsonl", preferences(PAIRS, seed=0))
    write_lines(tmp_path / "held_out.jsonl", preferences(2000, seed=1))
    left: list[Forked] = []

    def begin(*flags: str) -> Forked:
        given = {
            "--model.model_name_or_path": "model",
            "--data.dataset": "train.jsonl",
            "--eval.dataset": "held_out.jsonl",
            "--data.prompt_key": "prompt",
            "--data.max_len": MAX_LEN,
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


def test_a_model_is_trained_resumed_evaluated_and_served(start, tmp_path):
    saved = _interrupted(start, tmp_path)
    logged = _resumed(start, tmp_path, saved)
    step, accuracy = logged["eval/acc_mean"][-1]
    assert step == STEPS
    _check_evaluation(tmp_path, accuracy)
    _check_scores(tmp_path / "trained", tmp_path / "held_out.jsonl")
    _check_ways_to_score(tmp_path / "trained")
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
        "max_len": MAX_LEN,
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


class Upstream:
    """A reward model as OpenRLHF itself loads it, in float32."""

    def __init__(self, folder: Path):
        prepare_device("cpu")
        from openrlhf.models import get_llm_for_sequence_regression
        from openrlhf.utils import get_tokenizer

        model = get_llm_for_sequence_regression(str(folder), "reward", attn_implementation="sdpa")
        self.model = model.float().eval()
        self.tokenizer = get_tokenizer(str(folder), None, "left", None)

    def in_training(self, texts: list[str]) -> list[float]:
        """By RewardDataset and its batches, as RewardModelTrainer.evaluate computes them."""
        from openrlhf.datasets import RewardDataset

        dataset = RewardDataset.__new__(RewardDataset)
        dataset.tokenizer = self.tokenizer
        dataset.max_length = MAX_LEN
        dataset.is_dpo = False
        dataset.prompts = [""] * len(texts)
        dataset.extras = [0] * len(texts)
        dataset.chosens = dataset.rejects = texts
        ids, mask, *_ = dataset.collate_fn([dataset[number] for number in range(len(texts))])
        with torch.no_grad():
            return self.model(ids.squeeze(1), mask.squeeze(1)).tolist()


def _check_scores(trained: Path, held_out: Path) -> None:
    """Scores are normalised on the held-out pairs, and those of upstream's own model."""
    texts = []
    for pair in read_pairs(held_out, Keys("prompt")):
        texts += rendered(pair)[:2]
    scores = RewardModel.load(trained, MAX_LEN, normalize=True).score(texts)
    assert abs(sum(scores) / len(scores)) < 0.1
    ours = RewardModel.load(trained, MAX_LEN, dtype="float32")
    expected = Upstream(trained).in_training(texts[:200])
    assert ours.score(texts[:200]) == pytest.approx(expected, abs=TOLERANCE)


def _check_ways_to_score(trained: Path) -> None:
    """In this process and served as in training, also of texts that are cut or have no end."""
    assert {"score.weight": (1, 64)}.items() <= tensor_shapes(trained).items()
    texts = [*TEXTS, LONG, LONG + "<eos>", *TEXTS]
    expected = Upstream(trained).in_training(texts)
    assert max(expected) - min(expected) > 100 * TOLERANCE
    ours = RewardModel.load(trained, MAX_LEN, dtype="float32")
    assert ours.score(texts) == pytest.approx(expected, abs=TOLERANCE)
    scale = normalisation(read_config(trained))
    assert scale is not None
    scaled = [(score - scale.mean) / scale.std for score in expected]
    assert _served(trained, texts) == pytest.approx(scaled, abs=TOLERANCE)


def _served(folder: Path, texts: list[str]) -> list[float]:
    """What `rm serve` answers, together and alone; it ends with status 0 when asked to."""
    command = [sys.executable, "-m", "openrlhf_js.cli.rm", "serve", "--port=0", "--device=cpu"]
    command += ["--reward.model_name_or_path", str(folder), "--reward.normalize_enable"]
    command += ["--ds.param_dtype=float32", f"--data.max_len={MAX_LEN}", "--batch_size=5"]
    log = folder.parent / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        serving = re.compile(r"serving on (\S+)\n")
        until(lambda: process.poll() is not None or serving.search(log.read_text()))
        assert process.poll() is None, log.read_text()
        url = serving.search(log.read_text())[1]
        together = httpx.post(url, json={"query": texts}, timeout=60).json()
        assert together["scores"] == together["rewards"]
        for text, score in zip(texts, together["rewards"], strict=True):
            alone = httpx.post(url, json={"query": [text]}, timeout=60).json()
            assert alone["rewards"] == pytest.approx([score], abs=TOLERANCE)
        assert httpx.get(url.replace("get_reward", "health")).json()["normalized"] is True
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    return together["rewards"]


def _train_an_adapter(start, folder: Path) -> None:
    """With LoRA under ZeRO-3, where an epoch is 1.5 updates; the merged model is saved."""
    held_out = folder / "few_held_out.jsonl"  # ZeRO-3 is slow here
    write_lines(held_out, read_lines(folder / "held_out.jsonl")[:BATCH])
    process = start(
        *("--ds.lora.rank", "8", "--ds.zero_stage", "3", "--ckpt.output_dir", "merged"),
        *("--eval.dataset", str(held_out)),
        *("--data.max_samples", "100", "--train.max_epochs", "3", "--ckpt.save_steps", "-1"),
        *("--train.micro_batch_size", "32", "--logger.wandb.run_name", "adapter"),
    )
    assert process.wait(400) == 0, log_of(folder)[-3000:]
    rates = [rate for _, rate in scalars(folder / "tensorboard" / "adapter")["train/lr"]]
    assert len(rates) == 4
    assert rates == sorted(rates, reverse=True)
    _check_scores(folder / "merged", held_out)
