"""ms-swift's own program trains a tiny model on the CPU: `bash scripts/trainers.sh swift`."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kit import pasted

pytest.importorskip("swift.rlhf_trainers", reason="bash scripts/trainers.sh swift")

from swift.pipelines.train.rlhf import rlhf_main
from swift.rl_core.data import GRPOBatch, GRPOSample
from swift.rlhf_trainers import GRPOTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import openrlhf_js.trainers.swift as ours
from answer_graders.record import scored
from answer_graders.tasks import TASKS
from openrlhf_js.estimators import LiveEstimator, squared_score_norms

M = 2
os.environ |= {"USE_HF": "1", "HF_HUB_OFFLINE": "1"}
PLUGIN = """
import openrlhf_js.trainers.swift
from swift.rewards import ORM, orms

class Sevens(ORM):
    def __call__(self, completions, **columns):
        return [text.count("7") / max(len(text), 1) for text in completions]

orms["sevens"] = Sevens
"""
GRADERS = pasted("reward_models/README.md", "orms[")
SETTINGS = {
    "rlhf_type": "grpo",
    "model_type": "qwen2",
    "template": "chatml",
    "tuner_type": "full",
    "torch_dtype": "float32",
    "reward_funcs": "sevens",
    "scale_rewards": "none",
    "loss_type": "dr_grpo",
    "num_generations": M,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 6,
    "max_length": 64,
    "max_steps": 4,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "constant",
    "temperature": 1.0,
    "beta": 0,
    "use_cpu": "true",
    "use_hf": "true",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "split_dataset_ratio": 0,
    "dataset_num_proc": 1,
    "dataloader_num_workers": 0,
}


def make_model(folder: Path) -> None:
    """Random weights, and a token for each character."""
    marks = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokens = [*marks, *"abcdefghijklmnopqrstuvwxyz0123456789 \n?"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<|im_end|>"}
    special = ["<|im_start|>", "<|endoftext|>"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, additional_special_tokens=special, **names
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256}
    ends = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": None}
    config = Qwen2Config(vocab_size=len(tokens), **sizes, **heads, **ends)
    Qwen2ForCausalLM(config).save_pretrained(folder)


class Noting(ours.ShrinkageGRPOTrainer):
    """Keeps what the estimator is to see of each batch, and what it gives."""

    last: Any = None

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        type(self).last = self
        self.seen: list[dict[str, Any]] = []

    def _compute_advantages(self, samples: Any, scores: Any, encoded: Any) -> Any:
        norms = torch.cat([self.norms_by_hand(batch) for batch in encoded])
        advantages = super()._compute_advantages(samples, scores, encoded)
        prompts = [sample.messages[-2]["content"] for sample in samples]
        keys = [int(sample.prompt_id) for sample in samples]
        own = {"prompts": prompts, "keys": keys, "norms": norms}
        self.seen.append(own | {"rewards": scores[:, 0], "advantages": advantages})
        return advantages

    def norms_by_hand(self, batch: Any) -> torch.Tensor:
        """(B,) sum of (1 - pi)^2 over the tokens of each response, of the model's own logits."""
        ids, mask = batch["model_inputs"]["input_ids"], batch["grpo_batch"].completion_mask
        inputs = {"input_ids": ids, "attention_mask": batch["model_inputs"]["attention_mask"]}
        with torch.no_grad():
            logits = self.model(**inputs).logits[:, -mask.shape[1] - 1 : -1]
        completions = ids[:, -mask.shape[1] :]
        chosen = logits.double().softmax(-1).gather(-1, completions[..., None])[..., 0]
        return ((1 - chosen).square() * mask).sum(1)


def write_files(folder: Path) -> None:
    """The model, 8 prompts and the plugin."""
    make_model(folder / "model")
    rows = [{"messages": [{"role": "user", "content": f"{row}?"}]} for row in range(8)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "plugin.py").write_text(PLUGIN)


