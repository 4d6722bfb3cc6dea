"""Claim: responses truly become better when a policy learns from a reward model, `js` as `rloo`.

    python benchmarks/rlhf_true_score.py --out runs/rlhf --seeds 0 1   # ten minutes on two cores

On preferences with a known truth: the reward model is trained on labels drawn from true scores, the
policy on the reward model's rewards, on the real stack, and then the true scores of its responses
are measured, which neither has seen. Policy and reward model start from the same careless policy,
to which the trained ones are compared, and the prompts of the measurements are held out from both.

The rise is that of the mean true score, responses being sampled at temperature 1 before and after.
Intervals are over seeds (Student's t). "In sds": divided by the standard deviation over all
responses before training. The same command resumes, and measures nothing twice.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markdown_table import print_table, shown

from openrlhf_js.common.console import say
from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import Field, Settings, parse, run
from openrlhf_js.stats import clustered_mean
from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.model import imitate, make_model, make_tokenizer, save
from openrlhf_js.tiny.policy import load
from openrlhf_js.tiny.preferences import HELD_OUT_PROMPTS, TASK
from openrlhf_js.tiny.supervise import (
    ProgramFailed,
    prepare_libraries,
    supervised,
    training_environment,
)
from openrlhf_js.tiny.tasks import draw, write_lines, write_prompts

# as the quickstart
PROMPTS_PER_STEP = 64
RESPONSES_PER_PROMPT = 4
LEARNING_RATE = 1e-3
STEPS = 50
ESTIMATORS = ("js", "rloo")
PAIRS = 64_000  # for the reward model
HELD_OUT_PAIRS = 4_000
TRAINING_PROMPTS = 6_400
SAMPLES = 32  # responses to each held-out prompt
PROMPTS_AT_ONCE = 50  # whose responses are sampled together
POLL_SECONDS = 0.5
POLICY = "policy"  # a folder
ROLES = ("actor", "reward", "ref", "critic")

Flags = dict[str, Any]


class TrueScoreSettings(Settings):
    """Train policies with a reward model, and measure the true scores of their responses."""

    out: Path = Field(Path("runs/rlhf-true-score"), description="folder of everything")
    seeds: list[int] = Field([0, 1], min_length=2, description="of prompts and all sampling")


def prepare(folder: Path) -> None:
    """Writes pairs, prompts, and a policy that has imitated careless responses."""
    folder.mkdir(parents=True, exist_ok=True)
    split = TASK.split(0, HELD_OUT_PROMPTS)
    pairs = preferences.preferences(split.train, PAIRS, 0)
    held_out_pairs = preferences.preferences([split.held_out], HELD_OUT_PAIRS, 0)
    write_lines(folder / "train.jsonl", pairs)
    write_lines(folder / "held_out.jsonl", held_out_pairs)
    items = draw(split.train, TRAINING_PROMPTS, random.Random("prompts/0"))
    write_prompts(folder / "prompts.jsonl", TASK, items, "train")
    write_prompts(folder / "prompts_held_out.jsonl", TASK, split.held_out, "held_out")
    tokenizer = make_tokenizer(TASK)
    policy = make_model(tokenizer, 0)
    imitate(policy, tokenizer, TASK, split.train, seed=0)
    save(policy, tokenizer, folder / POLICY)


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a JSON file, which is made, and written atomically, if it does not exist."""
    if not path.is_file():
        say(f"{path.parent.name}/{path.stem}", error=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, make())
    return json.loads(path.read_text(encoding="utf-8"))


def run_program(log: Path, words: list[str], flags: Flags) -> None:
    """Runs one of our programs to its end; a flag whose value is True stands alone."""
    command = [sys.executable, "-m", *words]
    for name, value in flags.items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    with (
        tempfile.TemporaryDirectory() as cache,
        supervised(command, log, training_environment(cache)) as process,
    ):
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
        if process.returncode:
            raise ProgramFailed(process.returncode, log)


def train_reward_model(folder: Path) -> dict[str, Any]:
    """Trains `rm/`; its accuracy and calibration on held-out pairs, and that of the true scores."""
    pairs = folder / "held_out.jsonl"
    evaluation = folder / "rm_eval"
    run_program(
        folder / "rm.log",
        ["openrlhf_js.cli.rm", "train"],
        {
            "model.model_name_or_path": folder / POLICY,
            "data.dataset": folder / "train.jsonl",
            "data.prompt_key": "prompt",
            "data.max_len": 16,
            "train.batch_size": 64,
            "train.micro_batch_size": 64,
            "adam.lr": 1e-3,
            "ds.zero_stage": 0,
            "ds.attn_implementation": "sdpa",
            "ckpt.output_dir": folder / "rm",
            "ckpt.path": folder / "rm.checkpoints",
            "js.device": "cpu",
        },
    )
    run_program(
        folder / "rm_eval.log",
        ["openrlhf_js.cli.rm", "eval", str(pairs)],
        {
            "model": folder / "rm",
            "max_len": 16,
            "prompt_key": "prompt",
            "device": "cpu",
            "out": evaluation,
        },
    )
    results = json.loads((evaluation / "evaluation.json").read_text())
    return {
        "accuracy": results["accuracy"],
        "accuracy_of_truth": accuracy_of_truth(pairs),
        "calibration_error": results["calibration"]["error"],
    }


