"""Arena-Hard on this machine alone: made-up questions, a tiny model, and a scripted judge.

`bash eval/arena_hard.sh --example` runs this, in under a minute and without a key, a GPU or a
network. It writes questions and a baseline's answers, trains a tiny model for seconds, serves a
judge, and runs the shell file on them as on any checkpoint. The scores mean nothing, but
everything behind them can be looked at.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripted_server import Answer, Served, answer_row, reply, running, write_lines

ROOT = Path(__file__).parents[1]
BENCH = "example"
BASELINE = "careless"
JUDGE = "scripted-judge"
QUESTIONS = 40
STEPS = 60
WIDTH = 64
PARTS = re.compile(r"<(?:request|answer_[AB])>\n(.*?)\n</", re.DOTALL)


def judge(request: dict[str, Any], number: int) -> Answer:
    """Compares the shares of digits in the right place; reads the answers from our own prompt."""
    question, answer_a, answer_b = PARTS.findall(request["messages"][-1]["content"])
    expected = sorted(re.sub(r"\D", "", question))
    a = share_in_place(answer_a, expected)
    b = share_in_place(answer_b, expected)
    verdict = "A=B"
    if a != b:
        verdict = "A>B" if a > b else "B>A"
    if abs(a - b) > 0.5:
        verdict = verdict.replace(">", ">>")
    words = f"- **A**: {a:.0%} of the digits are right\n- **B**: {b:.0%} are\n\n[[{verdict}]]"
    return reply(words, tokens=40, asked=300)


def share_in_place(text: str, expected: list[str]) -> float:
    """The share of the digits that a text has in the right place."""
    numbers = re.findall(r"\d+", text)
    digits = numbers[0] if numbers else ""
    right = sum(map(str.__eq__, digits, expected))
    return right / max(len(digits), len(expected))


def answer(digits: str, rng: random.Random) -> str:
    """A careless answer: right half of the time, and in Markdown."""
    ordered = sorted(digits) if rng.random() < 0.5 else rng.sample(digits, len(digits))
    return f"The digits **in order**:\n\n```text\n{''.join(ordered)}\n```"


def write(folder: Path) -> None:
    """Writes questions, the baseline's answers, the judge's settings, and a tiny model."""
    from baseline_research.tiny import model
    from baseline_research.tiny.tasks import sort

    split = sort.split(0, QUESTIONS)
    rng = random.Random(0)
    bench = folder / "data" / BENCH
    questions = []
    answers = []
    for number, digits in enumerate(split.held_out):
        question = {
            "uid": f"q{number}",
            "category": "sorting",
            "prompt": sort.prompt(digits),
        }
        questions.append(question)
        answers.append(answer_row(f"q{number}", BASELINE, answer(digits, rng)))
    write_lines(bench / "question.jsonl", questions)
    write_lines(bench / "model_answer" / f"{BASELINE}.jsonl", answers)
    (folder / "judge.yaml").write_text(f"judge_model: {JUDGE}\n")
    tokenizer = model.make_tokenizer(sort.tokens)
    policy = model.make_model(tokenizer, 0, WIDTH, 1)
    briefly = replace(sort, warm_start_steps=STEPS)
    model.imitate(policy, tokenizer, briefly, split.train, seed=0, batch_size=32)
    model.save(policy, tokenizer, folder / "tiny")


def main(folder: Path) -> int:
    """Makes the example in a folder, or resumes it, and returns the shell file's exit status."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads slow so small a model down
    if not (folder / "tiny/tokenizer_config.json").is_file():  # written last
        write(folder)
    served = Served(judge, (JUDGE,))
    with running(served):
        variables = {
            "BENCH": BENCH,
            "DATA": str(folder / "data"),
            "BASELINE": BASELINE,
            "NAME": "tiny",
            "SETTINGS": str(folder / "judge.yaml"),
            "JUDGE_URL": served.url,
            "JUDGE_KEY": "none",
            "BUDGET": "none",
            "MAX_NEW_TOKENS": "8",
            "OUT": str(folder),
        }
        command = ["bash", str(ROOT / "eval" / "arena_hard.sh"), str(folder / "tiny")]
        return subprocess.run(command, env={**os.environ, **variables}).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="what is written, and resumed")
    sys.exit(main(parser.parse_args().folder))
