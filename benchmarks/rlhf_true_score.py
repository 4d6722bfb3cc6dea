"""Do responses truly become better when a policy learns from a reward model?

On preferences with a known truth: the reward model is trained on labels drawn from true scores, the
policy on the reward model's rewards, on the real stack, and then the true scores of its responses
are measured, which neither has seen. Policy and reward model start from the same careless policy,
and the prompts of the measurements are held out from both.

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

PROMPTS_PER_STEP, RESPONSES_PER_PROMPT = 64, 4  # as the quickstart
LEARNING_RATE, STEPS = 1e-3, 50
ESTIMATORS = ("js", "rloo")
PAIRS, SAMPLES = 64_000, 32  # for the reward model; responses to each held-out prompt
POLL_SECONDS = 0.5
BATCH = 50  # prompts whose responses are sampled together
POLICY = "policy"  # a folder


class TrueScoreSettings(Settings):
    """Train policies with a reward model, and measure the true scores of their responses."""

    out: Path = Field(Path("runs/rlhf-true-score"), description="folder of everything")
    seeds: list[int] = Field([0, 1], min_length=2, description="of prompts and all sampling")


def prepare(folder: Path, train: int = PAIRS, held_out: int = 4_000) -> None:
    """Writes pairs, prompts, and a policy that has imitated careless responses."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = TASK.split(0, HELD_OUT_PROMPTS)
    write_lines(folder / "train.jsonl", preferences.preferences(parts.train, train, 0))
    held = preferences.preferences([parts.held_out], held_out, 0)
    write_lines(folder / "held_out.jsonl", held)
    drawn = draw(parts.train, 6_400, random.Random("prompts/0"))
    write_prompts(folder / "prompts.jsonl", TASK, drawn, "train")
    write_prompts(folder / "prompts_held_out.jsonl", TASK, parts.held_out, "held_out")
    tokenizer = make_tokenizer(TASK)
    policy = make_model(tokenizer, 0)
    imitate(policy, tokenizer, TASK, parts.train, seed=0)
    save(policy, tokenizer, folder / POLICY)


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a JSON file, which is made, and written atomically, if it does not exist."""
    if not path.is_file():
        say(f"{path.parent.name}/{path.stem}", error=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, make())
    return json.loads(path.read_text(encoding="utf-8"))


def program(log: Path, words: str) -> None:
    """Runs one of our programs to its end; no path may have a space."""
    command = [sys.executable, "-m", *words.split()]
    with (
        tempfile.TemporaryDirectory() as cache,
        supervised(command, log, training_environment(cache)) as process,
    ):
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
        if process.returncode:
            raise ProgramFailed(process.returncode, log)


def reward_model(folder: Path) -> dict[str, Any]:
    """Trains `rm/`; its accuracy and calibration on held-out pairs, and that of the true scores."""
    pairs, out = folder / "held_out.jsonl", folder / "rm_eval"
    program(
        folder / "rm.log",
        f"openrlhf_js.cli.rm train --model.model_name_or_path {folder / POLICY} "
        f"--data.dataset {folder / 'train.jsonl'} --data.prompt_key prompt --data.max_len 16 "
        "--train.batch_size 64 --train.micro_batch_size 64 --adam.lr 1e-3 --ds.zero_stage 0 "
        f"--ds.attn_implementation sdpa --ckpt.output_dir {folder / 'rm'} "
        f"--ckpt.path {folder / 'rm.checkpoints'} --js.device cpu",
    )
    program(
        folder / "rm_eval.log",
        f"openrlhf_js.cli.rm eval {pairs} --model {folder / 'rm'} --max_len 16 "
        f"--prompt_key prompt --device cpu --out {out}",
    )
    found = json.loads((out / "evaluation.json").read_text())
    return {
        "accuracy": found["accuracy"],
        "accuracy_of_truth": accuracy_of_truth(pairs),
        "calibration_error": found["calibration"]["error"],
    }


def accuracy_of_truth(path: Path) -> float:
    """The share of a file's labels that its true scores predict; equal scores count half."""
    pairs = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    gaps = [round(pair["chosen_score"] - pair["rejected_score"], 9) for pair in pairs]
    return sum(0.5 if gap == 0 else float(gap > 0) for gap in gaps) / len(gaps)


