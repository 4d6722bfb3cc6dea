"""RLHF on the rewards of a model, in Ray and served: every reward is the model's own."""

import multiprocessing
import random
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import deaths
import numpy as np
import pytest
import torch
from kit import free_port, save_scorer, until, write_lines

from baseline_research.tiny.tasks import sort
from openrlhf_js import estimators
from openrlhf_js.cli import rm
from openrlhf_js.reward_model.model import RewardModel

pytestmark = pytest.mark.integration

PROMPTS, RESPONSES, STEPS = 8, 4, 3  # as the fixture `start` has them


def texts_of(batch: dict[str, np.ndarray], folder: Path) -> list[str]:
    """Prompts with their responses, decoded as the run decoded them for a reward server."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pieces = np.split(batch["tokens"], np.cumsum(batch["lengths"].reshape(-1))[:-1])
    texts = [tokenizer.decode(each.tolist(), skip_special_tokens=False) for each in pieces]
    for text, prompt in zip(texts, batch["prompts"].reshape(-1), strict=True):
        assert text.startswith(prompt)
    return texts


def scores(folder: Path, batch: dict[str, np.ndarray], **how: bool) -> np.ndarray:
    """What the model in `folder` says about a batch, in this process."""
    scorer = RewardModel.load(folder, dtype="float32", **how)
    return np.array(scorer.score(texts_of(batch, folder))).reshape(batch["rewards"].shape)


def test_a_model_in_ray_normalises_and_penalties_come_before_the_baseline(start, tmp_path):
    """The run ends when its engine dies while it gets weights."""
    folder = save_scorer(tmp_path / "reward-model", seed=1, mean=0.5, std=0.25)
    running = start(
        *("--algo.advantage.estimator", "js", "--reward.clip_range", "-0.5", "0.5"),
        *("--reward.model_name_or_path", str(folder), "--reward.normalize_enable"),
        *("--reward.stop_properly_penalty_coef", "-0.5", "--algo.kl.init_coef", "0.1"),
        *("--ds.zero_stage", "0", "--train.num_episodes", "1000"),
        grader=None,
    )
    running.until_batches(STEPS + 1)
    run = deaths.ends_when_killed(running, "sending weights", "engine")
    batches = run.batches()[:STEPS]
    for batch in batches:
        # in Ray the model gets the policy's own tokens: where a response was cut, no end is added
        ended = np.array([text.endswith("<eos>") for text in texts_of(batch, folder)])
        ended = ended.reshape(batch["rewards"].shape)
        expected = scores(folder, batch, normalize=True)
        assert ended.any()
        # bfloat16, with rewards of up to 20; without normalisation they would be a quarter of that
        np.testing.assert_allclose(batch["rewards"][ended], expected[ended], atol=1)
        assert np.abs(batch["rewards"]).max() > 0.5  # rewards are not clipped
        assert (batch["rewards"][~ended] == -0.5).all()
        assert not ended.all()
    # before the first update the policy is its own reference, so KL is nothing
    assert run.scalars()["train/kl"][0] == pytest.approx(0, abs=1e-3)
    raw = estimators.advantage("js", torch.tensor(batches[0]["rewards"])).numpy()
    assert np.abs(raw).max() > 0.5
    np.testing.assert_allclose(batches[0]["advantages"], raw.clip(-0.5, 0.5), atol=2e-3)


class Served:
    """`openrlhf-js rm serve` in forks, since imports take seconds: it can be killed and be back."""

    def __init__(self, folder: Path):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/get_reward"
        model = ["--reward.model_name_or_path", str(folder), "--ds.param_dtype", "float32"]
        self._words = ["serve", *model, "--port", str(port), "--device", "cpu"]
        self.start()
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)

    def _serve(self) -> None:
        torch.set_num_threads(1)  # the others do not survive a fork
        rm.main(self._words)

    def start(self) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=self._serve, daemon=True)
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


OWN_BASELINE = """
import torch

class LastTime:
    def __init__(self):
        self.seen = {}

    def baseline(self, batch):
        before = [self.seen.get(key, 0.5) for key in batch.keys.tolist()]
        return torch.tensor(before)[:, None].expand_as(batch.rewards)

    def learn(self, batch):
        self.seen.update(zip(batch.keys.tolist(), batch.statistics.prompt_mean.tolist()))
"""


STOP = "4"
STEPS_WITH_KILLS = 4
KILLS = 2


def test_kills_of_served_models_lose_no_step_and_make_no_reward_wrong(start, tmp_path):
    """One model on two servers, of which one is killed, and then both.

    Responses end at a stop string. The baseline is the user's own, which remembers. Policy and
    engine are colocated; the run ends when its engine dies while it generates.
    """
    own = tmp_path / "mine.py"
    own.write_text(OWN_BASELINE)
    scorer = save_scorer(tmp_path / "scorer")
    numbers = [str(number) for number in range(10, 10 + PROMPTS * STEPS_WITH_KILLS)]
    rows = [{"input": sort.prompt(number), "label": sort.label(number)} for number in numbers]
    data = write_lines(tmp_path / "many.jsonl", rows)
    with ExitStack() as stack:
        servers = [Served(scorer), Served(scorer)]
        for server in servers:
            stack.callback(server.kill)
        running = start(
            *("--algo.advantage.estimator", f"{own}:LastTime", "--data.prompt_dataset", str(data)),
            *("--reward.remote_url", f"{servers[0].url},{servers[1].url}"),
            *("--rollout.stop", STOP, "--train.num_episodes", "1000"),
            "--train.colocate_all",
            grader=None,
        )
        _kill_servers(running, servers)
        running.until_batches(STEPS_WITH_KILLS + 1)
        run = deaths.ends_when_killed(running, "generating", "engine")
    assert "does not answer" in run.output
    assert "answers again" in run.output
    run.check_remembered()
    batches = run.batches()[:STEPS_WITH_KILLS]
    trained = [prompt for batch in batches for prompt in batch["prompts"][:, 0]]
    assert sorted(trained) == sorted(row["input"] for row in rows)
    for batch in batches:
        assert batch["valid"].all()
        np.testing.assert_allclose(batch["rewards"], scores(scorer, batch), atol=1e-4)
    _check_stops([text for batch in batches for text in texts_of(batch, scorer)])


def _check_stops(texts: list[str]) -> None:
    """Each response ends with the first stop string that is not its first token."""
    responses = [text.partition("=")[2] for text in texts]
    assert not any(STOP in response[1:-1] for response in responses)
    assert any(response[1:].endswith(STOP) for response in responses)


def _kill_servers(running, servers):
    """Kills one server and then both, in turn, each in the middle of a step, and starts them."""
    draw = random.Random(0)
    for kill in range(KILLS):
        running.until_batches(kill + 1)
        time.sleep(draw.uniform(0, 0.5))
        down = servers if kill % 2 else [draw.choice(servers)]
        for server in down:
            server.kill()
        time.sleep(draw.uniform(0.2, 1.0))
        if down == servers:  # until a response has asked for its reward
            running.until(lambda: "does not answer" in running.log.read_text(errors="replace"))
        assert running.process.poll() is None  # all of it happens in mid-run
        for server in down:
            server.start()
