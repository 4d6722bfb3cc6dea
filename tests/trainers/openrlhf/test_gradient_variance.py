"""The gradient variance: its estimator by enumeration, and its recorder."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from openrlhf_js.estimators.gradient import GradientSums
from openrlhf_js.trainers.openrlhf.learner.gradient_variance import (
    PIECE_ELEMENTS,
    GradientVariance,
    squared_norm,
)
from openrlhf_js.trainers.openrlhf.upstream import UpstreamMismatch


def sums_of(contributions, sizes) -> GradientSums:
    h = np.asarray(contributions, float)
    n = np.asarray(sizes)
    return GradientSums((h**2).sum(), (h.sum(0) ** 2).sum(), int(n.sum()), int((n**2).sum()))


# --- a policy small enough to enumerate ---------------------------------------------------------

LOGITS = np.array([[0.3, -0.5, 0.9], [1.2, 0.1, -0.4]])  # (prompts, actions)
REWARDS = np.array([[1.0, 0.0, 0.2], [0.0, 1.0, 0.5]])
POLICY = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)


def score(prompt: int, action: int) -> np.ndarray:
    """d log pi(action | prompt) / d logits, flat."""
    gradient = np.zeros_like(LOGITS)
    gradient[prompt] = np.eye(3)[action] - POLICY[prompt]
    return gradient.ravel()


def prompt_groups(responses: int):
    """Every prompt group with its probability and its gradient with leave-one-out baselines."""
    for prompt in range(2):
        for actions in itertools.product(range(3), repeat=responses):
            rewards = REWARDS[prompt, list(actions)]
            baselines = (rewards.sum() - rewards) / max(responses - 1, 1) * (responses > 1)
            gradients = [
                (r - b) * score(prompt, a)
                for r, b, a in zip(rewards, baselines, actions, strict=True)
            ]
            yield 0.5 * POLICY[prompt, list(actions)].prod(), np.mean(gradients, axis=0)


def exactly(batches):
    """Var(g), |E g|^2 and the expectations of their estimates, over (probability, h, sizes)."""
    batches = list(batches)
    p = np.array([probability for probability, *_ in batches])
    g = np.array([np.sum(h, axis=0) for _, h, _ in batches])
    assert p.sum() == pytest.approx(1)
    mean = p @ g
    found = np.array([sums_of(h, sizes).moments() for _, h, sizes in batches])
    return (p @ ((g - mean) ** 2).sum(1), (mean**2).sum()), p @ found


@pytest.mark.parametrize(("responses", "sizes"), [(2, (2, 2)), (2, (2, 2, 2)), (1, (1, 3))])
def test_unbiased_over_all_batches_of_whole_prompt_groups(responses, sizes):
    groups = [size // responses for size in sizes]

    def batches():
        for drawn in itertools.product(prompt_groups(responses), repeat=sum(groups)):
            probability = np.prod([p for p, _ in drawn])
            gradients = iter([g / sum(groups) for _, g in drawn])
            yield probability, [sum(itertools.islice(gradients, n)) for n in groups], sizes

    exact, expected = exactly(batches())
    assert exact[0] > 0.01
    assert exact[1] > 0.01
    np.testing.assert_allclose(expected, exact, rtol=1e-12)


# --- the recorder, on an engine that only counts ------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Trainer:
    """Steps its engine after every so many micro-batches, each of which is measured."""

    def __init__(self, model, loss, norm, micro_batches: int = 2, every: int = 1):
        self.engine = SimpleNamespace(
            module=model,
            global_steps=0,
            get_global_grad_norm=lambda: norm,
        )
        self.recorder = GradientVariance(self.engine, every)
        self._loss = loss
        self._micro_batches = micro_batches
        self._trained = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            with self.recorder.micro_batch(responses=4):
                self._loss(self.engine.module).backward()
                self._trained += 1
                self.engine.global_steps = self._trained // self._micro_batches


def total(model) -> torch.Tensor:
    return model.weight.sum()


def test_only_every_nth_step_is_measured_and_hooked(alone):
    model = torch.nn.Linear(2, 1, bias=False)
    trainer = Trainer(model, total, norm=torch.tensor(2.5), every=3)
    recorder = trainer.recorder
    measured = []
    for _ in range(7):
        trainer.train(steps=1)
        hooked = bool(model.weight._backward_hooks)
        trainer.train(steps=1)
        assert not model.weight._backward_hooks
        found = recorder.metrics()
        measured.append((hooked, bool(found)))
    assert measured == [(step % 3 == 0,) * 2 for step in range(7)]
    # two gradients (1, 1): squares 2 + 2, and the norm that the engine claims
    assert recorder.sums == pytest.approx((4.0, 6.25, 8, 32))
    variance = (4 - 6.25 / 2) / (1 - 1 / 2)
    assert found["js/gradient_variance"] == pytest.approx(variance)
    assert found["js/gradient_snr"] == pytest.approx((6.25 - variance) / variance)


@pytest.mark.parametrize(("norm", "micro_batches"), [(-1.0, 2), (math.nan, 2), (1.0, 1)])
def test_what_has_no_finite_variance_is_not_logged(alone, norm, micro_batches, caplog):
    trainer = Trainer(torch.nn.Linear(2, 1), total, norm, micro_batches)
    trainer.train(steps=2)
    assert trainer.recorder.metrics() == {}
    assert ("lower --train.micro_batch_size" in caplog.text) == (micro_batches == 1)


def test_gradients_that_no_hook_sees_stop_the_run(alone):
    model = torch.nn.Linear(2, 1)
    trainer = Trainer(model, lambda _: torch.ones(1, requires_grad=True), norm=1.0)
    with pytest.raises(UpstreamMismatch, match="saw a gradient"):
        trainer.train(steps=1)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_gradient_in_pieces_stops_the_run_and_a_whole_one_does_not(alone, reentrant):
    # one layer twice, each time in a checkpoint of its own
    model = torch.nn.Linear(2, 2, bias=False)

    def twice(model):
        x = torch.ones(1, 2, requires_grad=True)
        for _ in range(2):
            x = checkpoint(model, x, use_reentrant=reentrant)
        return x.sum()

    trainer = Trainer(model, twice, norm=1.0)
    if reentrant:
        with pytest.raises(UpstreamMismatch, match="gradient_checkpointing_reentrant"):
            trainer.train(steps=1)
    else:
        trainer.train(steps=2)
        whole = model.weight.grad / 2  # of one of the two micro-batches, which are the same
        assert trainer.recorder.sums.squares == pytest.approx(2 * whole.square().sum().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3 * PIECE_ELEMENTS + 1,), (700, 300)])
def test_the_squared_norm_of_any_gradient(shape, dtype):
    gradient = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) + 1).to(dtype)
    exact = gradient.double().square().sum().item()
    assert squared_norm(gradient).item() == pytest.approx(exact, rel=1e-5)
    if gradient.dim() == 2:
        assert squared_norm(gradient.T).item() == pytest.approx(exact, rel=1e-5)
