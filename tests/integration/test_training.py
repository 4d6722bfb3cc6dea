"""Every way through the plug-in trains on the real stack, and trains what was asked."""

import itertools
import json
import math
import os
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import deaths
import numpy as np
import psutil
import pytest
import torch
from forked import PROGRAM
from kit import processes_of, read_lines, until

from answer_graders.programs.files import read_yaml
from openrlhf_js import estimators
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.trainers.openrlhf.run.record import SETTINGS

pytestmark = pytest.mark.integration

JS_METRICS = tuple(
    estimators.diagnostics("js_grad", torch.rand(4, 3), squared_score_norms=torch.rand(4, 3))
)
RESPONSES, STEPS = 4, 3  # as the fixture `start` has them


MEMORY_FLAGS = (
    *("--advantage_estimator", "js_grad", "--ds.zero_stage", "2", "--actor.lr_warmup_ratio", "0"),
    *("--actor.num_gpus_per_node", "2", "--train.micro_batch_size", str(RESPONSES)),
    *("--js.gradient_variance", "--js.group_micro_batches"),
    *("--train.num_episodes", "1000", "--js.max_steps", "8"),
    *("--train.seed", "7"),
    *("--ckpt.save_steps", "2", "--ckpt.max_num", "9", "--logger.wandb.run_name", "one"),
)


def test_js_grad_is_killed_and_resumes_exactly(start, policy, prompts, tmp_path):
    """Flat flags, two ranks with whole prompt groups, and the gradient's variance.

    The run is killed after seven steps and finds damaged checkpoints when it is started again, so
    that it repeats all but two of them.
    """
    before = _killed_after_seven_steps(start(*MEMORY_FLAGS, "--js.requeued", program=PROGRAM))
    ended = start(*MEMORY_FLAGS, "--js.requeued", program=PROGRAM).finish()
    assert ended.status == 0, ended.output[-3000:]
    assert "the live advantage estimator is js_grad\n" in ended.output
    assert "global_step6 is damaged, global_step2 is resumed" in ended.output
    assert "it/s" not in ended.output  # no progress bars
    record = read_yaml(ended.folder / "tensorboard" / "one" / SETTINGS)["record"]
    outcomes = [earlier["outcome"] for earlier in record["earlier_starts"]]
    assert [*outcomes, record["outcome"]] == [None, "done"]

    batches = ended.batches()  # of both starts
    assert len(batches) == 8
    for batch, expected in zip(batches[2:], before[2:], strict=False):
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)
    for name in ("global_step4", "global_step6"):  # as they were before, and written again
        first = _trained(tmp_path / "before" / name)
        second = _trained(tmp_path / "checkpoints" / "_actor" / name)
        torch.testing.assert_close(second, first, rtol=0, atol=0)
    assert _weights_differ(ended.folder / "model", policy)
    scalars = ended.scalars()
    rows = [_known(row) for row in read_lines(prompts)]
    _check_js_grad(batches, scalars, rows)
    _check_logged(scalars, batches)


def _killed_after_seven_steps(running) -> list[dict[str, np.ndarray]]:
    """Kills the driver, and damages all that it has saved since step 2; returns its batches."""
    running.until_batches(7)
    driver = psutil.Process(running.process.pid)
    priorities = {process.nice() for process in driver.children(recursive=True)}
    assert priorities == {driver.nice()}
    driver.kill()
    running.process.wait()
    until(lambda: not processes_of(running.folder), seconds=180)  # the last are agents of Ray
    before = running.batches()
    for batch in sorted((running.folder / "batches").glob("*"))[2:]:
        batch.unlink()
    for checkpoint in (running.folder / "checkpoints" / "_actor").glob("global_step[4-8]"):
        shutil.copytree(checkpoint, running.folder / "before" / checkpoint.name)
        os.truncate(checkpoint / "mp_rank_00_model_states.pt", 10_000)
    return before


def _trained(checkpoint: Path) -> list:
    """The weights in a checkpoint; and of each rank those in float32, and Adam's averages."""
    found = [torch.load(checkpoint / "mp_rank_00_model_states.pt", weights_only=False)["module"]]
    for rank in range(2):
        path = checkpoint / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        optimizer = torch.load(path, weights_only=False)["optimizer_state_dict"]
        found.append(optimizer["single_partition_of_fp32_groups"])
        found.append(optimizer["base_optimizer_state"]["state"])
    return found


