"""TRL's trainers with our advantages: a tiny model on CPU, in one process and in two."""

import multiprocessing
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from openrlhf_js.estimators import LiveEstimator, advantage
from openrlhf_js.estimators.catalogue import RECOMMENDED
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.integrations import _warn_of_one_prompt

M = 4


def make(folder: Path, kind: str, *rewards: Any, **given: Any) -> Any:
    """A trainer of 20 steps, whose `seen` fills with the advantages of each batch."""
    trl = pytest.importorskip("trl", reason="TRL needs Python 3.11")
    import trl.import_utils as available

    available.is_vllm_available = lambda *_, **__: False  # an import of many seconds
    from datasets import Dataset

    import openrlhf_js.integrations.trl as ours
    from openrlhf_js.tiny import model
    from openrlhf_js.tiny.tasks import TASKS

    class Noting(getattr(ours, f"Shrinkage{kind}Trainer")):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.seen.append(output["advantages"])
            return output

    own = {name: given.pop(name) for name in ("estimator", "shrinkage") if name in given}
    sizes = {"num_generations": M, "per_device_train_batch_size": 32, "max_completion_length": 6}
    speed = {"max_steps": 20, "learning_rate": 1e-2, "use_cpu": True, "bf16": False}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
    needed = {"scale_rewards": "none"} if kind == "GRPO" else {"beta": 0.0}
    tokenizer = model.make_tokenizer(TASKS["sort"])
    model.make_model(tokenizer, 0, width=32, layers=1).save_pretrained(folder / "policy")
    config = getattr(trl, f"{kind}Config")(str(folder), **sizes | speed | quiet | needed | given)
    data = Dataset.from_dict({"prompt": [f"sort({number})=" for number in range(10, 24)]})
    places = (str(folder / "policy"), list(rewards), config, data, data.select(range(2)))
    trainer = Noting(*places, processing_class=tokenizer, **own)
    trainer.seen = []
    return trainer


def sevens(completions: list[str], **_: Any) -> list[float]:
    """The share of sevens: what the model can learn in 20 steps."""
    return [each.count("7") / max(len(each), 1) for each in completions]


@pytest.mark.parametrize(
    ("kind", "name", "settings", "low_high"),
    [
        ("GRPO", "js", {}, (-9, 9)),
        ("GRPO", "js_fixed", {"shrinkage": 0.7}, (-9, 9)),
        ("RLOO", "js_plus", {"reward_clip_range": (0.0, 0.5)}, (0.0, 0.5)),
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
    trainer = make(tmp_path, "RLOO", sevens, beta=0.5, max_steps=3)
    gathered: list[torch.Tensor] = []
    monkeypatch.setattr("trl.trainer.rloo_trainer.gather", lambda x: gathered.append(x) or x)
    trainer.train()
    for found, scores, flat in zip(trainer.seen, gathered[::2], gathered[1::2], strict=True):
        kl = flat.view(-1, M)
        others = (kl.sum(1, keepdim=True) - kl) / (M - 1)
        expected = advantage(RECOMMENDED, scores.view(-1, M)) - 0.5 * (kl - others)
        torch.testing.assert_close(found, expected.flatten())
    assert kl.abs().max() > 0.01


def test_evaluation_keeps_trls_advantages(tmp_path: Path) -> None:
    """Of groups of another size than in training."""
    trainer = make(tmp_path, "GRPO", sevens, num_generations_eval=2)
    trainer.reward_funcs[0] = lambda completions, **_: [0.0, 1.0] * (len(completions) // 2)
    trainer.evaluate()
    assert [each.tolist() for each in trainer.seen] == [[-0.5, 0.5] * 2]


def part_of_memory_run(folder: Path) -> tuple[torch.Tensor, list[list[str]]]:
    """This process's advantages and prompts, of rewards that say which prompt and row it is."""
    rank, size = (int(os.environ.get(*each)) for each in (("RANK", "0"), ("WORLD_SIZE", "1")))
    batches: list[list[str]] = []

    def reward(prompts: list[str], **_: Any) -> list[float]:
        noise = rewards_noise(len(batches)).view(size, -1)[rank]
        batches.append(prompts)
        return [int(p[6]) + x for p, x in zip(prompts, noise.tolist(), strict=True)]

    rows = {"per_device_train_batch_size": 28 // size, "max_steps": 10}
    trainer = make(folder, "GRPO", reward, estimator="js_memory", **rows)
    trainer.train()
    return torch.stack(trainer.seen), batches


def rank_of(folder: Path, world: dict[str, str]) -> None:
    """One of several processes, whose number is the folder's name."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # what was alone is now one of several
    os.environ.update(world | {"RANK": folder.name, "LOCAL_RANK": folder.name})
    torch.save(part_of_memory_run(folder)[0], folder / "part.pt")


def rewards_noise(step: int) -> torch.Tensor:
    return torch.randn(28, generator=torch.manual_seed(step)) / 4


def test_js_memory_remembers_prompts_of_all_processes(tmp_path: Path) -> None:
    """As a memory led by hand; groups of 4 in slices of 14, so that one lies in two processes."""
    from kit import free_port

    one, batches = part_of_memory_run(tmp_path)
    live = LiveEstimator("js_memory")
    differ = 0
    for step, (found, prompts) in enumerate(zip(one, batches, strict=True)):
        keys = torch.tensor([key_of(repr(prompt)) for prompt in prompts[::M]])
        means = torch.tensor([float(prompt[6]) for prompt in prompts])
        rewards = (means + rewards_noise(step)).view(-1, M)
        batch = live.batch(rewards, keys=keys, step=step)
        expected = live.estimate(batch).advantages.float()
        live.learn(batch)
        torch.testing.assert_close(found, expected.flatten())
        differ += not torch.allclose(expected, advantage("js_plus", rewards), atol=1e-3)
    assert differ >= 5

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
    torch.testing.assert_close(torch.cat(parts, 1), one)


def test_the_figures_are_logged_and_a_single_prompt_is_a_warning(tmp_path: Path) -> None:
    """Of two batches with one prompt, as TRL's sizes have it by default."""
    _warn_of_one_prompt.cache_clear()
    sizes = {"per_device_train_batch_size": M, "max_steps": 2, "logging_steps": 1}
    trainer = make(tmp_path, "GRPO", sevens, **sizes)
    with pytest.warns(UserWarning, match="js_plus needs the other prompts of a batch") as caught:
        trainer.train()
    assert sum("other prompts" in str(each.message) for each in caught) == 1
    for step, logged in enumerate(trainer.state.log_history[:2], 1):
        assert logged["step"] == step
        assert logged["js/shrinkage_mean"] == 0
        assert logged["js/baseline_mse"] == pytest.approx(logged["js/baseline_mse_rloo"])


def test_what_a_tool_says_is_no_part_of_a_responses_length(tmp_path: Path) -> None:
    trainer = make(tmp_path, "GRPO", sevens, estimator="opo")
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    masks = {"completion_mask": torch.ones(M, 56), "tool_mask": torch.ones(M, 56)}
    masks["tool_mask"][0, 8:48] = 0
    batch = trainer._batch(rewards, rewards >= 0, [{"prompt": ""}] * M, masks)
    assert batch.lengths.tolist() == [[16, 56, 56, 56]]


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
    monkeypatch.setattr("trl.GRPOTrainer._calculate_rewards", lambda self, inputs: None)
    with pytest.raises(RuntimeError, match=r"TRL .* has no '.*gather.*' in _calculate_rewards"):
        make(tmp_path, "GRPO", sevens)