def train(folder: Path, **changed: Any) -> Any:
    """The trainer after a run of ms-swift's program."""
    if not (folder / "model").exists():
        write_files(folder)
    files = {
        "model": folder / "model",
        "dataset": folder / "data.jsonl",
        "external_plugins": folder / "plugin.py",
        "output_dir": folder / "out",
    }
    settings = SETTINGS | files | changed
    ours.ShrinkageGRPOTrainer = Noting  # type: ignore[misc]
    rlhf_main([text for name, value in settings.items() for text in (f"--{name}", str(value))])
    return Noting.last


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a run over two epochs, 4 prompts a step."""
    return train(tmp_path_factory.mktemp("run"))


def check_by_hand(steps: list[dict[str, Any]]) -> None:
    """The advantages of all steps, against a live estimator led by hand."""
    live = LiveEstimator("js_grad")
    met: dict[int, str] = {}
    for number, step in enumerate(steps):
        for key, prompt in zip(step["keys"], step["prompts"], strict=True):
            assert met.setdefault(key, prompt) == prompt
        batch = live.batch(
            step["rewards"].view(-1, M),
            squared_score_norms=step["norms"].view(-1, M),
            keys=torch.tensor(step["keys"][::M]),
            step=number,
        )
        expected = live.estimate(batch).advantages.flatten().float()
        live.learn(batch)
        torch.testing.assert_close(step["advantages"], expected, rtol=1e-3, atol=1e-4)
    assert len(met) == 8 and sum(step["rewards"].std() > 0 for step in steps) > 2


def test_advantages_are_those_of_a_live_estimator(trainer: Any) -> None:
    """Its weights are those of the model, its keys those of the prompts; and its figures are
    logged."""
    check_by_hand(trainer.seen)
    logged = [row for row in trainer.state.log_history if "js/slope_group" in row]
    assert len(logged) == len(trainer.seen) == 4
    noise = [row.get("js/gradient_noise_vs_rloo") for row in logged]
    for step, ratio in zip(trainer.seen, noise, strict=True):
        assert (ratio is None) == bool(step["rewards"].std() == 0)
        assert ratio is None or 0 < ratio < 2
    assert any(noise)
    assert list(trainer._logs["advantages"]) == trainer.seen[-1]["advantages"].tolist()


@pytest.mark.timeout(500)  # two starts of ms-swift
def test_two_processes_are_one(tmp_path: Path) -> None:
    """2 prompts in each of two processes, which see the same figures."""
    from kit import free_port

    program = "import sys, test_swift; test_swift.save_run(sys.argv[1])"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no-python"]
    run += [f"--master_port={free_port()}", sys.executable, "-c", program, tmp_path]
    write_files(tmp_path)
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    world = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, env=os.environ | world, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in "01"]
    steps = []
    for first, second in zip(*parts, strict=True):
        assert torch.equal(first["advantages"], second["advantages"])
        own = {name: [*first[name], *second[name]] for name in ("prompts", "keys")}
        steps.append(first | own | {"norms": torch.cat([first["norms"], second["norms"]])})
    check_by_hand(steps)


def save_run(folder: str) -> None:
    """One of several processes."""
    trainer = train(Path(folder), gradient_accumulation_steps=1)
    torch.save(trainer.seen, Path(folder) / f"{os.environ['RANK']}.pt")


def test_the_policy_learns(tmp_path: Path) -> None:
    trainer = train(tmp_path, max_steps=24, loss_type="grpo", per_device_train_batch_size=8)
    means = [float(step["rewards"].mean()) for step in trainer.seen]
    assert sum(means[-6:]) > sum(means[:6]) + 1


def rows_of(trainer: Any, **settings: Any) -> list[float]:
    """The advantages of 7 rows of 6 responses to 2 prompts: the second has two rows, as of two
    turns; no function scored the third, and the fifth is cut off."""
    requests, prompts = "qrrstuv", "1111222"
    samples = [
        GRPOSample(messages=[], prompt_id=prompt, request_id=request)
        for prompt, request in zip(prompts, requests, strict=True)
    ]
    mask = torch.arange(3) < torch.tensor([3, 1, 2, 3, 2, 1, 3])[:, None]
    cut_off = torch.arange(7) == 5
    log_probs = -torch.rand(7, 3, generator=torch.manual_seed(0))
    batch = GRPOBatch(mask, cut_off, mask.sum(1), old_per_token_logps=log_probs)
    scores = torch.tensor([[1.0], [0], [0], [torch.nan], [1], [0], [0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "dynamic_num_samples", True)
        patch.setattr(trainer, "live", LiveEstimator("js_grad"))
        for name, value in settings.items():
            patch.setattr(trainer, name, value)
        inputs = (samples, scores, [{"grpo_batch": batch}])
        found = Noting.__base__._compute_advantages(trainer, *inputs)  # type: ignore[union-attr]
        means = trainer.loss_type != "dr_grpo" and trainer.loss_type != "bnpo"
        rows = squared_score_norms(log_probs, mask, mean_over_tokens=means)
        weights = torch.stack([rows[0], rows[1] + rows[2], rows[3], *rows[4:]]).view(2, 3)
        present = [[True, True, False], [True, not trainer.overlong_filter, True]]
        rewards = torch.tensor([[1.0, 0, 0], [1, 0, 0]])
        live = LiveEstimator("js_grad")
        known = live.batch(rewards, mask=torch.tensor(present), squared_score_norms=weights)
        a, b, c, d, e, f = live.estimate(known).advantages.flatten().tolist()
    assert c == 0 and found.tolist() == pytest.approx([a, b, b, c, d, e, f])
    return found.tolist()


def test_rows_of_one_request_are_one_response(trainer: Any) -> None:
    """And a response that the loss leaves out counts for nothing; long ones weigh less in a loss
    that divides by their length."""
    trainer.model.train()
    plain = rows_of(trainer)
    assert plain[5] != 0 and rows_of(trainer, overlong_filter=True)[5] == 0
    assert rows_of(trainer, loss_type="grpo") == rows_of(trainer, loss_type="sapo") != plain
    assert rows_of(trainer, loss_type="bnpo") == plain
    trainer.model.eval()
    assert trainer.live.record.name == "js_grad"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale_rewards": "group"}, "set scale_rewards='none'"),
        ({"kl_in_reward": "true"}, "set kl_in_reward=False"),
        ({"advantage_estimator": "reinforce_plus_plus"}, "set advantage_estimator='grpo'"),
    ],
)
def test_what_cannot_work_raises(tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **settings)


def test_a_renamed_method_stops_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_compute_advantages"
    monkeypatch.setattr(GRPOTrainer, "_renamed", getattr(GRPOTrainer, name), raising=False)
    monkeypatch.delattr(GRPOTrainer, name)
    with pytest.raises(RuntimeError, match=r"ms-swift 4.6.0 has no .*; pip install ms-swift==4.6"):
        importlib.reload(ours)
    monkeypatch.setitem(sys.modules, "swift.rlhf_trainers", ModuleType("without"))
    with pytest.raises(ImportError, match=r"; pip install ms-swift==4.6.0."):
        importlib.reload(ours)


def test_swift_trains_on_the_graders_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the columns `label` and `datasource`: any answer is right, or none is."""
    by_label = replace(TASKS["questions"], score=lambda response, label: scored(label, ""))
    monkeypatch.setitem(TASKS, "by_label", by_label)
    write_files(tmp_path)
    by_source = 'orms["by_source"] = lambda args: CompletionReward()'
    (tmp_path / "plugin.py").write_text(GRADERS + by_source)
    labels = ["correct", "wrong"]
    rows = [
        {
            "messages": [{"role": "user", "content": f"{row}?"}],
            "label": labels[row % 2],
            "datasource": "by_label",
        }
        for row in range(8)
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trainer = train(tmp_path, reward_funcs="by_source", max_steps=1)
    (step,) = trainer.seen
    expected = [1.0 - int(prompt[0]) % 2 for prompt in step["prompts"]]
    assert step["rewards"].tolist() == expected and 0 < sum(expected) < len(expected)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({}, "a row has no 'solution'"),
        ({"solution": None}, "a label must be text"),
        ({"solution": "#### 31"}, "give what follows its last ####"),
    ],
)
def test_what_cannot_be_graded_is_an_error(
    tmp_path: Path, columns: dict[str, Any], problem: str
) -> None:
    """By the line of the page of rewards: as ms-swift finds a reward by its name, and calls it with
    a sample's columns."""
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func
    from swift.rlhf_trainers.utils import resolve_reward_funcs
    from swift.utils import import_external_file

    (tmp_path / "graders.py").write_text(GRADERS)
    import_external_file(str(tmp_path / "graders.py"))
    functions, _ = resolve_reward_funcs(["graded"], args=object())
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": r"\boxed{13}"}]

    def rewards(**columns: Any) -> list[list[float]]:
        sample = GRPOSample.from_row({"messages": messages, **columns})
        return compute_rewards_per_func([sample], functions, [None], "cpu").tolist()

    assert rewards(solution="13") == [[1.0]] and rewards(solution="12") == [[0.0]]
    with pytest.raises(ValueError, match=problem):
        rewards(**columns)
