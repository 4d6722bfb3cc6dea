"""`openrlhf-js lab` on the tiny model: vLLM samples as transformers does, and both resume."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kit import save_policy

from baseline_research.lab.pool import open_samples
from baseline_research.tiny.tasks import TASKS, sample_items, write_prompts

PROMPTS = 8
RESPONSES = 32

# "The response begins with a small digit": an untrained model is right now and then.
REWARD = """
def reward_func(queries, prompts, labels):
    said = [query[len(prompt):] for query, prompt in zip(queries, prompts)]
    return {'rewards': [float(each[:1] in tuple('01234')) for each in said]}
"""

# Samples all responses, then again all but the first lines; vLLM is imported once.
TWICE = """
import json, pathlib, sys
from baseline_research.cli import lab
from baseline_research.lab.pool import open_samples

def responses(folder):
    groups = open_samples(folder).response_tokens
    return [[response.tolist() for response in group] for group in groups]

if __name__ == "__main__":
    out, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for engine in ("transformers", "vllm"):
        command = [*words, "--engine", engine, "--out", str(out / engine)]
        assert lab.main(command) == 0
        before = responses(out / engine)
        path = out / engine / "samples" / "responses.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:20]))
        assert lab.main(command) == 0
        after = responses(out / engine)
        (out / f"{engine}.json").write_text(json.dumps([before, after]))
"""


@pytest.mark.integration
def test_vllm_samples_the_same_distribution_and_what_is_missing(tmp_path: Path) -> None:
    """The share of each first token is that of transformers, but for chance."""
    task = TASKS["sort"]
    prompts = sample_items(task.split(0, 8).train, 40, random.Random(0))
    write_prompts(tmp_path / "prompts.jsonl", task, prompts, "train")
    (tmp_path / "reward.py").write_text(REWARD)
    words = [
        *("mse", "--model", str(save_policy(tmp_path / "model")), "--dtype", "float32"),
        *("--prompts", str(tmp_path / "prompts.jsonl"), "--max_new_tokens", "6"),
        *("--reward", str(tmp_path / "reward.py"), "--batches", "10"),
        *("--prompts_count", str(PROMPTS), "--responses", str(RESPONSES)),
    ]
    program = [sys.executable, "-c", TWICE, str(tmp_path), *words]
    run = subprocess.run(program, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    means = []
    for engine, least_same in (("transformers", PROMPTS), ("vllm", PROMPTS - 1)):
        samples = open_samples(tmp_path / engine)
        assert samples.rewards.shape == (PROMPTS, RESPONSES)
        lengths = np.array([[len(each) for each in group] for group in samples.response_tokens])
        assert lengths.min() >= 1 and lengths.max() <= 6
        ends = [[each[-1] == 1 for each in group] for group in samples.response_tokens]
        assert ends == samples.finished.tolist()
        before, after = json.loads((tmp_path / f"{engine}.json").read_text())
        same = sum(one == other for one, other in zip(before, after, strict=True))
        assert same >= least_same  # each response has its seed; in vLLM a logit may round otherwise
        means.append(samples.rewards.mean())
    # two shares of 256 draws each differ by more than 4 standard errors once in 16,000 times
    assert abs(means[0] - means[1]) < 4 * (2 * 0.25 / (PROMPTS * RESPONSES)) ** 0.5
