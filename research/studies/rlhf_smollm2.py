"""RLHF of SmolLM2 with a reward model of SmolLM2, in pairs, judged by the rule of the preferences.

.venv/bin/python research/studies/rlhf_smollm2.py                               # the kept records
.venv/bin/python research/studies/rlhf_smollm2.py MODEL OUT [--seeds 0 1 2]     # trains; resumes

SmolLM2 writes sentences with two given words. The rule of the task draws preferences between its
sentences, and `openrlhf-js rm train` trains a Bradley-Terry model on them. Then each estimator
trains on its scores, with a KL term, at the same number of samples. Every ten steps the held-out
sentences are judged twice: by the reward model, the proxy, and by the rule. All estimators have
the same rate and split, which were not chosen.
"""

import argparse
import json
import lzma
import math
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from answer_graders.programs.files import make_folder, write_json
from answer_graders.record import Score
from baseline_research.markdown_table import print_table
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.prompts import (
    held_out,
    policy_in,
    training_batches,
    warm_start,
)
from baseline_research.study.inline.rollout import MEASURING_SEED, sample
from baseline_research.study.inline.training import Training
from baseline_research.study.runs import Run
from baseline_research.study.values import grouped
from baseline_research.tiny.policy import TinyPolicy
from baseline_research.tiny.record import Problem, TinyTask
from baseline_research.tiny.sentences import rule, sentences
from baseline_research.tiny.tasks import sample_items, write_lines
from openrlhf_js.reward_model.model import RewardModel
from paired_eval.stats import clustered_mean