class Prompt(NamedTuple):
    """A row of the prompts' file, as the run knows it."""

    text: str
    label: Any
    datasource: str

    @property
    def key(self) -> int:
        return key_of(self.text, self.label, self.datasource)


def _known(row: dict[str, Any]) -> Prompt:
    """What a run knows a row by: a whole number by its text, and few labels by their datasource."""
    label = row["label"]
    datasource = "default" if type(label) in (str, int) else ""  # others cannot carry it
    return Prompt(row["input"], str(label) if isinstance(label, int) else label, datasource)


def _check_js_grad(
    batches: list[dict], scalars: dict[str, list[float]], rows: list[Prompt]
) -> None:
    """Advantages and figures are those of an estimator that has learned from the batches before."""
    keys_of_texts = {row.text: row.key for row in rows}
    live = estimators.LiveEstimator("js_grad")
    for step, batch in enumerate(batches, start=1):
        norms = batch["squared_score_norms"]
        assert norms.min() > 0
        assert norms.max() > 1.01 * norms.min()
        keys = torch.tensor([keys_of_texts[text] for text in batch["prompts"][:, 0]])
        seen = live.batch(batch["rewards"], squared_score_norms=norms, keys=keys, step=step)
        result = live.estimate(seen)
        np.testing.assert_array_equal(batch["advantages"], result.advantages.float().numpy())
        logged = live.describe(seen, result)
        assert logged.keys() == set(JS_METRICS)
        for name, value in logged.items():
            assert scalars[name][step - 1] == pytest.approx(value, rel=1e-6), name
        live.learn(seen)
    past_slopes = scalars["js/slope_past"]
    assert past_slopes[0] == 0
    assert max(past_slopes[STEPS:]) > 0  # of prompts that have come again
    first_step = estimators.advantage("js_grad", batch["rewards"], squared_score_norms=norms)
    assert (first_step - result.advantages).abs().max() > 1e-3


def _check_logged(scalars: dict[str, list[float]], batches: list[dict]) -> None:
    """The rewards of each step once, and gradient variances that fit the gradients' norms."""
    for name in JS_METRICS:
        assert all(map(math.isfinite, scalars[name])), name
    rewards = [batch["rewards"].mean() for batch in batches]
    np.testing.assert_allclose(scalars["train/reward"], rewards, atol=1e-5)
    variance = scalars["js/gradient_variance"][-STEPS:]
    norm_squared = scalars["js/gradient_norm_squared"][-STEPS:]
    snr = scalars["js/gradient_snr"][-STEPS:]
    norms = scalars["train/actor_grad_norm"][-STEPS:]
    assert all(value > 0 and math.isfinite(value) for value in variance)
    for step in range(STEPS):
        assert snr[step] == pytest.approx(norm_squared[step] / variance[step], rel=1e-5)
        # the two add up to the squared norm of what trained, that is what DeepSpeed would clip by
        together = variance[step] + norm_squared[step]
        assert together == pytest.approx(norms[step] ** 2, rel=1e-4)


def _weights_differ(one, other) -> bool:
    from safetensors.torch import load_file

    first = load_file(one / "model.safetensors")
    second = load_file(other / "model.safetensors")
    return any(not torch.equal(first[name], second[name]) for name in second)


