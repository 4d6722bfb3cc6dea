"""The gradient variance: its estimator by enumeration, and its recorder."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from openrlhf_js.plugin.learner.gradient_variance import (
    HALF_LIFE,
    PIECE_ELEMENTS,
    GradientMoments,
    GradientSums,
    GradientVariance,
    NoiseScale,
    squared_norm,
)
from openrlhf_js.plugin.upstream import UpstreamMismatch

# --- the estimator ------------------------------------------------------------------------------


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


def test_responses_of_a_prompt_in_two_micro_batches_hide_variance_between_prompts():
    """2 prompt groups of 2 independent responses, shuffled into 2 micro-batches of 2.

    The variance between prompts, t, counts as docs/lab.md says.
    """
    n = m = b = 2  # prompts, responses to each, responses of a micro-batch
    total = n * m
    scores = np.array([[score(prompt, action) for action in range(3)] for prompt in (0, 1)])
    gradients = REWARDS[..., None] * scores
    means = np.einsum("ia,iap->ip", POLICY, gradients)
    between = ((means - means.mean(0)) ** 2).sum(1).mean()
    within = np.einsum("ia,iap->", POLICY, (gradients - means[:, None]) ** 2) / 2
    orders = [list(order) for order in itertools.permutations(range(total)) if order[0] < order[1]]

    def batches():
        for prompts in itertools.product(range(2), repeat=n):
            prompt_of_response = np.repeat(prompts, m)
            for actions in itertools.product(range(3), repeat=total):
                chances = POLICY[prompt_of_response, actions]
                probability = 0.5**n * chances.prod() / len(orders)
                terms = gradients[prompt_of_response, actions] / total
                for order in orders:
                    first = terms[order[:b]].sum(0)
                    second = terms[order[b:]].sum(0)
                    yield probability, [first, second], [b, b]

    (variance, _), (expected, _) = exactly(batches())
    assert variance == pytest.approx(between / n + within / total)
    together = (b - 1) / (total - 1)  # the chance that two responses share a micro-batch
    share = (1 + together * (m - 1) - b * m / total) / (1 - b / total)
    assert expected == pytest.approx(share * between / total + within / total)
    assert expected < variance


def test_the_noise_scale_divides_running_means():
    scale = NoiseScale()
    steady = GradientMoments(variance=0.5, mean_square=0.25)
    assert scale.update(steady, 16) == pytest.approx(16 * 0.5 / 0.25)
    assert scale.update(steady, 16) == pytest.approx(32)
    for _ in range(HALF_LIFE):
        after = scale.update(GradientMoments(0.5, 0.75), 16)
    weight = 0.5  # of all that came before, one half-life ago
    old = 1 - 0.5 ** (2 / HALF_LIFE)  # the weight that two measurements had by then
    expected = 16 * 0.5 * (weight * old + 1 - weight) / (weight * old * 0.25 + (1 - weight) * 0.75)
    assert after == pytest.approx(expected)
    for moments in (GradientMoments(1.0, -0.1), GradientMoments(0.0, 1.0)):
        assert NoiseScale().update(moments, 8) is None


# --- the recorder, on an engine that only counts ------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def make_trainer(model, loss, norm, micro_batches: int = 2):
    """A trainer that steps its engine after every so many micro-batches."""
    engine = SimpleNamespace(
        module=model,
        global_steps=0,
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
    trainer = make_trainer(model, total, norm=torch.tensor(2.5))
    recorder = GradientVariance(trainer, every=3)
    measured = []
    for _ in range(7):
        train(trainer, steps=1)
        hooked = bool(model.weight._backward_hooks)
        train(trainer, steps=1)
        assert not model.weight._backward_hooks
        found = recorder.metrics()
        measured.append((hooked, bool(found)))
    assert measured == [(step % 3 == 0,) * 2 for step in range(7)]
    # two gradients (1, 1): squares 2 + 2, and the norm that the engine claims
    assert recorder.sums == pytest.approx((4.0, 6.25, 8, 32))
    variance = (4 - 6.25 / 2) / (1 - 1 / 2)
    scale = 8 * variance / (6.25 - variance)
    assert found["js/gradient_noise_scale"] == pytest.approx(scale)


@pytest.mark.parametrize("norm", [-1.0, math.nan])
def test_a_gradient_that_is_not_finite_is_not_logged(alone, norm):
    trainer = make_trainer(torch.nn.Linear(2, 1), total, norm)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=2)
    assert recorder.metrics() == {}


def test_a_step_of_one_micro_batch_has_no_variance(alone, caplog):
    trainer = make_trainer(torch.nn.Linear(2, 1), total, norm=1.0, micro_batches=1)
    recorder = GradientVariance(trainer, every=1)
    train(trainer, steps=1)
    assert recorder.metrics() == {}
    assert "lower --train.micro_batch_size" in caplog.text


def test_gradients_that_no_hook_sees_stop_the_run(alone):
    model = torch.nn.Linear(2, 1)
    trainer = make_trainer(model, lambda _: torch.ones(1, requires_grad=True), norm=1.0)
    GradientVariance(trainer, every=1)
    with pytest.raises(UpstreamMismatch, match="saw a gradient"):
        train(trainer, steps=1)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3 * PIECE_ELEMENTS + 1,), (700, 300), (2, 3, 4)])
def test_the_squared_norm_of_any_gradient(shape, dtype):
    gradient = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) + 1).to(dtype)
    exact = gradient.double().square().sum().item()
    assert squared_norm(gradient).item() == pytest.approx(exact, rel=1e-5)
    if gradient.dim() == 2:
        assert squared_norm(gradient.T).item() == pytest.approx(exact, rel=1e-5)


def test_a_gradient_is_squared_without_a_copy_of_it():
    from torch.profiler import ProfilerActivity, profile

    gradient = torch.zeros(10 * PIECE_ELEMENTS)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        squared_norm(gradient)
    events = found.profiler.kineto_results.events()
    memory = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    assert 0 < max(itertools.accumulate(e.nbytes() for e in memory)) < 1024