KEPT = Path(__file__).with_suffix(".jsonl.xz")
TASK = "sentences"
PAIRS = {"train": 640, "held_out": 128}
PROMPTS_AT_ONCE = 32
LOG_ODDS = 10.0  # of a preference, for a difference of 1 in the rule
ESTIMATORS = ("rloo", "js_grad", "grpo", "js")
PROMPTS, RESPONSES = 8, 4  # of a step
LEARNING_RATE = 2e-5
STEPS = 20
STEPS_PER_JUDGEMENT = 10
HELD_OUT = 64
HELD_OUT_RESPONSES = 2
KL = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", help="folder of SmolLM2")
    parser.add_argument("out", type=Path, nargs="?", help="folder of pairs, reward model and runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    arguments = parser.parse_args()
    if arguments.model and not arguments.out:
        parser.error("give MODEL and OUT, or neither")
    if arguments.out is None:
        lines = lzma.decompress(KEPT.read_bytes()).decode().splitlines()
        print_results([json.loads(line) for line in lines])
        return
    settings = InlineStudy(
        model=arguments.model,
        tasks=[TASK],
        estimators=list(ESTIMATORS),
        held_out=HELD_OUT,
        steps=STEPS,
        kl=KL,
        out=arguments.out,
    )
    start = warm_start(TASK, settings)
    reward_model = trained_reward_model(start, settings)
    proxy = RewardModel.load(reward_model, dtype="float32")
    policy = policy_in(start, settings)
    at_start = {"step": 0, **judged(policy, policy, scored_by(proxy, policy), settings)}
    make_folder(arguments.out / "runs")
    for seed in arguments.seeds:
        for estimator in arguments.estimators:
            run = run_of(estimator, seed)
            record = arguments.out / "runs" / f"{run.name}.json"
            if not record.is_file():
                result = trained(run, start, settings, proxy)
                result["judgements"].insert(0, at_start)
                write_json(record, {**run._asdict(), **result})
    print_results([json.loads(path.read_text()) for path in arguments.out.glob("runs/*.json")])


def run_of(estimator: str, seed: int) -> Run:
    return Run(
        task=TASK,
        mix="natural",
        prompts=PROMPTS,
        responses=RESPONSES,
        estimator=estimator,
        learning_rate=LEARNING_RATE,
        seed=seed,
    )


# The reward model


def trained_reward_model(start: Path, settings: InlineStudy) -> Path:
    """The folder of the reward model; trains it if it is missing."""
    folder = settings.out / "reward_model"
    if folder.is_dir():
        return folder
    files = {}
    items = sentences.split(settings.start_seed, settings.held_out).train
    for seed, (name, count) in enumerate(PAIRS.items()):
        files[name] = settings.out / f"pairs_{name}.jsonl"
        if not files[name].is_file():
            own = [items[0][seed::2]]  # so that no prompt is in both
            chosen_items = sample_items(own, count, random.Random(seed))
            problems = [sentences.problem(item) for item in chosen_items]
            write_lines(files[name], preferences(problems, policy_in(start, settings), seed))
    program = [sys.executable, "-m", "openrlhf_js.cli.main", "rm"]
    columns = ["prompt_key", "prompt"], ["chosen_key", "chosen"], ["rejected_key", "rejected"]
    train = [*program, "train", "--js.device", "cpu", "--model.model_name_or_path", start]
    train += ["--eval.dataset", files["held_out"]]
    train += ["--data.dataset", files["train"], "--data.max_len", 128, "--data.apply_chat_template"]
    train += ["--train.batch_size", 8, "--train.micro_batch_size", 8, "--train.max_epochs", 2]
    train += ["--adam.lr", 2e-5]
    train += ["--ckpt.path", settings.out / "checkpoints", "--ckpt.output_dir", folder]
    evaluate = [*program, "eval", files["held_out"], "--model", folder, "--apply_chat_template"]
    evaluate += ["--dtype", "float32"]  # bf16 is slow on a CPU
    evaluate += ["--out", folder / "eval"]
    train += [word for name, value in columns for word in (f"--data.{name}", value)]
    evaluate += [word for name, value in columns for word in (f"--{name}", value)]
    for command in (train, evaluate):
        subprocess.run([str(word) for word in command], check=True)
    return folder


def preferences(
    problems: Sequence[Problem], policy: TinyPolicy, seed: int
) -> Iterator[dict[str, Any]]:
    """A preference for each problem to which the policy gives two different responses."""
    rng = random.Random(seed)
    generator = policy.generator(seed)
    for first in range(0, len(problems), PROMPTS_AT_ONCE):
        chunk = problems[first : first + PROMPTS_AT_ONCE]
        prompts = policy.prompts([problem.prompt for problem in chunk])
        sampled = policy.sample(prompts, 2, sentences.max_new_tokens, generator)
        texts = [text_of(response, policy) for response in policy.texts(sampled.tokens)]
        for place, problem in enumerate(chunk):
            chosen, rejected = texts[2 * place : 2 * place + 2]
            if chosen == rejected:
                continue
            advantage = rule(chosen, problem.label) - rule(rejected, problem.label)
            if rng.random() > 1 / (1 + math.exp(-LOG_ODDS * advantage)):
                chosen, rejected = rejected, chosen
            yield {
                "prompt": [{"role": "user", "content": problem.prompt}],
                "chosen": [{"role": "assistant", "content": chosen}],
                "rejected": [{"role": "assistant", "content": rejected}],
            }


def text_of(response: str, policy: TinyPolicy) -> str:
    """A response without its end token."""
    return response.removesuffix(str(policy.tokenizer.eos_token))


# Training on its scores


def proxy_score(response: str, label: str, *, proxy: RewardModel, policy: TinyPolicy) -> Score:
    """The reward model's score of a response."""
    first, second = label.split()
    messages = [
        {"role": "user", "content": sentences.prompt((first, second))},
        {"role": "assistant", "content": text_of(response, policy)},
    ]
    text = policy.tokenizer.apply_chat_template(messages, tokenize=False)
    (value,) = proxy.score([text.rstrip("\n")])
    return Score(value, "wrong", "a score")


def scored_by(proxy: RewardModel, policy: TinyPolicy) -> TinyTask:
    """The task with the reward model's scores as rewards."""
    return replace(sentences, score=partial(proxy_score, proxy=proxy, policy=policy))


def trained(run: Run, start: Path, settings: InlineStudy, proxy: RewardModel) -> dict[str, Any]:
    """Trains, and returns the judgements of the held-out prompts and the entropy of each step."""
    policy = policy_in(start, settings)
    training = Training(run, policy, settings)
    training.task = scored_by(proxy, policy)
    judgements = []
    entropy = []
    for number, problems in enumerate(training_batches(run, settings)):
        step = training.step(number, problems)
        entropy.append(step.entropy)
        if (number + 1) % STEPS_PER_JUDGEMENT == 0:
            judgement = judged(policy, training.start, training.task, settings)
            judgements.append({"step": number + 1, **judgement})
            print(run.name, judgements[-1], flush=True)
    return {"kl": KL, "judgements": judgements, "entropy": entropy}


def judged(
    policy: TinyPolicy, start: TinyPolicy, task: TinyTask, settings: InlineStudy
) -> dict[str, float]:
    """The mean proxy, rule and words of responses to the held-out prompts, and their KL.

    The divergence from the start is in nats per response.
    """
    problems = held_out(TASK, settings)
    generator = policy.generator(MEASURING_SEED)
    rollout = sample(policy, task, problems, HELD_OUT_RESPONSES, generator)
    texts = [text_of(response, policy) for response in policy.texts(rollout.responses)]
    labels = [problem.label for problem in problems for _ in range(HELD_OUT_RESPONSES)]
    with torch.no_grad():
        at_start = start.log_probs(rollout.prompts, rollout.responses)
    divergence = (rollout.log_probs - at_start).where(rollout.valid, 0.0).sum(1).mean()
    return {
        "proxy": rollout.rewards.mean().item(),
        "rule": fmean(map(rule, texts, labels)),
        "words": fmean(len(text.split()) for text in texts),
        "kl": divergence.item(),
    }


def print_results(records: Sequence[dict[str, Any]]) -> None:
    """Both judgements by step, and the differences to rloo where there are several seeds."""
    in_order = sorted(records, key=lambda run: (ESTIMATORS.index(run["estimator"]), run["seed"]))
    rows = []
    for estimator, runs in grouped(in_order, itemgetter("estimator")).items():
        for at_step in zip(*(run["judgements"] for run in runs), strict=True):
            mean = {name: fmean(judgement[name] for judgement in at_step) for name in at_step[0]}
            row = (
                f"`{estimator}`",
                f"{mean['step']:.0f}",
                len(runs),
                f"{mean['proxy']:.3f}",
                f"{mean['rule']:.3f}",
                f"{mean['words']:.1f}",
                f"{round(mean['kl'], 1) + 0:.1f}",  # no -0.0
            )
            rows.append(row)
    print_table(("estimator", "step", "seeds", "proxy", "rule", "words", "kl"), rows)
    if len({run["seed"] for run in records}) > 1:
        print_differences(records)


def print_differences(records: Sequence[dict[str, Any]]) -> None:
    """The differences to rloo on the same seeds, after the last step."""
    last = {(run["estimator"], run["seed"]): run["judgements"][-1] for run in records}
    print()
    rows = []
    for estimator in ESTIMATORS[1:]:
        seeds = [seed for name, seed in last if name == estimator and ("rloo", seed) in last]
        for name in ("proxy", "rule"):
            differences = [last[estimator, seed][name] - last["rloo", seed][name] for seed in seeds]
            if differences:
                over = clustered_mean(differences)
                shown = (f"{value:+.3f}" for value in (over.value, over.low, over.high))
                rows.append((f"`{estimator}`", name, *shown))
    print_table(("estimator", "judged by", "over `rloo`", "low", "high"), rows, text_columns=2)


if __name__ == "__main__":
    main()