def accuracy_of_truth(path: Path) -> float:
    """The share of a file's labels that its true scores predict; equal scores count half."""
    points = []
    for line in path.read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        gap = round(pair["chosen_score"] - pair["rejected_score"], 9)
        points.append(0.5 if gap == 0 else float(gap > 0))
    return sum(points) / len(points)


def training_flags(estimator: str, seed: int, data: Path, folder: Path) -> Flags:
    """Of a run on the reward model's rewards."""
    return {
        "actor.model_name_or_path": data / POLICY,
        "actor.adam.lr": LEARNING_RATE,
        "reward.model_name_or_path": data / "rm",
        **{f"{role}.num_gpus_per_node": 1 for role in ROLES},
        "vllm.num_engines": 1,
        "vllm.enforce_eager": True,
        "algo.advantage.estimator": estimator,
        "algo.kl.init_coef": 0,
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_len": TASK.max_tokens,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.micro_batch_size": 128,
        "rollout.n_samples_per_prompt": RESPONSES_PER_PROMPT,
        "rollout.max_new_tokens": TASK.max_new_tokens,
        "train.batch_size": PROMPTS_PER_STEP * RESPONSES_PER_PROMPT,
        "train.micro_batch_size": 128,
        "train.seed": seed,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "ckpt.best_metric_key": "none",
        "js.device": "cpu",
    }


def train(estimator: str, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Leaves the trained policy in `folder/model`; the seconds that it took, start-up included."""
    began = time.monotonic()
    shutil.rmtree(folder)  # of a run that was stopped
    folder.mkdir()
    items = draw(
        TASK.split(0, HELD_OUT_PROMPTS).train,
        STEPS * PROMPTS_PER_STEP,
        random.Random(f"rlhf/{seed}"),
    )
    write_prompts(folder / "prompts.jsonl", TASK, items, "train")
    run_program(
        folder / "train.log",
        ["openrlhf_js.cli.train"],
        training_flags(estimator, seed, data, folder),
    )
    return {"seconds": time.monotonic() - began}


def measure(policy: Path, seed: int) -> dict[str, Any]:
    """True scores (prompts, responses) of fresh responses to the held-out prompts."""
    held_out = TASK.split(0, HELD_OUT_PROMPTS).held_out
    model = load(policy)
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for start in range(0, len(held_out), PROMPTS_AT_ONCE):
        items = held_out[start : start + PROMPTS_AT_ONCE]
        prompts = model.prompts([TASK.prompt(item) for item in items])
        responses = model.sample(prompts, SAMPLES, TASK.max_new_tokens, generator)
        texts = iter(model.texts(responses))
        for item in items:
            label = TASK.label(item)
            scores.append([TASK.score(next(texts), label).value for _ in range(SAMPLES)])
    return {"true_scores": scores}


def work(settings: TrueScoreSettings) -> None:
    folder = settings.out.absolute()
    prepare_libraries()
    if not (folder / POLICY / "tokenizer_config.json").is_file():  # written last
        prepare(folder)
    quality = kept(folder / "reward_model.json", lambda: train_reward_model(folder))
    before = kept(folder / f"before-{SAMPLES}.json", lambda: measure(folder / POLICY, seed=0))
    means_after: dict[str, list[float]] = {name: [] for name in ESTIMATORS}  # by seed
    for seed, name in product(settings.seeds, ESTIMATORS):
        run_folder = folder / f"{name}-{STEPS}-seed{seed}"
        kept(run_folder / "trained.json", partial(train, name, seed, folder, run_folder))
        after = kept(
            run_folder / f"after-{SAMPLES}.json",
            partial(measure, run_folder / "model", 1 + seed),
        )
        means_after[name].append(np.mean(after["true_scores"]))
    print_results(quality, before["true_scores"], means_after)


def print_results(
    quality: dict[str, Any],
    scores_before: list[list[float]],
    means_after: dict[str, list[float]],
) -> None:
    accuracy = shown(**quality["accuracy"], digits=3)
    mean_before = np.mean(scores_before)
    sd_before = np.std(scores_before, ddof=1)
    print(
        f"Reward model: accuracy {accuracy}, of the true scores {quality['accuracy_of_truth']:.3f}"
    )
    print(f"Its calibration error: {quality['calibration_error']:.3f}")
    print(f"Before: true score {mean_before:.2f}\n")
    rows = []
    for name, means in means_after.items():
        value, low, high = clustered_mean(np.array(means) - mean_before)
        rows.append(
            (
                name,
                f"{mean_before + value:.2f}",
                shown(value, low, high, digits=2),
                shown(value / sd_before, low / sd_before, high / sd_before, digits=2),
            )
        )
    print_table(columns=["estimator", "true score", "rise", "rise in sds"], rows=rows)

    first, second = ESTIMATORS
    differences = np.subtract(means_after[first], means_after[second])
    value, low, high = clustered_mean(differences)
    difference = shown(value, low, high, digits=2)
    print(f"\n{first} - {second}, true score: {difference}, over {len(differences)} seeds")


if __name__ == "__main__":
    prog = "benchmarks/rlhf_true_score.py"
    settings = parse(TrueScoreSettings, prog, sys.argv[1:])
    failures = {ProgramFailed: lambda error: f"{error}; see {error.log}"}
    sys.exit(run(prog, partial(work, settings), resumes=True, failures=failures))
