"""TRL's trainers with our advantages: a tiny model on CPU, in one process and in two."""

import inspect
import multiprocessing
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from trl_kit import M, make, sevens

from openrlhf_js.estimators import LiveEstimator, advantage
from openrlhf_js.estimators.advantages import warn_once
from openrlhf_js.trainers import prompt_key


@pytest.mark.parametrize(
    ("kind", "name", "settings", "low_high"),
    [
        ("GRPO", "js_fixed", {"shrinkage": 0.7}, (-9, 9)),
        ("RLOO", "bloo", {"reward_clip_range": (0.0, 0.5)}, (0.0, 0.5)),
    ],
)
def test_training_takes_the_estimators_advantages(
    tmp_path: Path, kind: str, name: str, settings: Any, low_high: Any
) -> None:
    """Of the weighted sum of two rewards, of which each lacks some; and the policy learns."""
    rng = random.Random(0)
    scores = []

    def gaps(completions: list[str], **_: Any) -> list[float | None]:
        scores.append([None if rng.random() < 0.3 else each for each in sevens(completions)])
        return scores[-1]

    weights = {"reward_weights": [1.0, 0.5]}
    trainer = make(tmp_path, kind, gaps, gaps, estimator=name, **weights, **settings)
    trainer.train()
    table = torch.tensor([[x if x is not None else torch.nan for x in each] for each in scores])
    for found, pair in zip(trainer.seen, table.view(20, 2, -1, M), strict=True):
        rewards = (pair[0].nan_to_num() + 0.5 * pair[1].nan_to_num()).clamp(*low_high)
        mask = ~pair.isnan().all(0)
        expected = advantage(name, rewards, mask=mask, shrinkage=settings.get("shrinkage"))
        torch.testing.assert_close(found, expected.flatten())
    assert list(trainer._logs["advantages"]) == trainer.seen[-1].tolist()
    assert table[-6:].nanmean() > table[:6].nanmean() + 0.3


def test_rloos_penalty_keeps_its_own_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path, "RLOO", sevens, estimator="js", beta=0.5, max_steps=3)
    gathered: list[torch.Tensor] = []
    monkeypatch.setattr("trl.trainer.rloo_trainer.gather", lambda x: gathered.append(x) or x)
    trainer.train()
    for found, scores, flat in zip(trainer.seen, gathered[::2], gathered[1::2], strict=True):
        kl = flat.view(-1, M)
        others = (kl.sum(1, keepdim=True) - kl) / (M - 1)
        expected = advantage("js", scores.view(-1, M)) - 0.5 * (kl - others)
        torch.testing.assert_close(found, expected.flatten())
    assert kl.abs().max() > 0.01


