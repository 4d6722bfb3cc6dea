"""Real runs: Ray, DeepSpeed and vLLM on CPU, started as a user starts them."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import Forked
from kit import processes_of, save_policy, scalars, until, write_lines

from baseline_research.tiny.tasks import sort
from openrlhf_js import estimators

PROMPTS = 8
RESPONSES = 4
STEPS = 3
PATIENCE_SECONDS = 600.0  # with what takes one minute on a quiet machine

# Grades without looking right or wrong up: a reward that differs within every prompt group, and
# from prompt to prompt.
GRADER = """
import torch

def reward_func(queries, prompts, labels):
    digits = lambda text: sum(map(int, filter(str.isdigit, text)))
    pairs = zip(queries, prompts)
    rewards = torch.tensor([digits(query) / 10 + digits(prompt) / 2 for query, prompt in pairs])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"graded": torch.ones(1)}}
"""


def read_batches(folder: Path) -> list[dict[str, np.ndarray]]:
    """The rollout batches that a run has saved."""
    files = sorted((folder / "batches").glob("*.npz"))
    return [dict(np.load(file)) for file in files]


@dataclass
class Finished:
    """What a run left: its exit status, what it printed, and where its files are."""

    status: int
    output: str
    folder: Path

    def batches(self) -> list[dict[str, np.ndarray]]:
        return read_batches(self.folder)

    def scalars(self) -> dict[str, list[float]]:
        runs = (self.folder / "tensorboard").iterdir()
        last = max(runs, key=lambda run: run.stat().st_mtime)  # a resumed run has a log of its own
        return {tag: [value for _, value in events] for tag, events in scalars(last).items()}

    def check_remembered(self) -> None:
        """What went to training is what an estimator makes that sees one batch after the other."""
        batches = self.batches()
        live = estimators.LiveEstimator(str(batches[0]["estimator"]))
        for step, batch in enumerate(batches, start=1):
            seen = live.batch(
                batch["rewards"],
                mask=batch["valid"],
                keys=torch.tensor([estimators.key_of(text) for text in batch["prompts"][:, 0]]),
                step=step,
            )
            expected = live.estimate(seen).advantages
            live.learn(seen)
            np.testing.assert_allclose(batch["advantages"], expected.numpy(), atol=1e-5)

    def check_advantages(self, steps: int | None = STEPS) -> None:
        """What went to training is what `estimators` makes of the same rewards.

        `steps` is the number of batches; None where a killed run may have saved any number.
        """
        assert steps in (None, len(self.batches()))
        for batch in self.batches():
            assert (batch["prompts"] == batch["prompts"][:, :1]).all()  # a row is a prompt group
            assert len(set(batch["prompts"][:, 0])) == len(batch["prompts"])
            greedy = batch["greedy_rewards"]
            expected = estimators.advantage(
                str(batch["estimator"]),
                torch.tensor(batch["rewards"]),
                mask=torch.tensor(batch["valid"]),
                greedy_rewards=torch.tensor(greedy) if len(greedy) else None,
            )
            assert expected.abs().max() > 0.01  # a batch that could show a difference
            np.testing.assert_allclose(batch["advantages"], expected.numpy(), atol=1e-6)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough prompts for STEPS rollout batches, with labels of every kind that JSON has."""
    rows = []
    for number in range(10, 10 + PROMPTS * STEPS):
        gold = sort.label(str(number))
        labels = (gold, int(gold), number / 2, {"gold": [gold, None]}, [number], None, True)
        rows.append({"input": sort.prompt(str(number)), "label": labels[number % len(labels)]})
    return write_lines(tmp_path_factory.mktemp("data") / "prompts.jsonl", rows)


class Running:
    """A run that a test started, in a session of its own; by its command line or in a fork."""

    def __init__(self, folder: Path, arguments: list[str], program: Sequence[str]):
        self.folder = folder
        self.log = folder / "log.txt"
        if not program:
            self.process = Forked(folder, self.log, arguments)
            return
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
            )

    def until(
        self, condition: Callable[[], bool], timeout_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits for it while the run goes on."""

        def met() -> bool:
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
            return condition()

        until(met, timeout_seconds)

    def until_batches(self, count: int) -> None:
        """Waits until so many rollout batches have been saved."""
        self.until(lambda: len(list((self.folder / "batches").glob("*.npz"))) >= count)

    def batches(self) -> list[dict[str, np.ndarray]]:
        return read_batches(self.folder)

    def finish(self, timeout_seconds: float = PATIENCE_SECONDS) -> Finished:
        try:
            status = self.process.wait(timeout_seconds)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        return Finished(status, self.log.read_text(errors="replace"), self.folder)


@pytest.fixture
def start(tmp_path: Path, policy: Path, prompts: Path):
    """Starts a small run; flags of the test come last and win.

    A test that kills a whole program gives it, such as PROGRAM; else a run is a fork.
    The log has what a run prints, or with `shown` what its screen shows.
    """

    def run(
        *flags: str,
        grader: str | None = GRADER,
        program: Sequence[str] = (),
        shown: bool = False,
    ) -> Running:
        flags_of_test = {flag for flag in flags if flag.startswith("--")}
        defaults = {
            "--actor.model_name_or_path": policy,
            "--data.prompt_dataset": prompts,
            "--data.label_key": "label",
            "--actor.num_gpus_per_node": 1,
            "--ref.num_gpus_per_node": 1,
            "--reward.num_gpus_per_node": 1,
            "--vllm.num_engines": 1,
            "--rollout.batch_size": PROMPTS,
            "--rollout.n_samples_per_prompt": RESPONSES,
            "--rollout.micro_batch_size": 8,
            "--train.batch_size": PROMPTS * RESPONSES,
            "--train.micro_batch_size": 8,
            "--data.max_len": 32,
            "--rollout.max_new_tokens": sort.max_new_tokens,
            "--algo.kl.init_coef": 0,
            "--actor.adam.lr": 1e-3,
            "--actor.lr_warmup_ratio": 0,
            "--js.device": "cpu",
            "--ckpt.output_dir": tmp_path / "model",
            "--ckpt.path": tmp_path / "checkpoints",
            "--logger.tensorboard_dir": tmp_path / "tensorboard",
            "--js.save_batches": tmp_path / "batches",
        }
        if grader is not None:
            path = tmp_path / "grader.py"
            path.write_text(grader)
            defaults["--reward.remote_url"] = path
        arguments = []
        for flag, value in defaults.items():
            if flag not in flags_of_test:
                arguments += [flag, str(value)]
        if not shown:
            arguments.append("--js.verbose")
        return Running(tmp_path, [*arguments, *flags], program)

    yield run
    left = processes_of(tmp_path)
    for process in left:
        process.kill()
    assert not left, "the run left processes behind"
