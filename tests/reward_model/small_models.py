"""Reward models with random weights, in the layout that OpenRLHF's training saves.

tests/integration/test_reward_training.py looks at what OpenRLHF itself saves.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

PAD, END = "<pad>", "<eos>"
CHARACTERS = "sort()=0123456789"
TEXTS = [  # of 3 to 15 tokens; the tokenizer drops spaces and newlines
    "sort(352)=235<eos>",
    "sort(352)=235",
    "sort(352)=235\n\n",
    "sort(90)=09 <eos>",
    "sort(1)=",
    "21",
    "",
    "sort(4321)=<eos>1234",
]
LONG = "sort(" + "9876543210" * 5 + ")=" + "0123456789" * 5


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each character; any other text becomes padding."""
    vocabulary = {token: number for number, token in enumerate((PAD, END, *CHARACTERS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("[sort()=0-9]"), "isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        # OpenRLHF's reward training puts a space before an end that it adds itself.
        eos_token=AddedToken(END, lstrip=True, special=True),
        clean_up_tokenization_spaces=False,
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
        padding_side="left",
    )


def save_reward_model(
    folder: Path,
    kind: str = "qwen2",
    *,
    head: str = "score",
    outputs: int = 1,
    tensors: dict[str, Any] | None = None,
    file: str = "model.safetensors",
    **config: Any,
) -> Path:
    """Writes a folder; `tensors` are added, or taken out where None; `config` goes to the JSON."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    made = AutoConfig.for_model(kind, **sizes)
    backbone = AutoModel.from_config(made)
    prefix = backbone.base_model_prefix
    weights = {f"{prefix}.{name}": value for name, value in backbone.state_dict().items()}
    weights[f"{head}.weight"] = torch.randn(outputs, made.hidden_size)
    for name, value in (tensors or {}).items():
        weights.pop(name, None)
        if value is not None:
            weights[name] = value
    weights = {name: value.contiguous() for name, value in weights.items()}
    if file.endswith(".bin"):
        torch.save(weights, folder / file)
    else:
        save_file(weights, folder / file, {"format": "pt"})
    made.architectures = ["RewardModel"]
    made.value_head_prefix = head
    made.normalize_reward = False
    made.to_json_file(folder / "config.json")
    change_json(folder / "config.json", **config)
    return folder


def change_json(path: Path, **values: Any) -> None:
    """Sets values of a JSON file; None takes one out."""
    content = json.loads(path.read_text()) | values
    content = {name: value for name, value in content.items() if value is not None}
    path.write_text(json.dumps(content))
