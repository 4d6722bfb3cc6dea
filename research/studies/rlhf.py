"""Data and results of `rlhf.sh`: RLHF on the task `sort`, with a trained reward model.

.venv/bin/python research/studies/rlhf.py FOLDER            # makes the start, pairs and prompts
.venv/bin/python research/studies/rlhf.py FOLDER STUDY      # the study's records, with pass@1
"""

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.prompts import held_out, held_out_pass1, policy_in, warm_start
from baseline_research.study.runs import Run
from baseline_research.tiny.policy import TinyPolicy
from baseline_research.tiny.record import Problem
from baseline_research.tiny.tasks import END, sample_items, sort, write_lines

TASK = "sort"
PAIRS = {"train": 8192, "held_out": 1024}
PROMPTS = 6400  # twice what 50 steps of 64 need


def write_data(settings: InlineStudy) -> None:
    """Writes the initial model, preferences between its responses, and prompts for RLHF."""
    policy = policy_in(warm_start(TASK, settings), settings)
    items = sort.split(settings.start_seed, settings.held_out).train
    for seed, (name, count) in enumerate(PAIRS.items()):
        sampled_items = sample_items(items, count, random.Random(seed))
        problems = [sort.problem(item) for item in sampled_items]
        write_lines(settings.out / f"pairs_{name}.jsonl", pairs(problems, policy, seed))
    prompts = sample_items(items, PROMPTS, random.Random(len(PAIRS)))
    problems_by_file = {
        "train": [sort.problem(item) for item in prompts],
        "held_out": held_out(TASK, settings),
    }
    for name, problems in problems_by_file.items():
        rows = [{"input": problem.prompt} for problem in problems]
        write_lines(settings.out / f"prompts_{name}.jsonl", rows)


def pairs(problems: list[Problem], policy: TinyPolicy, seed: int) -> Iterator[dict[str, str]]:
    """A preference for each problem to which the policy gives two different responses.

    It is drawn from a Bradley-Terry model, with log-odds of 1 for each right token.
    """
    rng = random.Random(seed)
    prompts = policy.prompts([problem.prompt for problem in problems])
    sampled = policy.sample(prompts, 2, sort.max_new_tokens, policy.generator(seed))
    texts = policy.texts(sampled.tokens)
    for place, problem in enumerate(problems):
        chosen, rejected = texts[2 * place : 2 * place + 2]
        advantage = right_tokens(chosen, problem.label) - right_tokens(rejected, problem.label)
        if chosen == rejected:
            continue
        if rng.random() > 1 / (1 + math.exp(-advantage)):
            chosen, rejected = rejected, chosen
        yield {"prompt": problem.prompt, "chosen": chosen, "rejected": rejected}


def right_tokens(response: str, label: str) -> int:
    """The number of digits in their right places, plus one if the end is in its place."""
    digits = response.removesuffix(END)
    right = sum(given == expected for given, expected in zip(digits, label, strict=False))
    return right + (response.endswith(END) and len(digits) == len(label))


def print_records(settings: InlineStudy, study: Path) -> None:
    """Prints the study's records with two results: pass@1, and the score that was trained on."""
    first, *lines = (study / "runs-stack.jsonl").read_text().splitlines()
    print(first)
    for line in lines:
        record = json.loads(line)
        policy = policy_in(study / "stack" / Run.of(record).name / "model", settings)
        passed = held_out_pass1(TASK, settings, policy)
        results = {"task": TASK, "pass1": passed, "score": record["pass1"]}
        print(json.dumps(record | results))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("study", type=Path, nargs="?", help="folder of a study, to print its runs")
    arguments = parser.parse_args()
    settings = InlineStudy(out=arguments.folder)
    if arguments.study:
        print_records(settings, arguments.study)
    else:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write_data(settings)


if __name__ == "__main__":
    main()