class _Flaky(BaseHTTPRequestHandler):
    """A remote reward model that answers NaN for every fifth request."""

    count = itertools.count(1)

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"][0]
        digits = sum(map(int, filter(str.isdigit, query)))
        reward = math.nan if next(self.count) % 5 == 0 else digits / 10
        body = json.dumps({"rewards": [reward], "scores": [reward], "extra_logs": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_zero_3_on_two_ranks_with_dynamic_batches_and_bad_rewards_masked(start):
    """With spo, whose prompts come again; it ends when a rank dies while both are training."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        running = start(
            *("--algo.advantage.estimator", "spo", "--ds.zero_stage", "3"),
            *("--actor.num_gpus_per_node", "2", "--train.micro_batch_size", "4"),
            *("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "128"),
            *("--algo.advantage.is_correction_level", "token", "--js.on_bad_reward", "mask"),
            *("--reward.remote_url", f"http://127.0.0.1:{server.server_port}/get_reward"),
            *("--train.num_episodes", "1000"),
        )
        running.until_batches(STEPS + 1)
        run = deaths.ends_when_killed(running, "training", "rank")
    finally:
        server.shutdown()
    run.check_remembered()
    batches = run.batches()[:STEPS]
    scalars = run.scalars()
    masked = [int((~batch["valid"]).sum()) for batch in batches]
    assert sum(masked) == 3 * 8 * 4 // 5
    assert scalars["js/masked_responses"][:STEPS] == masked
    assert all(map(math.isfinite, scalars["train/reward"]))
    for batch in batches:
        assert (batch["advantages"][~batch["valid"]] == 0).all()
    # vLLM has the weights that DeepSpeed trains
    assert max(map(abs, scalars["train/vllm_kl"])) < 0.05


def test_a_grader_that_ends_its_process_ends_the_run_with_one_line(start):
    grader = "import os\n\ndef reward_func(queries, prompts, labels):\n    os._exit(3)\n"
    run = start("--algo.advantage.estimator", "js", grader=grader, shown=True).finish()
    assert run.status == 1
    assert re.search(r"^openrlhf_js: vLLM engine 0 .*died while generating$", run.output, re.M)
    assert "RPC" not in run.output


# reward_models/second_try.py with a task that a model which has learned nothing solves at times; an
# actor of the agent's own crashes, which the agent survives.
AGENT = f"""
import os, runpy, types
import ray

@ray.remote(num_cpus=0)
class Tool:
    def use(self):
        os._exit(1)

try:
    ray.get(Tool.remote().use.remote())
except ray.exceptions.RayActorError:
    print("the agent's own actor has crashed", flush=True)

example = runpy.run_path({str(Path(__file__).parents[2] / "reward_models/second_try.py")!r})

def score(response, label):
    return types.SimpleNamespace(value=float(response[:1] in set("01234")))

second_try = example["second_try"]
second_try.__globals__["task_of"] = lambda task: types.SimpleNamespace(
    score=score, check_label=lambda label: label
)
AgentExecutor = second_try("digits", "sort(")
"""


def test_an_agent_of_several_turns_trains_an_adapter_with_one_reward_a_trajectory(start, tmp_path):
    """What else is saved with LoRA, and how it resumes, is in lora_cases.py."""
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    run = start(
        *("--algo.advantage.estimator", "js", "--train.agent_func_path", str(agent)),
        *("--algo.advantage.is_correction_level", "token"),
        *("--ds.zero_stage", "3", "--js.gradient_variance"),
        *("--ds.lora.rank", "8", "--ds.lora.alpha", "8", "--actor.adam.lr", "1e-2"),
        grader=None,
        shown=True,
    ).finish()
    (log,) = (path.read_text() for path in tmp_path.glob("tensorboard/*/train.log"))
    assert run.status == 0, log[-3000:]
    assert "the agent's own actor has crashed" in log
    assert "Global step" not in run.output
    opens_curves = rf"/tensorboard'? --logdir {tmp_path / 'tensorboard'}\n"  # quoted at a space
    assert re.search(opens_curves, run.output)
    assert run.output.endswith(f"openrlhf_js: done; the model is in {tmp_path / 'model'}\n")
    run.check_advantages()
    scalars = run.scalars()
    again = run.batches()[0]["tokens"][0]  # every prompt begins with "sort("
    for batch, tries in zip(run.batches(), scalars["train/tries"], strict=True):
        assert set(batch["rewards"].flat) == {0.0, 1.0}
        begun = int((batch["tokens"] == again).sum())
        assert 1 < tries < 2
        assert begun >= batch["lengths"].size * tries - 1e-3
    # what the agent was told is no action, and vLLM has the adapter that DeepSpeed trains
    assert len(scalars["train/vllm_kl"]) == STEPS
    assert max(map(abs, scalars["train/vllm_kl"])) < 0.05
    assert all(variance > 0 for variance in scalars["js/gradient_variance"])
    assert re.search(r"trainable params: [\d,]+ \|\| all params", log)
    saved = torch.load(tmp_path / "model" / "adapter_model.bin", weights_only=True)
    assert all(weight.abs().max() > 0.01 for name, weight in saved.items() if "lora_B" in name)
