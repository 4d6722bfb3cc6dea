"""The gradient variance is that of plain PyTorch, on real DeepSpeed engines."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from openrlhf_js.plugin.errors import UpstreamMismatch
from openrlhf_js.plugin.gradient_variance import PIECE_ELEMENTS, GradientVariance, squared_norm

RANKS_PROGRAM = Path(__file__).with_name("gradient_variance_ranks.py")
IN_EVERY_STAGE = {"plain", "tied-checkpointing", "lora", "dynamic"}


# --- real engines -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """ranks -> what every rank printed, one dict a case."""
    folder = tmp_path_factory.mktemp("ranks")
    process = subprocess.Popen([sys.executable, RANKS_PROGRAM, folder], start_new_session=True)
    try:
        status = process.wait(500)
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    said = {path: path.read_text(errors="replace") for path in sorted(folder.glob("rank *"))}
    assert status == 0, "\n".join(f"{path.name}: {text[-2000:]}" for path, text in said.items())
    results: dict[int, list[list[dict]]] = {1: [], 2: []}
    for path, text in said.items():
        lines = [line for line in text.splitlines() if "FOUND" in line]
        results[int(path.name[-1])].append([json.loads(line.split("FOUND")[1]) for line in lines])
    return results


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_it_is_that_of_explicit_gradients(found, ranks, stage):
    per_rank = [[case for case in cases if case["stage"] == stage] for cases in found[ranks]]
    assert {case["case"] for case in per_rank[0]} >= IN_EVERY_STAGE
    assert per_rank == [per_rank[0]] * ranks
    for case in per_rank[0]:
        name, measured, expected = case["case"], case["measured"], case["expected"]
        variance, square = measured["js/gradient_variance"], measured["js/gradient_norm_squared"]
        assert expected["equal"] == ("dynamic" not in name), name
        relative = 1e-3 if "bf16" in name else 1e-5
        assert variance == pytest.approx(expected["variance"], rel=relative), name
        # a difference of two squared norms of about the variance's size
        allowed = relative * expected["variance"]
        assert square == pytest.approx(expected["mean_square"], abs=allowed), name
        assert measured["js/gradient_snr"] == square / variance
        # in responses; the two measurements weigh nearly the same
        if "js/gradient_noise_scale" in measured:
            scale = measured["js/gradient_noise_scale"]
            assert scale == pytest.approx(expected["noise_scale"], rel=100 * relative), name
        else:
            assert expected["noise_scale"] < 0, name


# --- the recorder, on an engine that only counts ------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def make_trainer(model, loss, norm, micro_batches: int = 2, stage: int = 2):
    """A trainer that steps its engine after every so many micro-batches."""
    engine = SimpleNamespace(
        module=model,
        global_steps=0,
        zero_optimization_stage=lambda: stage,
        get_global_grad_norm=lambda: norm,
    )
    trained = []

    def training_step(experience):
        loss(model).backward()
        trained.append(experience)
        engine.global_steps = len(trained) // micro_batches
        return {}

    return SimpleNamespace(actor=SimpleNamespace(model=engine), training_step=training_step)


def rows(count: int):
    return SimpleNamespace(action_mask=torch.ones(count, 3))


def train(trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.training_step(rows(4))


def total(model) -> torch.Tensor:
    return model.weight.sum()


def test_only_every_nth_step_is_measured_and_hooked(alone):
    model = torch.nn.Linear(2, 1, bias=False)
    trainer = make_trainer(model, total, norm=torch.tensor(3.0))
    recorder = GradientVariance(trainer, every=3)
    measured = []
    for _ in range(7):
        train(trainer, steps=1)
        hooked = bool(model.weight._backward_hooks)
        train(trainer, steps=1)
        assert not model.weight._backward_hooks
        measured.append((hooked, bool(recorder.metrics())))
    assert measured == [(step % 3 == 0,) * 2 for step in range(7)]
    # two gradients (1, 1): squares 2 + 2, and the norm that the engine claims
    assert recorder.sums == pytest.approx((4.0, 9.0, 8, 32))


@pytest.mark.parametrize("norm", [-1.0, math.inf, math.nan])
def test_a_gradient_that_is_not_finite_is_not_logged(alone, norm):
    trainer = make_trainer(torch.nn.Linear(2, 1), total, norm)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=2)
    assert recorder.metrics() == {}


def test_equal_rewards_leave_nothing_to_learn_and_no_ratio(alone):
    trainer = make_trainer(torch.nn.Linear(2, 1), lambda model: 0 * total(model), norm=0.0)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=2)
    assert recorder.metrics() == {"js/gradient_variance": 0.0, "js/gradient_norm_squared": 0.0}


def test_a_step_of_one_micro_batch_is_said_to_have_no_variance(alone, caplog):
    trainer = make_trainer(torch.nn.Linear(2, 1), total, norm=1.0, micro_batches=1)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=1)
    assert recorder.metrics() == {}
    assert "lower --train.micro_batch_size" in caplog.text


def test_gradients_that_never_come_by_stop_the_run(alone):
    model = torch.nn.Linear(2, 1)
    trainer = make_trainer(model, lambda _: torch.ones(1, requires_grad=True), norm=1.0)
    GradientVariance(trainer, every=1)
    with pytest.raises(UpstreamMismatch, match="no gradient came by"):
        train(trainer, steps=1)


def test_an_engine_without_a_norm_stops_the_run(alone):
    trainer = make_trainer(torch.nn.Linear(2, 1), total, norm=None)
    GradientVariance(trainer, every=1)
    with pytest.raises(UpstreamMismatch, match="gives no gradient norm"):
        train(trainer, steps=2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_gradient_in_pieces_stops_the_run_and_a_whole_one_does_not(alone, reentrant):
    # one layer twice, each time in a checkpoint of its own
    model = torch.nn.Linear(2, 2, bias=False)

    def twice(model):
        x = torch.ones(1, 2, requires_grad=True)
        for _ in range(2):
            x = checkpoint(model, x, use_reentrant=reentrant)
        return x.sum()

    trainer = make_trainer(model, twice, norm=1.0)
    recorder = GradientVariance(trainer, every=1)
    if reentrant:
        with pytest.raises(UpstreamMismatch, match="gradient_checkpointing_reentrant"):
            train(trainer, steps=1)
    else:
        train(trainer, steps=2)
        whole = model.weight.grad / 2  # of one of the two micro-batches, which are the same
        assert recorder.sums.squares == pytest.approx(2 * whole.square().sum().item())


class Ignored(torch.autograd.Function):
    """Takes a weight, and gives it no gradient."""

    @staticmethod
    def forward(context, x, weight):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient, None


def test_a_parameter_without_a_gradient_counts_nothing(alone):
    model = torch.nn.Linear(2, 1)
    trainer = make_trainer(model, lambda m: Ignored.apply(m.bias, m.weight).sum(), norm=1.0)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=2)
    assert recorder.sums.squares == pytest.approx(2 * 2**2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape", [(), (0,), (5,), (3 * PIECE_ELEMENTS + 1,), (700, 300), (2, 3, 4)]
)
def test_the_squared_norm_of_any_gradient(shape, dtype):
    gradient = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) + 1).to(dtype)
    exact = gradient.double().square().sum().item()
    assert squared_norm(gradient).item() == pytest.approx(exact, rel=1e-5)
    if gradient.dim() == 2:
        assert squared_norm(gradient.T).item() == pytest.approx(exact, rel=1e-5)


def test_the_squared_norm_of_many_elements_keeps_its_digits():
    gradient = torch.full((4096, 4096), 1e-3)  # at once, torch would lose the third digit
    exact = gradient.double().square().sum().item()
    assert squared_norm(gradient).item() == pytest.approx(exact, rel=1e-5)