def train(estimator: str, seed: int, data: Path, folder: Path) -> dict[str, Any]:
    """Leaves the trained policy in `folder/model`; the seconds that it took, start-up included."""
    began = time.monotonic()
    shutil.rmtree(folder)  # of a run that was stopped
    folder.mkdir()
    items = TASK.split(0, HELD_OUT_PROMPTS).train
    drawn = draw(items, STEPS * PROMPTS_PER_STEP, random.Random(f"rlhf/{seed}"))
    write_prompts(folder / "prompts.jsonl", TASK, drawn, "train")
    roles = ("actor", "reward", "ref", "critic")
    program(
        folder / "train.log",
        f"openrlhf_js.cli.train --actor.model_name_or_path {data / POLICY} "
        f"--actor.adam.lr {LEARNING_RATE} --reward.model_name_or_path {data / 'rm'} "
        f"{' '.join(f'--{role}.num_gpus_per_node 1' for role in roles)} "
        "--vllm.num_engines 1 --vllm.enforce_eager "
        f"--algo.advantage.estimator {estimator} --algo.kl.init_coef 0 "
        f"--data.prompt_dataset {folder / 'prompts.jsonl'} --data.max_len {TASK.max_tokens} "
        f"--rollout.batch_size {PROMPTS_PER_STEP} --rollout.micro_batch_size 128 "
        f"--rollout.n_samples_per_prompt {RESPONSES_PER_PROMPT} "
        f"--rollout.max_new_tokens {TASK.max_new_tokens} "
        f"--train.batch_size {PROMPTS_PER_STEP * RESPONSES_PER_PROMPT} "
        f"--train.micro_batch_size 128 --train.seed {seed} "
        "--ds.zero_stage 2 --ds.attn_implementation sdpa "
        f"--ckpt.output_dir {folder / 'model'} --ckpt.path {folder / 'checkpoints'} "
        "--ckpt.best_metric_key none --js.device cpu",
    )
    return {"seconds": time.monotonic() - began}


def measure(policy: Path, seed: int) -> dict[str, Any]:
    """True scores (prompts, responses) of fresh responses to the held-out prompts."""
    held_out, scores = TASK.split(0, HELD_OUT_PROMPTS).held_out, []
    model, generator = load(policy), torch.Generator().manual_seed(seed)
    for start in range(0, len(held_out), BATCH):
        items = held_out[start : start + BATCH]
        prompts = model.prompts([TASK.prompt(item) for item in items])
        drawn = model.sample(prompts, SAMPLES, TASK.max_new_tokens, generator)
        texts = iter(model.texts(drawn))
        for item in items:
            group = (TASK.score(next(texts), TASK.label(item)) for _ in range(SAMPLES))
            scores.append([score.value for score in group])
    return {"true_scores": scores}


def work(settings: TrueScoreSettings) -> None:
    folder = settings.out.absolute()
    prepare_libraries()
    if not (folder / POLICY / "tokenizer_config.json").is_file():  # written last
        prepare(folder)
    quality = kept(folder / "reward_model.json", lambda: reward_model(folder))
    before = kept(folder / f"before-{SAMPLES}.json", lambda: measure(folder / POLICY, 0))
    after: dict[str, list[float]] = {name: [] for name in ESTIMATORS}  # means, by seed
    for seed, name in product(settings.seeds, ESTIMATORS):
        own = folder / f"{name}-{STEPS}-seed{seed}"
        kept(own / "trained.json", partial(train, name, seed, folder, own))
        found = kept(own / f"after-{SAMPLES}.json", partial(measure, own / "model", 1 + seed))
        after[name].append(np.mean(found["true_scores"]))
    accuracy, truth = shown(**quality["accuracy"], digits=3), quality["accuracy_of_truth"]
    print(f"Reward model: accuracy {accuracy}, of the true scores {truth:.3f}")
    print(f"Its calibration error: {quality['calibration_error']:.3f}")
    mean, sd = np.mean(before["true_scores"]), np.std(before["true_scores"], ddof=1)
    print(f"Before: true score {mean:.2f}\n")
    rises = {name: np.array(clustered_mean(np.array(own) - mean)) for name, own in after.items()}
    rows = (
        (name, f"{mean + each[0]:.2f}", shown(*each, digits=2), shown(*each / sd, digits=2))
        for name, each in rises.items()
    )
    print_table(["estimator", "true score", "rise", "rise in sds"], rows)
    gap = shown(*clustered_mean(np.subtract(*after.values())), digits=2)
    print(f"\n{' - '.join(ESTIMATORS)}, true score: {gap}, over {len(settings.seeds)} seeds")


if __name__ == "__main__":
    prog = "benchmarks/rlhf_true_score.py"
    settings = parse(TrueScoreSettings, prog, sys.argv[1:])
    failures = {ProgramFailed: lambda error: f"{error}; see {error.log}"}
    sys.exit(run(prog, partial(work, settings), resumes=True, failures=failures))
