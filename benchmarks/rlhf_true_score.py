"""Do responses truly become better when a policy learns from a reward model?

On preferences with a known truth: the reward model is trained on labels drawn from true scores, the
policy on the reward model's rewards, on the real stack, and then the true scores of its responses
are measured, which neither has seen. Policy and reward model start from the same careless policy,
and the prompts of the measurements are held out from both.

The rise is that of the mean true score, responses being sampled at temperature 1 before and after.
A run's interval is over prompts, that of several runs over seeds (Student's t). "In sds": divided
by the standard deviation over all responses before training. True scores and rewards are both in
log-odds of being preferred: where the reward rises more than the true score, the policy has found
what only the reward model likes. The same command resumes, and measures nothing twice.
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.common.console import say, table
from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import Field, Settings, parse, run
from openrlhf_js.reward_model.model import RewardModel
from openrlhf_js.stats import Estimate, clustered_mean, paired_difference
from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.evaluate import grade, sample_texts
from openrlhf_js.tiny.preferences import HELD_OUT_PROMPTS, POLICY, TASK
from openrlhf_js.tiny.quickstart import prepare_libraries, training_environment, write_prompts
from openrlhf_js.tiny.supervise import ProgramFailed, last_lines, supervised
from openrlhf_js.tiny.tasks import draw

PROMPTS_PER_STEP, RESPONSES_PER_PROMPT = 64, 4  # as the quickstart
POLL_SECONDS = 0.5
Floats = NDArray[np.float64]


class TrueScoreSettings(Settings):
    """Train policies with a reward model, and measure the true scores of their responses."""

    out: Path = Field(Path("runs/rlhf-true-score"), description="folder of everything")
    seeds: list[int] = Field([0, 1, 2], description="of prompts, their order and all sampling")
    estimators: list[str] = Field(["js", "rloo"], description="the first is compared to the rest")
    steps: int = Field(50, ge=2, description="of a run")
    learning_rate: float = Field(1e-3, gt=0, description="of the policy")
    kl: float = Field(0.0, ge=0, description="coefficient of the KL term")
    samples: int = Field(32, ge=2, description="responses to each held-out prompt")
    pairs: int = Field(64_000, ge=64, description="for the reward model")


class Run(NamedTuple):
    """One training of the policy, in a folder of its name."""

    estimator: str
    seed: int
    steps: int
    learning_rate: float
    kl: float

    @property
    def name(self) -> str:
        kl = f"-kl{self.kl:g}" if self.kl else ""
        return f"{self.estimator}-{self.steps}x{self.learning_rate:g}{kl}-seed{self.seed}"


class Measured(NamedTuple):
    """Of fresh responses to the held-out prompts, (prompts, responses) each."""

    true_scores: Floats
    rewards: Floats


def arrays(plain: dict[str, Any]) -> Measured:
    return Measured(np.array(plain["true_scores"]), np.array(plain["rewards"]))


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a JSON file, which is made, and written atomically, if it does not exist."""
    if not path.is_file():
        say(f"{path.parent.name}/{path.stem}", error=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, make())
    return json.loads(path.read_text(encoding="utf-8"))


def program(module: str, log: Path, flags: dict[str, Any], *words: str) -> dict[str, float]:
    """Runs one of our programs to its end; its seconds."""
    began = time.monotonic()
    given = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", f"openrlhf_js.cli.{module}", *words, *given]
    with (
        tempfile.TemporaryDirectory() as cache,
        supervised(command, log, training_environment(cache)) as process,
    ):
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
        if process.returncode:
            raise ProgramFailed(process.returncode, log)
    return {"seconds": time.monotonic() - began}


def reward_model(folder: Path) -> dict[str, Any]:
    """Trains `rm/`; its accuracy and calibration on held-out pairs, and that of the true scores."""
    flags = {
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
    }
    program("rm", folder / "rm.log", flags, "train")
    flags = {"model": folder / "rm", "max_len": 16, "prompt_key": "prompt", "device": "cpu"}
    pairs, out = folder / "held_out.jsonl", folder / "rm_eval"
    program("rm", folder / "rm_eval.log", {**flags, "out": out}, "eval", str(pairs))
    found = json.loads((out / "evaluation.json").read_text())
    return {
        "accuracy": found["accuracy"],
        "accuracy_of_truth": preferences.accuracy_of_truth(pairs),
        "calibration_error": found["calibration"]["error"],
    }


def train(run: Run, data: Path, folder: Path) -> dict[str, float]:
    """Leaves the trained policy in `folder/model`; the seconds that it took, start-up included."""
    shutil.rmtree(folder)  # of a run that was stopped
    folder.mkdir()
    items = TASK.split(0, HELD_OUT_PROMPTS).train
    drawn = draw(items, run.steps * PROMPTS_PER_STEP, random.Random(f"rlhf/{run.seed}"))
    write_prompts(folder / "prompts.jsonl", TASK, drawn, "train")
    roles = ("actor", "reward", "ref", "critic")
    flags = {
        "actor.model_name_or_path": data / POLICY,
        "actor.adam.lr": run.learning_rate,
        "reward.model_name_or_path": data / "rm",
        **{f"{role}.num_gpus_per_node": 1 for role in roles},
        "vllm.num_engines": 1,
        "algo.advantage.estimator": run.estimator,
        "algo.kl.init_coef": run.kl,
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_len": TASK.max_tokens,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.n_samples_per_prompt": RESPONSES_PER_PROMPT,
        "rollout.micro_batch_size": 128,
        "rollout.max_new_tokens": TASK.max_new_tokens,
        "train.batch_size": PROMPTS_PER_STEP * RESPONSES_PER_PROMPT,
        "train.micro_batch_size": 128,
        "train.seed": run.seed,
        "ds.zero_stage": 2,
        "ds.attn_implementation": "sdpa",
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "ckpt.best_metric_key": "none",
        "logger.tensorboard_dir": folder / "tensorboard",
        "js.device": "cpu",
    }
    return program("train", folder / "train.log", flags, "--vllm.enforce_eager")


