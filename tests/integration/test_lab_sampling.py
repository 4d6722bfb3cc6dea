"""`openrlhf-js lab` on the tiny model: killed in the middle of sampling, it resumes."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit import save_policy

from openrlhf_js.cli import lab
from openrlhf_js.lab.pool import Samples, open_samples
from openrlhf_js.tiny.tasks import TASKS, sample_items, write_prompts

PROMPTS = 8
RESPONSES = 32


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untrained tiny model and prompts of its task."""
    folder = tmp_path_factory.mktemp("tiny")
    task = TASKS["sort"]
    split = task.split(0, 8)
    write_prompts(
        folder / "prompts.jsonl", task, sample_items(split.train, 40, random.Random(0)), "train"
    )
    save_policy(folder / "model")
    # "The response begins with a small digit": an untrained model is right now and then.
    (folder / "reward.py").write_text(
        "def reward_func(queries, prompts, labels):\n"
        "    said = [query[len(prompt):] for query, prompt in zip(queries, prompts)]\n"
        "    return {'rewards': [float(each[:1] in tuple('01234')) for each in said]}\n"
    )
    return folder


def command(given: Path, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "openrlhf_js.cli.main", "lab", "mse", "--out", str(out)),
        *("--model", str(given / "model"), "--prompts", str(given / "prompts.jsonl")),
        *("--reward", str(given / "reward.py"), "--max_new_tokens", "6", "--batches", "10"),
        *("--prompts_count", str(PROMPTS), "--responses", str(RESPONSES), *more),
    ]


# Samples all responses, then again all but the first lines; vLLM is imported once.
TWICE = """
import json, pathlib, sys
from openrlhf_js.cli import lab
from openrlhf_js.lab.pool import open_samples

if __name__ == "__main__":
    path, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
    assert lab.main(words) == 0
    groups = open_samples(path.parents[1]).response_tokens
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:20]))
    assert lab.main(words) == 0
    print(json.dumps([[each.tolist() for each in group] for group in groups]))
"""


def responses(samples: Samples) -> list[list[list[int]]]:
    return [[each.tolist() for each in group] for group in samples.response_tokens]


def sampled(out: Path) -> int:
    """Responses on disk."""
    path = out / "samples" / "responses.jsonl"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def kill(words: list[str], out: Path, after: int) -> None:
    """Kills the program once so many responses are there."""
    with subprocess.Popen(words) as process:
        while sampled(out) < after:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.005)
        process.kill()


@pytest.mark.integration
def test_killed_and_resumed(given: Path, tmp_path: Path) -> None:
    small = ["--batch_size", "8"]  # 33 batches
    broken = tmp_path / "broken"
    whole = tmp_path / "whole"
    kill(command(given, broken, *small), broken, 56)
    assert 56 <= sampled(broken) < 140
    for out in (broken, whole):
        assert lab.main(command(given, out, *small)[4:]) == 0  # in this process
    first = open_samples(broken)
    second = open_samples(whole)
    assert responses(first) == responses(second)
    assert first.rewards.tolist() == second.rewards.tolist()


@pytest.mark.integration
def test_vllm_samples_the_same_distribution(given: Path, tmp_path: Path) -> None:
    """The share of each first token is that of transformers, but for chance."""
    pytest.importorskip("vllm")
    words = {
        engine: command(given, tmp_path / engine, "--engine", engine, "--dtype", "float32")[4:]
        for engine in ("transformers", "vllm")
    }
    assert lab.main(words["transformers"]) == 0
    again = str(tmp_path / "vllm" / "samples" / "responses.jsonl")
    program = [sys.executable, "-c", TWICE, again, *words["vllm"]]
    twice = subprocess.run(program, capture_output=True, text=True, timeout=250)
    assert twice.returncode == 0, twice.stderr
    counts = []
    for engine in words:
        found = open_samples(tmp_path / engine)
        assert found.rewards.shape == (PROMPTS, RESPONSES)
        assert all(1 <= len(each) <= 6 for group in found.response_tokens for each in group)
        ends = [each[-1] == 1 for group in found.response_tokens for each in group]
        assert ends == found.finished.ravel().tolist()
        counts.append(found.rewards.mean())
    before = json.loads(twice.stdout.splitlines()[-1])
    same = sum(a == b for a, b in zip(before, responses(found), strict=True))
    assert same >= PROMPTS - 1  # each response has a seed of its own; a logit may round otherwise
    # two shares of 512 draws each differ by more than 4 standard errors once in 16,000 times
    assert abs(counts[0] - counts[1]) < 4 * (2 * 0.25 / (PROMPTS * RESPONSES)) ** 0.5