@pytest.mark.parametrize(
    ("kind", "settings", "passes"),
    [
        ("GRPO", {}, 2),
        ("GRPO", {"num_iterations": 2}, 1),  # TRL's own, of a batch for two steps
        ("GRPO", {"estimator": "js"}, 0),
        ("RLOO", {"beta": 0.5}, 4),  # TRL's own, and the reference's
    ],
)
def test_weights_come_from_the_policys_log_probs(
    tmp_path: Path, kind: str, settings: Any, passes: int
) -> None:
    """And cost a forward pass only where TRL has none of its own. In two steps."""
    trainer = make(tmp_path, kind, sevens, max_steps=2, **settings)
    without_gradient = []
    forward = trainer._get_per_token_logps_and_entropies

    def noting(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            without_gradient.append(model)
        return forward(model, *args, **kwargs)

    noting.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    trainer._get_per_token_logps_and_entropies = noting
    trainer.train()
    assert len(without_gradient) == passes
    found = trainer.batches[-1].squared_score_norms
    if settings.get("estimator") == "js":
        assert found is None
    else:
        expected = trainer.norms[-1].view(-1, M)
        assert expected.std() > 0.1
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def gradient_of_loss(trainer: Any, lengths: list[int]) -> list[float]:
    """Of the loss by the log-probability of one token, of responses of these lengths."""
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    log_probs = torch.full(mask.shape, -1.0, requires_grad=True)
    ids = torch.zeros_like(mask)
    inputs = {"prompt_ids": ids, "prompt_mask": ids, "completion_ids": ids, "completion_mask": mask}
    inputs["advantages"] = torch.ones(len(lengths))
    inputs["num_items_in_batch"] = mask.sum()
    inputs["old_logps"] = -mask.sum(1).float()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (log_probs, log_probs * 0, None)
    trainer._compute_loss(trainer.model, inputs).backward()
    assert log_probs.grad is not None
    return log_probs.grad[:, 0].tolist()


def test_weights_are_those_of_the_loss(tmp_path: Path) -> None:
    """Of each loss of TRL: whether long responses count less, as its gradient has it."""
    from trl import GRPOConfig

    trainer = make(tmp_path, "GRPO", sevens)
    trainer.current_gradient_accumulation_steps = 1
    losses = ["grpo", "sapo", "bnpo", "dr_grpo", "dapo", "cispo", "vespo", "luspo"]
    told = GRPOConfig.__doc__.split("loss_type (")[1].split("mask_truncated")[0]
    assert all(f'`"{loss}"`' in told for loss in losses)
    assert told.count('- `"') == len(losses)
    for trainer.loss_type in losses:
        for trainer.importance_sampling_level in ("token", "sequence"):
            long, short = gradient_of_loss(trainer, [4, 1])
            assert short == pytest.approx(4 * long if trainer._means_over_tokens() else long)
    trainer.loss_type, trainer.args.per_device_train_batch_size = "bnpo", 1
    [long], [short] = gradient_of_loss(trainer, [4]), gradient_of_loss(trainer, [1])
    assert trainer._means_over_tokens() and short == pytest.approx(4 * long)

    trainer = make(tmp_path, "RLOO", sevens)
    long, short = gradient_of_loss(trainer, [4, 1])
    assert not trainer._means_over_tokens() and short == pytest.approx(long)


def part_of_run(folder: Path) -> tuple[torch.Tensor, torch.Tensor, list[list[str]]]:
    """This process's advantages, weights and prompts, of rewards that say which prompt and row it
    is."""
    rank, size = (int(os.environ.get(*each)) for each in (("RANK", "0"), ("WORLD_SIZE", "1")))
    batches: list[list[str]] = []

    def reward(prompts: list[str], **_: Any) -> list[float]:
        noise = rewards_noise(len(batches)).view(size, -1)[rank]
        batches.append(prompts)
        return [int(p[6]) + x for p, x in zip(prompts, noise.tolist(), strict=True)]

    rows = {"per_device_train_batch_size": 28 // size, "max_steps": 10, "logging_steps": 1}
    trainer = make(folder, "GRPO", reward, estimator="js_grad", **rows)
    trainer.train()
    logged = trainer.state.log_history[-2]
    assert 0 < logged["js/gradient_noise_vs_rloo"] < 2 and 0 <= logged["js/slope_group"] <= 1
    return torch.stack(trainer.seen), torch.stack(trainer.norms), batches


def rank_of(folder: Path, world: dict[str, str]) -> None:
    """One of several processes, whose number is the folder's name."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # what was alone is now one of several
    os.environ.update(world | {"RANK": folder.name, "LOCAL_RANK": folder.name})
    torch.save(part_of_run(folder), folder / "part.pt")


def rewards_noise(step: int) -> torch.Tensor:
    return torch.randn(28, generator=torch.manual_seed(step)) / 4


def check_by_hand(found: torch.Tensor, norms: torch.Tensor, batches: list[list[str]]) -> None:
    """All processes' advantages, against a live estimator led by hand."""
    live = LiveEstimator("js_grad")
    assert len(found) == 10
    for step, prompts in enumerate(batches):
        keys = torch.tensor([prompt_key({"prompt": prompt}) for prompt in prompts[::M]])
        means = torch.tensor([float(prompt[6]) for prompt in prompts])
        rewards = (means + rewards_noise(step)).view(-1, M)
        weights = norms[step].view(-1, M)
        batch = live.batch(rewards, squared_score_norms=weights, keys=keys, step=step)
        expected = live.estimate(batch).advantages.float()
        live.learn(batch)
        torch.testing.assert_close(found[step], expected.flatten(), rtol=1e-3, atol=1e-4)


def test_js_grad_weighs_and_remembers_over_all_processes(tmp_path: Path) -> None:
    """Groups of 4 in slices of 14, so that one lies in two processes."""
    from kit import free_port

    check_by_hand(*part_of_run(tmp_path))

    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    world["OMP_NUM_THREADS"] = "1"  # as torchrun has it
    forks = multiprocessing.get_context("fork")  # which need not import TRL again
    ranks = [forks.Process(target=rank_of, args=(tmp_path / rank, world)) for rank in "01"]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0]
    parts = [torch.load(tmp_path / rank / "part.pt") for rank in "01"]
    (seen_0, norms_0, batches_0), (seen_1, norms_1, batches_1) = parts
    batches = [[*first, *second] for first, second in zip(batches_0, batches_1, strict=True)]
    check_by_hand(torch.cat([seen_0, seen_1], 1), torch.cat([norms_0, norms_1], 1), batches)


def test_the_figures_are_logged_and_a_single_prompt_is_a_warning(tmp_path: Path) -> None:
    """Of two batches with one prompt, as TRL's sizes have it by default."""
    warn_once.cache_clear()
    sizes = {"per_device_train_batch_size": M, "max_steps": 2, "logging_steps": 1}
    trainer = make(tmp_path, "GRPO", sevens, estimator="js", **sizes)
    with pytest.warns(UserWarning, match="js needs the other prompts of a batch") as caught:
        trainer.train()
    assert sum("other prompts" in str(each.message) for each in caught) == 1
    for step, logged in enumerate(trainer.state.log_history[:2], 1):
        assert logged["step"] == step
        assert logged["js/shrinkage"] == 0
        assert logged["js/value_error"] == pytest.approx(logged["js/value_error_rloo"])


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, but for the model, fewer steps, and this machine, which has no GPU."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "GRPO", sevens).processing_class.save_pretrained(tmp_path / "policy")
    page = Path(__file__).parents[2] / "docs" / "integrations.md"
    (code,) = re.findall(
        r"```python\n(from openrlhf_js.trainers.trl.*?)```", page.read_text(), re.S
    )
    code = code.replace("Qwen/Qwen3-0.6B", str(tmp_path / "policy"))
    code = code.replace('"out",', '"out", use_cpu=True, max_steps=2, max_completion_length=4,')
    from datasets import Dataset

    data = Dataset.from_dict({"prompt": [f"sort({number})=" for number in range(10, 42)]})
    names = {"reward": sevens, "dataset": data}
    exec(code, names)
    assert names["trainer"].state.global_step == 2
    assert names["trainer"].estimator.record.name == "js_grad"


def test_what_does_not_fit_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="scale_rewards is 'group'; set scale_rewards='none'"):
        make(tmp_path, "GRPO", sevens, scale_rewards="group")
    with pytest.raises(ValueError, match="TRL draws no greedy responses, which remax needs"):
        make(tmp_path, "RLOO", sevens, estimator="remax")
    trainer = make(tmp_path, "GRPO", sevens)
    monkeypatch.setattr(trainer, "_rewards", lambda: (torch.rand(8, M), torch.ones(8, M) > 0))
    with pytest.raises(RuntimeError, match="TRL's advantages are not dr_grpo's"):
        trainer.train()
    monkeypatch.setattr("trl.RLOOTrainer._compute_loss", lambda self, model, inputs: None)
    with pytest.raises(RuntimeError, match=r"TRL .* has no 'logps = .*' in _compute_loss"):
        make(tmp_path, "RLOO", sevens)
    monkeypatch.setattr("trl.GRPOTrainer._calculate_rewards", lambda self, inputs: None)
    with pytest.raises(RuntimeError, match=r"TRL .* has no '.*gather.*' in _calculate_rewards"):
        make(tmp_path, "GRPO", sevens)


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_a_data_set_shorter_than_a_batch_is_refused(tmp_path: Path, kind: str) -> None:
    """TRL itself would train no step, in silence; 14 prompts that fill a batch are enough."""
    sizes = {"per_device_train_batch_size": 4 * M, "gradient_accumulation_steps": 4}
    said = r"has 14 prompts, fewer than the 16 of one batch \(generation_batch_size 64 / num_gen"
    with pytest.raises(ValueError, match=said):
        make(tmp_path, kind, sevens, **sizes)
    enough = make(tmp_path, kind, sevens, per_device_train_batch_size=14 * M, max_steps=1)
    enough.train()
    assert len(enough.seen) == 1


