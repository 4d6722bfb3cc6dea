"""The graders as a reward function of TRL's own trainers: a tiny model on the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import pasted
from trl_kit import M, make

from answer_graders.record import Score, scored
from answer_graders.tasks import TASKS
from answer_graders.trainers import CompletionReward

PROMPTS = [f"sort({number})=" for number in range(10, 18)]
SOLUTIONS = ["odd", "even"] * 4


def parity(response: str, label: str) -> Score:
    """Whether the number of digits is odd or even, as the label says."""
    if label not in ("odd", "even"):
        raise ValueError(f"a label is odd or even, got {label!r}")
    odd = sum(map(str.isdigit, response)) % 2 == 1
    return scored("correct" if odd == (label == "odd") else "wrong", response)


@pytest.fixture(autouse=True)
def _a_task_that_a_random_model_solves_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "parity", replace(TASKS["questions"], name="parity", score=parity))


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_trl_trains_on_the_graders_rewards(tmp_path: Path, kind: str) -> None:
    reward = CompletionReward("parity", label="solution")
    columns = {"solution": SOLUTIONS}
    trainer = make(
        tmp_path, kind, reward, prompts=PROMPTS, columns=columns, max_steps=2, logging_steps=1
    )
    trainer.train()
    logs = trainer._logs
    solutions = dict(zip(PROMPTS, SOLUTIONS, strict=True))
    rewards = list(logs["rewards"]["parity"])
    pairs = zip(logs["prompt"], logs["completion"], strict=True)
    expected = [parity(text, solutions[prompt]).value for prompt, text in pairs]
    assert rewards == expected and len(rewards) == 8 * M
    assert 0.2 < sum(rewards) / len(rewards) < 0.8
    last = [row for row in trainer.state.log_history if "reward" in row][-1]
    assert last["rewards/parity/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert last["parity/correct"] == pytest.approx(sum(rewards) / len(rewards))
    assert last["parity/wrong"] == pytest.approx(1 - last["parity/correct"])


def test_a_malformed_label_stops_the_run(tmp_path: Path) -> None:
    columns = {"label": [*SOLUTIONS[:7], "31"]}
    trainer = make(tmp_path, "GRPO", CompletionReward("parity"), prompts=PROMPTS, columns=columns)
    with pytest.raises(ValueError, match="a label is odd or even, got '31'"):
        trainer.train()


def test_trl_hands_over_conversations_as_messages(tmp_path: Path) -> None:
    """By the method that calls reward functions, as the tiny model has no chat template, and by the
    line of the page of rewards."""
    names: dict[str, Any] = dict.fromkeys(["model", "config", "dataset"])
    names["GRPOTrainer"] = lambda model, reward, config, dataset: reward
    exec(pasted("reward_models/README.md", "GRPOTrainer"), names)
    trainer = make(tmp_path, "GRPO", names["trainer"])
    prompt = [{"role": "user", "content": "Half of one?"}]
    texts = [r"\boxed{1/2}", r"\boxed{2}"]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    inputs: list[dict[str, Any]] = [{"prompt": prompt, "solution": "0.5"}] * 2
    found = trainer._calculate_rewards(inputs, [prompt] * 2, completions, [[1], [1]])
    assert found.tolist() == [[1.0], [0.0]]
