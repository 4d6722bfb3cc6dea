"""How near every estimator's gradients are to the true ones, by task, mix, n and m.

.venv/bin/python research/studies/gradients.py OUT [--model FOLDER]     # resumes

Writes OUT/gradients.csv.xz, from which `pictures.py` makes the heat map and the table.
"""

import argparse
import json
from pathlib import Path
from random import Random

import pandas as pd

from answer_graders.tasks.questions import WORDS
from baseline_research.cli import lab
from baseline_research.lab.pool import open_samples
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.prompts import (
    policy_in,
    training_batches,
    training_problems,
    warm_start,
)
from baseline_research.study.inline.training import Training
from baseline_research.study.runs import Run
from baseline_research.study.tables import MIXES_EXPLAINED
from baseline_research.tiny.tasks import TASKS, write_lines

HERE = Path(__file__).parent
REWARDS = HERE / "gradient_rewards.py"
ESTIMATORS = ("js", "js_grad", "bloo", "no_baseline", "weighted_rloo", "opo", "ebpo")
TINY = ("sort", "countdown", "maze", "reverse")
MIXES = tuple(MIXES_EXPLAINED)
PROMPTS = 128
RESPONSES = 64  # per prompt
BATCH_PROMPTS = (8, 16, 64)
BATCH_RESPONSES = (2, 4, 8, 16)
BATCHES = 500
QUESTIONS = "questions"  # the task of SmolLM2
PRETRAINED_PROMPTS = 64
PRETRAINED_RESPONSES = 32
PRETRAINED_BATCH_PROMPTS = (8, 16, 32)
PRETRAINED_BATCH_RESPONSES = (2, 4, 8)
PRETRAINED_STEPS = (0, 30, 100)  # steps of rloo before the gradients are measured
STORY = "Write a short story about a {} and a {}. Mention a {}."
STORIES = 32
STORY_RESPONSES = 16
STORY_TOKENS = 192  # at most, per response
STORY_BATCH_PROMPTS = (8, 16)
POOL = ("task", "prompts_are", "steps")
COLUMNS = (*POOL, "n", "m", "estimator", "quantity")
COLUMNS += ("value", "low", "high")


def measure_tiny(out: Path) -> list[dict]:
    """The rows of every tiny task and mix."""
    rows = []
    settings = InlineStudy(out=out, tasks=list(TINY), mixes=list(MIXES), steps=60)
    for task in TINY:
        start = warm_start(task, settings)
        for mix in MIXES:
            folder = out / f"{task}-{mix}"
            prompts = folder / "prompts.jsonl"
            if not prompts.is_file():
                write_prompts(prompts, task, mix, settings)
            sample = sample_words(start, prompts, task)
            found = measure(folder, sample, BATCH_PROMPTS, BATCH_RESPONSES)
            rows += [{"task": task, "prompts_are": mix, "steps": 0, **row} for row in found]
    return rows


def sample_words(start: Path, prompts: Path, task: str) -> list:
    """The flags that sample the responses of a tiny task."""
    sample = ["--model", start, "--prompts", prompts, "--reward", REWARDS]
    sample += ["--prompts_count", PROMPTS, "--responses", RESPONSES]
    return [*sample, "--max_new_tokens", TASKS[task].max_new_tokens]


