"""Checkpoints that are not reward models, each reported in one line before weights are loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from small_models import change_json, save_reward_model

from openrlhf_js.reward_model.checkpoint import (
    checkpoint_problems,
    first_line,
    normalisation,
    read_tensors,
    tensor_shapes,
    tokenizer_problems,
)


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    assert "\n" not in problems[0]
    return problems[0]


def test_a_reward_model_has_no_problems_and_its_head_any_name(tmp_path: Path) -> None:
    save_reward_model(tmp_path, mean=0.5, std=2.0, head="value_head")  # config.json names it
    assert checkpoint_problems(tmp_path, "score", normalize=True) == []
    change_json(tmp_path / "config.json", value_head_prefix=None)
    assert checkpoint_problems(tmp_path, "value_head") == []
    assert "as --ds.value_head_prefix (" in only(checkpoint_problems(tmp_path, "score"))


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"score.weight": None}, "has no value head score.weight"),
        ({"score.weight": torch.zeros(2, 32)}, "has shape [2, 32], a reward needs [1, 32]"),
        ({"score.weight": torch.zeros(1, 31)}, "has shape [1, 31]"),
        ({"score.bias": torch.zeros(1)}, "has a bias"),
    ],
)
def test_heads_that_give_no_reward(tmp_path: Path, tensors: dict, expected: str) -> None:
    save_reward_model(tmp_path, tensors=tensors)
    assert expected in only(checkpoint_problems(tmp_path))


INDEX = "model.safetensors.index.json"
DAMAGE = [
    *(("config.json", text) for text in ("{", "[" * 100_000)),
    ("model.safetensors", 60_000),
    *((INDEX, text) for text in ("{", '{"weight_map": {"score.weight": "/etc/passwd"}}')),
]


@pytest.mark.parametrize(("name", "content"), DAMAGE)
def test_damaged_files(tmp_path: Path, name: str, content: str | int) -> None:
    weights = save_reward_model(tmp_path) / "model.safetensors"
    if isinstance(content, int):
        weights.write_bytes(weights.read_bytes()[:content])
    else:
        (tmp_path / name).write_text(content)
    if name == INDEX:
        weights.unlink()
    expected = "no config.json that loads" if "config" in name else "copy the checkpoint again"
    assert expected in only(checkpoint_problems(tmp_path))


def test_shards(tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    expected = tensor_shapes(tmp_path)
    head = read_tensors(tmp_path)["score.weight"].clone()
    whole = tmp_path / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    save_torch_state_dict(tensors, tmp_path, max_shard_size=20_000)
    shards = sorted(tmp_path.glob("model-*"))
    assert len(shards) > 1
    assert tensor_shapes(tmp_path) == expected
    assert torch.equal(read_tensors(tmp_path)["score.weight"], head)
    assert checkpoint_problems(tmp_path) == []
    shards[1].unlink()
    assert shards[1].name in only(checkpoint_problems(tmp_path))


def test_tokenizers(tmp_path: Path) -> None:
    save_reward_model(tmp_path, "llama")
    (tmp_path / "chat_template.jinja").unlink()
    config = tmp_path / "tokenizer_config.json"
    assert tokenizer_problems(tmp_path) == []
    assert "no chat template" in only(tokenizer_problems(tmp_path, messages=True))
    change_json(config, chat_template="{{ messages[0].content }}")
    assert tokenizer_problems(tmp_path, messages=True) == []
    change_json(config, pad_token=None)  # EOS will do
    assert checkpoint_problems(tmp_path) == []
    change_json(config, pad_token="<pad>", eos_token=None)
    assert "no EOS token" in only(checkpoint_problems(tmp_path))
    change_json(config, eos_token="<beyond>")  # added, without an embedding
    assert "eos_token 19, and the model has 19" in only(checkpoint_problems(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    assert "no tokenizer that can be loaded" in only(checkpoint_problems(tmp_path))


def test_a_model_without_mean_and_std_is_not_normalised(tmp_path: Path) -> None:
    assert normalisation(SimpleNamespace(mean=1, std=0.5)) == (1.0, 0.5)
    assert normalisation(SimpleNamespace()) is None
    for mean, std in ((0, -1), (float("nan"), 1), (0, float("inf")), (None, 1), ("a", 1)):
        with pytest.raises(ValueError, match="both must be finite, and std above 0"):
            normalisation(SimpleNamespace(mean=mean, std=std))
    save_reward_model(tmp_path)
    assert checkpoint_problems(tmp_path) == []
    assert "no mean and std" in only(checkpoint_problems(tmp_path, normalize=True))
    change_json(tmp_path / "config.json", mean=0.0, std=0.0)
    assert "both must be finite, and std above 0" in only(
        checkpoint_problems(tmp_path, normalize=True)
    )


def test_an_errors_first_line_has_words():
    assert first_line(ImportError("\n  Processor requires torch.\nInstall it.\n")) == (
        "Processor requires torch."
    )
    assert first_line(ValueError()) == "ValueError"
