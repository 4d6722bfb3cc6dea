"""Checkpoints that are no reward models, each told in one line before weights are loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from openrlhf_js.reward_model.checkpoint import (
    Normalisation,
    checkpoint_problems,
    normalisation,
    tokenizer_problems,
)
from openrlhf_js.reward_model.weights import read_tensor, tensor_shapes

sys.path.insert(0, str(Path(__file__).parent))
from small_models import change_json, save_reward_model, split_into_shards


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    assert "\n" not in problems[0]
    return problems[0]


def test_a_reward_model_has_no_problems(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path, mean=0.5, std=2.0)
    assert checkpoint_problems(folder, normalize=True) == []


def test_the_head_may_have_another_name(tmp_path: Path) -> None:
    save_reward_model(tmp_path, head="value_head")  # config.json says so, as OpenRLHF writes it
    assert checkpoint_problems(tmp_path, "score") == []
    change_json(tmp_path / "config.json", value_head_prefix=None)
    assert checkpoint_problems(tmp_path, "value_head") == []
    assert "but value_head.weight" in only(checkpoint_problems(tmp_path, "score"))


def test_a_causal_model(tmp_path: Path) -> None:
    from openrlhf_js.tiny import model
    from openrlhf_js.tiny.tasks import sort

    tokenizer = model.make_tokenizer(sort.TASK)
    model.save(model.make_model(tokenizer, 0), tokenizer, tmp_path)
    assert "is a causal model (Qwen2ForCausalLM)" in only(checkpoint_problems(tmp_path))


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"score.weight": None}, "no value head score.weight"),
        ({"score.weight": None, "lm_head.weight": torch.zeros(19, 32)}, "is a causal model"),
        ({"score.weight": torch.zeros(2, 32)}, "has 2 outputs"),
        ({"score.weight": torch.zeros(32)}, "has shape [32], not outputs"),
        ({"score.weight": torch.zeros(1, 31)}, "takes 31 values, the model gives 32"),
        ({"score.bias": torch.zeros(1)}, "has a bias"),
    ],
)
def test_heads_that_are_none(tmp_path: Path, tensors: dict, expected: str) -> None:
    save_reward_model(tmp_path, tensors=tensors)
    assert expected in only(checkpoint_problems(tmp_path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "is not a JSON object"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"model_type": "none_such", "hidden_size": 32}', "no model of type 'none_such'"),
        ('{"model_type": ["qwen2"], "hidden_size": 32}', "no model of type"),
    ],
)
def test_a_broken_config(tmp_path: Path, content: str, expected: str) -> None:
    save_reward_model(tmp_path)
    (tmp_path / "config.json").write_text(content)
    found = checkpoint_problems(tmp_path)
    assert expected in found[0]
    assert all("\n" not in problem for problem in found)


def test_no_folder_and_no_config(tmp_path: Path) -> None:
    assert "is not a folder" in only(checkpoint_problems(tmp_path / "nowhere"))
    assert "has no config.json" in only(checkpoint_problems(tmp_path))


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "has no weights" in only(checkpoint_problems(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "LoRA adapter" in only(checkpoint_problems(tmp_path))


@pytest.mark.parametrize("kept", [0, 4, 1000, 60_000])
def test_a_file_that_was_cut(tmp_path: Path, kept: int) -> None:
    save_reward_model(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert "is damaged" in only(checkpoint_problems(tmp_path))


def test_shards(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    expected = tensor_shapes(tmp_path)
    head = read_tensor(tmp_path, "score.weight")
    shards = split_into_shards(tmp_path)
    assert tensor_shapes(tmp_path) == expected
    assert torch.equal(read_tensor(tmp_path, "score.weight"), head)
    assert checkpoint_problems(tmp_path) == []
    shards[1].unlink()
    assert shards[1].name in only(checkpoint_problems(tmp_path))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    save_reward_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = json.dumps({"weight_map": {"score.weight": name}})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert "outside of its folder" in only(checkpoint_problems(tmp_path))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_an_index_that_is_none(tmp_path: Path, content: str) -> None:
    save_reward_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(content)
    assert "copy the checkpoint anew" in only(checkpoint_problems(tmp_path))


class Hostile:
    """What a pickle would run."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("ran"),))


def test_pickled_weights_are_read_and_never_run(tmp_path: Path, monkeypatch) -> None:
    save_reward_model(tmp_path / "model", file="pytorch_model.bin")
    assert checkpoint_problems(tmp_path / "model") == []
    head = read_tensor(tmp_path / "model", "score.weight")
    assert head.shape == (1, 32)
    monkeypatch.chdir(tmp_path)
    torch.save({"score.weight": Hostile()}, tmp_path / "model" / "pytorch_model.bin")
    assert "is damaged" in only(checkpoint_problems(tmp_path / "model"))
    assert not (tmp_path / "ran").exists()


def test_tokenizers(tmp_path: Path) -> None:
    save_reward_model(tmp_path, "llama")
    config = tmp_path / "tokenizer_config.json"
    assert tokenizer_problems(tmp_path) == []
    assert "no chat template" in only(tokenizer_problems(tmp_path, messages=True))
    change_json(config, chat_template="{{ messages[0].content }}")
    assert tokenizer_problems(tmp_path, messages=True) == []
    change_json(config, pad_token=None)
    assert "no padding token" in only(checkpoint_problems(tmp_path))
    assert checkpoint_problems(tmp_path, pad_with_eos=True) == []
    change_json(config, pad_token="<pad>", eos_token=None)
    assert "no EOS token" in only(checkpoint_problems(tmp_path))
    change_json(config, pad_token=None)
    assert len(checkpoint_problems(tmp_path)) == 2
    (tmp_path / "tokenizer.json").write_text("{")
    assert "no tokenizer that can be loaded" in only(checkpoint_problems(tmp_path))


def test_a_special_token_that_the_model_does_not_know(tmp_path: Path) -> None:
    save_reward_model(tmp_path)  # Qwen2's tokenizer has an EOS of its own if it is told none
    change_json(tmp_path / "tokenizer_config.json", eos_token=None)
    assert "EOS token 19, and the model knows 19" in only(checkpoint_problems(tmp_path))


def test_normalisation() -> None:
    assert normalisation({"mean": 1, "std": 0.5}) == Normalisation(1.0, 0.5)
    assert normalisation({}) is None
    nan, infinite = float("nan"), float("inf")
    for mean, std in [
        (0, 0),
        (0, -1),
        (nan, 1),
        (0, infinite),
        (None, 1),
        (1, None),
        ("0", 1),
        (10**400, 1),
    ]:
        with pytest.raises(ValueError, match="std above 0"):
            normalisation({"mean": mean, "std": std})


def test_normalising_needs_mean_and_std(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    assert checkpoint_problems(tmp_path) == []
    assert "no mean and std" in only(checkpoint_problems(tmp_path, normalize=True))
    change_json(tmp_path / "config.json", mean=0.0, std=0.0)
    assert "std above 0" in only(checkpoint_problems(tmp_path, normalize=True))
    assert checkpoint_problems(tmp_path) == []