def test_a_run_says_what_its_scale_and_its_loss_mean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "GRPO", sevens)
    (said,) = [record.message for record in caplog.records if "openrlhf_js" in record.name]
    assert "max_grad_norm 1 clips at another size" in said
    assert "loss_type='dapo' divides by lengths, which biases the gradient" in said
    caplog.clear()
    make(tmp_path, "GRPO", sevens, loss_type="dr_grpo")
    assert "max_grad_norm" in caplog.text and "biases" not in caplog.text
    caplog.clear()
    make(tmp_path, "RLOO", sevens)
    assert not [record for record in caplog.records if "openrlhf_js" in record.name]


def test_of_a_single_prompt_js_grad_takes_rloo_once_and_then_its_earlier_steps(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Of equal weights; in silence, as the page says."""
    warn_once.cache_clear()
    sizes = {"per_device_train_batch_size": M, "max_steps": 2, "beta": 0.0}
    rewards = iter([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    trainer = make(tmp_path, "RLOO", lambda **_: next(rewards), estimator="js_grad", **sizes)
    trainer._log_probs = lambda output: torch.full(output["completion_mask"].shape, 0.5).log()
    ones = torch.ones(M, 1)
    trainer_batch = trainer._batch

    def equal_weights(rewards: Any, mask: Any, output: Any) -> Any:
        return trainer_batch(rewards, mask, {**output, "completion_mask": ones})

    trainer._batch = equal_weights
    trainer.train()
    first, second = trainer.seen
    rloo = [
        advantage("rloo", torch.tensor([row]))[0]
        for row in ([1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0])
    ]
    torch.testing.assert_close(first, rloo[0].to(first))
    assert (second - rloo[1].to(second)).abs().max() > 0.05
    assert not [each for each in recwarn if "other prompts" in str(each.message)]


def test_a_prompt_is_known_by_its_images() -> None:
    """Decoded anew at each visit, at another address."""

    def key(*pixels: int) -> int:
        images = [Image.new("L", (2, 2), pixel) for pixel in pixels]
        parts = [{"type": "image", "image": image} for image in images]
        return prompt_key([{"role": "user", "content": np.array(parts)}, images])

    assert key(1, 2) == key(1, 2)
    assert len({key(1, 2), key(2, 1), key(1, 1)}) == 3
    wide, high = (Image.new("L", size, 1) for size in ((4, 8), (8, 4)))
    assert prompt_key([wide]) != prompt_key([high])
    palettes = [Image.new("P", (2, 2), 0) for _ in range(2)]
    palettes[0].putpalette([255, 0, 0])
    palettes[1].putpalette([0, 255, 0])
    assert prompt_key(palettes[:1]) != prompt_key(palettes[1:])