def write_prompts(
    path: Path, task: str, mix: str, settings: InlineStudy, count: int = PROMPTS
) -> None:
    """Writes the first distinct prompts of a study's run, with their labels."""
    run = run_of(task, mix, prompts=64)
    problems = {problem.prompt: problem for problem in training_problems(run, settings)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(
        path,
        (
            {"input": problem.prompt, "label": problem.label, "datasource": task}
            for problem in list(problems.values())[:count]
        ),
    )


def run_of(task: str, mix: str, prompts: int) -> Run:
    return Run(
        task=task,
        mix=mix,
        prompts=prompts,
        responses=2,
        estimator="rloo",
        learning_rate=1e-5,
        seed=0,
    )


def measure_pretrained(out: Path, model: Path) -> list[dict]:
    """The rows of SmolLM2 after each number of rloo steps in PRETRAINED_STEPS."""
    rows = []
    settings = InlineStudy(
        out=out, tasks=[QUESTIONS], model=model, steps=max(PRETRAINED_STEPS), dtype="auto"
    )
    prompts = out / "questions.jsonl"
    if not prompts.is_file():
        write_prompts(prompts, QUESTIONS, "natural", settings)
    run = run_of(QUESTIONS, "natural", prompts=16)  # x 2 responses
    for steps, policy in trained(out, run, settings, PRETRAINED_STEPS).items():
        folder = out / f"{QUESTIONS}-{steps}"
        sample = ["--model", policy, "--prompts", prompts, "--apply_chat_template"]
        sample += ["--max_new_tokens", TASKS[QUESTIONS].max_new_tokens]
        sample += ["--prompts_count", PRETRAINED_PROMPTS, "--responses", PRETRAINED_RESPONSES]
        found = measure(folder, sample, PRETRAINED_BATCH_PROMPTS, PRETRAINED_BATCH_RESPONSES)
        rows += [
            {"task": "SmolLM2", "prompts_are": "natural", "steps": steps, **row} for row in found
        ]
    return rows


def trained(out: Path, run: Run, settings: InlineStudy, wanted: tuple[int, ...]) -> dict[int, Path]:
    """The policies' folders by number of the run's steps; 0: warm start."""
    start = warm_start(run.task, settings, lambda step: print(f"imitation, step {step}"))
    folders = {steps: out / f"policy-{steps}" if steps else start for steps in wanted}
    if all(folder.is_dir() for folder in folders.values()):
        return folders
    policy = policy_in(start, settings)
    training = Training(run, policy, settings)
    for number, problems in enumerate(training_batches(run, settings)[: max(folders)]):
        step = training.step(number, problems)
        print(f"rloo, step {number + 1} of {max(folders)}, reward {step.reward:.2f}", flush=True)
        if number + 1 in folders:
            policy.model.save_pretrained(folders[number + 1])
            policy.tokenizer.save_pretrained(folders[number + 1])
    return folders


def measure_stories(out: Path, model: Path) -> list[dict]:
    """The rows of SmolLM2 as released, on responses of some 150 tokens."""
    prompts = out / "stories.jsonl"
    if not prompts.is_file():
        random = Random(0)
        drawn = [random.sample(WORDS.split(), 3) for _ in range(STORIES)]
        rows = [
            {"input": STORY.format(*words), "label": words[-1], "datasource": "stories"}
            for words in drawn
        ]
        write_lines(prompts, rows)
    sample = ["--model", model, "--prompts", prompts, "--reward", REWARDS, "--apply_chat_template"]
    sample += ["--max_new_tokens", STORY_TOKENS]
    sample += ["--prompts_count", STORIES, "--responses", STORY_RESPONSES]
    found = measure(out / "stories", sample, STORY_BATCH_PROMPTS, PRETRAINED_BATCH_RESPONSES)
    return [{"task": "stories", "prompts_are": "natural", "steps": 0, **row} for row in found]


def measure(
    folder: Path,
    sample: list,
    sizes: tuple[int, ...],
    responses: tuple[int, ...],
    baselines: tuple[str, ...] = ESTIMATORS,
) -> list[dict]:
    """Rows of `lab gradient` for every batch size; responses are sampled once."""
    rows = []
    for prompts in sizes:
        path = folder / f"gradient-{prompts}.json"
        if not path.is_file():
            words = [*sample, "--out", folder, "--batch_prompts", prompts, "--batches", BATCHES]
            words += ["--m", *responses, "--baselines", *baselines]
            if lab.main(["gradient", *map(str, words)]):
                raise SystemExit(1)
            (folder / "gradient.json").rename(path)
        result = json.loads(path.read_text())
        rows += [{"n": prompts, **row} for row in result["rows"]]
    for name, ratio in result.get("right_over_wrong", {}).items():
        rows.append({"quantity": f"{name}_right_over_wrong", "value": ratio})
    rows.append({"quantity": "mean_reward", "value": open_samples(folder).rewards.mean()})
    return rows


def write(rows: list[dict], path: Path) -> None:
    """Adds rows to a file, in place of earlier ones of the same pools."""
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(("n", "m"), "Int64"))
    if path.is_file():
        earlier = read(path)
        measured = set(table[list(POOL)].itertuples(index=False))
        kept = [pool not in measured for pool in earlier[list(POOL)].itertuples(index=False)]
        table = pd.concat([earlier[kept], table])
    table.to_csv(path, index=False)


def read(path: Path) -> pd.DataFrame:
    """The rows of a file: one for each setting, estimator, n, m and quantity."""
    return pd.read_csv(path, dtype=dict.fromkeys(("n", "m"), "Int64"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, help="of SmolLM2, beside the tiny tasks")
    arguments = parser.parse_args()
    rows = measure_tiny(arguments.out)
    if arguments.model:
        rows += measure_pretrained(arguments.out, arguments.model)
        rows += measure_stories(arguments.out, arguments.model)
    write(rows, arguments.out / "gradients.csv.xz")


if __name__ == "__main__":
    main()