def measure(policy: Path, data: Path, samples: int, seed: int) -> dict[str, Any]:
    """True scores and rewards of fresh responses to the held-out prompts."""
    held_out = TASK.split(0, HELD_OUT_PROMPTS).held_out
    texts = sample_texts(policy, TASK, held_out, samples=samples, seed=seed)
    model = RewardModel.load(data / "rm", max_len=16)
    rewards = [
        model.score([TASK.prompt(item) + text for text in row])
        for item, row in zip(held_out, texts, strict=True)
    ]
    return {"true_scores": grade(TASK, held_out, texts), "rewards": rewards}


def rise(after: Floats, before: Floats) -> Estimate:
    """The difference of the means of (prompts, responses), with an interval over prompts."""
    return paired_difference(after.mean(1), before.mean(1)).estimate


def rises(before: Measured, after: dict[Run, Measured]) -> list[dict[str, Any]]:
    """A row for each run, with intervals over prompts, and for each estimator, over seeds."""
    sd = float(before.true_scores.std(ddof=1))
    found: list[tuple[str, float, Estimate, Estimate]] = []
    for run_, now in after.items():
        scores = rise(now.true_scores, before.true_scores)
        rewards = rise(now.rewards, before.rewards)
        found.append((run_.name, float(now.true_scores.mean()), scores, rewards))
    for name in dict.fromkeys(run_.estimator for run_ in after):
        own = [row for run_, row in zip(after, found, strict=False) if run_.estimator == name]
        if len(own) > 1:
            scores, rewards = (clustered_mean([row[i].value for row in own]) for i in (2, 3))
            mean = float(np.mean([row[1] for row in own]))
            found.append((f"{name}, {len(own)} seeds", mean, scores, rewards))
    return [
        {
            "run": name,
            "true_score": mean,
            "rise": shown(scores),
            "rise_in_sds": shown(Estimate(*(each / sd for each in scores))),
            "rise_of_reward": shown(rewards),
        }
        for name, mean, scores, rewards in found
    ]


def shown(value: Estimate) -> str:
    """Such as 3.10 (3.02 to 3.18)."""
    return f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f})"


def against(after: dict[Run, Measured], estimator: str, other: str) -> str:
    """The difference of the mean true scores of two estimators, by seed where there are several."""
    scores = {(run_.estimator, run_.seed): each.true_scores for run_, each in after.items()}
    seeds = [seed for name, seed in scores if name == estimator and (other, seed) in scores]
    if len(seeds) == 1:
        gap, over = rise(scores[estimator, seeds[0]], scores[other, seeds[0]]), "prompts"
    else:
        gaps = [scores[estimator, s].mean() - scores[other, s].mean() for s in seeds]
        gap, over = clustered_mean(gaps), f"{len(seeds)} seeds"
    return f"{estimator} - {other}, true score: {shown(gap)}, over {over}"


def work(settings: TrueScoreSettings) -> None:
    folder, samples = settings.out.absolute(), settings.samples
    prepare_libraries()
    if not (folder / POLICY / "tokenizer_config.json").is_file():  # written last
        preferences.prepare(folder, train=settings.pairs)
    quality = kept(folder / "reward_model.json", partial(reward_model, folder))
    look = partial(measure, folder / POLICY, folder, samples, seed=0)
    before = arrays(kept(folder / f"before-{samples}.json", look))
    rest = (settings.steps, settings.learning_rate, settings.kl)
    after = {}
    for each in [Run(name, s, *rest) for s in settings.seeds for name in settings.estimators]:
        own = folder / each.name
        kept(own / "trained.json", partial(train, each, folder, own))
        look = partial(measure, own / "model", folder, samples, seed=1 + each.seed)
        after[each] = arrays(kept(own / f"after-{samples}.json", look))
    rows = rises(before, after)
    gaps = [against(after, settings.estimators[0], each) for each in settings.estimators[1:]]
    result = {"settings": settings.manifest(), "reward_model": quality, "rows": rows}
    write_json(folder / "results.json", {**result, "differences": gaps})
    accuracy, truth = Estimate(**quality["accuracy"]), quality["accuracy_of_truth"]
    say(f"Reward model: accuracy {shown(accuracy)}, of the true scores {truth:.3f}")
    best = preferences.true_score("abc", "abc")
    say(f"Before: true score {before.true_scores.mean():.2f}; best possible {best:.2f}")
    table(rows)
    for gap in gaps:
        say(gap)


if __name__ == "__main__":
    failures = {
        ProgramFailed: lambda error: "\n".join(
            [f"{error}; see {error.log}", *last_lines(error.log)]
        )
    }
    prog = "benchmarks/rlhf_true_score.py"
    settings = parse(TrueScoreSettings, prog, sys.argv[1:])
    sys.exit(run(prog, partial(work, settings), resumes=True, failures=failures))
