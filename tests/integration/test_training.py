"""Every way through the plug-in trains on the real stack, and trains what was asked."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

JS_METRICS = (
    "js/shrinkage_mean",
    "js/shrinkage_min",
    "js/shrinkage_max",
    "js/within_variance",
    "js/between_variance",
    "js/all_equal_groups",
    "js/masked_responses",
    "js/baseline_mse_rloo",
    "js/baseline_mse",
)
GRADIENT_METRICS = ("js/gradient_variance", "js/gradient_norm_squared", "js/gradient_snr")
RESPONSES, STEPS = 4, 3  # as the fixture `start` has them


def test_js_with_the_flat_flags_of_older_scripts(start, policy):
    """Two ranks with whole prompt groups in their micro-batches, and the gradient's variance."""
    run = start(
        *("--advantage_estimator", "js", "--zero_stage", "2", "--lr_warmup_ratio", "0"),
        *("--actor.num_gpus_per_node", "2", "--train.micro_batch_size", str(RESPONSES)),
        *("--js.gradient_variance", "--js.group_micro_batches"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    assert "the live advantage estimator is js\n" in run.output
    run.check_advantages()
    scalars = run.scalars()
    for name in JS_METRICS:
        assert all(map(math.isfinite, scalars[f"train/{name}"])), name
    rewards = [batch["rewards"].mean() for batch in run.batches()]
    np.testing.assert_allclose(scalars["train/reward"], rewards, atol=1e-5)
    assert _weights_differ(run.folder / "model", policy)
    variance, norm_squared, snr = (scalars[f"train/{name}"] for name in GRADIENT_METRICS)
    norms = scalars["train/actor_grad_norm"]
    assert len(variance) == len(norm_squared) == len(snr) == len(norms) == STEPS
    assert all(value > 0 and math.isfinite(value) for value in variance)
    for i in range(STEPS):
        assert snr[i] == pytest.approx(norm_squared[i] / variance[i], rel=1e-5)
        # the two add up to the squared norm of what trained, that is what DeepSpeed would clip by
        assert variance[i] + norm_squared[i] == pytest.approx(norms[i] ** 2, rel=1e-4)


def _weights_differ(one, other) -> bool:
    from safetensors.torch import load_file

    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return any(not torch.equal(first[name], second[name]) for name in second)


def test_two_ranks_with_zero_3_and_dynamic_batches(start):
    run = start(
        *("--algo.advantage.estimator", "js", "--ds.zero_stage", "3"),
        *("--actor.num_gpus_per_node", "2", "--train.micro_batch_size", "4"),
        *("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "128"),
        *("--algo.advantage.is_correction_level", "token"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    run.check_advantages()
    log_probability_gap = run.scalars()["train/vllm_kl"]
    assert max(map(abs, log_probability_gap)) < 0.05  # vLLM has the weights that DeepSpeed trains


def test_async_with_remax_and_dynamic_filtering(start):
    run = start(
        *("--algo.advantage.estimator", "remax", "--train.async_enable", "--ds.zero_stage", "1"),
        *("--algo.dynamic_filtering_enable", "--algo.dynamic_filtering_range", "1.01", "100"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    run.check_advantages(steps=None)
    assert "Filtered out" in run.output
    # a group's mean is a multiple of 0.025: none so near the bound that rounding would decide
    assert all((batch["rewards"].mean(1) > 1.01).all() for batch in run.batches())
    assert "the live advantage estimator is remax\n" in run.output
    assert not any("greedy_reward" in tag for tag in run.scalars())


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


def test_a_remote_reward_model_with_bad_rewards_masked(start):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run = start(
            *("--algo.advantage.estimator", "js", "--js.on_bad_reward", "mask"),
            *("--reward.remote_url", f"http://127.0.0.1:{server.server_port}/get_reward"),
        ).finish()
    finally:
        server.shutdown()
    assert run.status == 0, run.output[-3000:]
    run.check_advantages()
    masked = [int((~batch["valid"]).sum()) for batch in run.batches()]
    assert sum(masked) == 3 * 8 * 4 // 5
    assert run.scalars()["train/js/masked_responses"] == masked
    assert all(map(math.isfinite, run.scalars()["train/reward"]))
    for batch in run.batches():
        assert (batch["advantages"][~batch["valid"]] == 0).all()


def test_wrong_flags_and_files_are_answered_at_once_and_all_together(start, tmp_path):
    began = time.monotonic()
    run = start(
        *("--algo.advantage.estimator", "js", "--rollout.n_samples_per_prompt", "4"),
        *("--actor.model_name_or_path", str(tmp_path / "no-model")),
        *("--data.prompt_dataset", str(tmp_path / "no-prompts.jsonl")),
    ).finish(timeout_seconds=30)
    assert run.status == 2
    assert time.monotonic() - began < 10
    assert "no-model" in run.output and "no-prompts.jsonl" in run.output
    assert "Traceback" not in run.output

    run = start("--algo.advantage.estimator", "jss").finish(timeout_seconds=30)
    assert run.status == 2
    assert all(name in run.output for name in ("js_plus", "js_fixed", "remax", "rloo", "gae"))


def test_a_terminated_run_leaves_no_process_behind(start):
    """Ray would take SIGTERM for itself; Ctrl-C is tested with the quickstart."""
    running = start("--algo.advantage.estimator", "js", "--train.num_episodes", "1000")
    running.wait_for("Global step 2")
    os.kill(running.process.pid, signal.SIGTERM)
    run = running.finish(timeout_seconds=60)
    assert run.status == 130
    assert "openrlhf_js: interrupted" in run.output
