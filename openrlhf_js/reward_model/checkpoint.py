"""What is wrong with a reward model's folder, told before its weights are loaded."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.reward_model.weights import Shapes, tensor_shapes


class Normalisation(NamedTuple):
    """What OpenRLHF's training writes into config.json: of the rewards of its evaluation data."""

    mean: float
    std: float


def local_folder(name_or_path: str | Path) -> Path:
    """The folder itself, or the one that the hub's files were downloaded to.

    Raises:
        ValueError: it is neither a folder nor a name that the hub gives.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    kept_out = ["*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*", "*.py"]
    try:
        return Path(snapshot_download(str(name_or_path), ignore_patterns=kept_out))
    except (OSError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"{name_or_path} is no folder here, and the hub does not give it: {first}"
        ) from error


def checkpoint_problems(
    folder: str | Path,
    value_head_prefix: str = "score",
    *,
    messages: bool = False,
    normalize: bool = False,
    pad_with_eos: bool = False,
) -> list[str]:
    """All that keeps a folder from being a reward model, one line each; empty if nothing does.

    Reads config.json, the headers of the weights and the tokenizer. Code that comes with a
    checkpoint is never run.

    Args:
        folder: as OpenRLHF's reward model training writes it.
        value_head_prefix: the head's name, unless config.json says another, as in OpenRLHF.
        messages: whether conversations are to be scored, which needs a chat template.
        normalize: whether mean and std of config.json are to be used.
        pad_with_eos: whether EOS may stand in for a missing padding token, as in OpenRLHF.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder} is not a folder: give one that holds config.json, weights and tokenizer"]
    try:
        config = read_config(folder)
    except ValueError as error:
        return [str(error)]
    problems = _architecture_problems(folder, config)
    prefix = head_prefix(config, value_head_prefix)
    try:
        problems += _head_problems(folder, config, prefix, tensor_shapes(folder))
    except ValueError as error:
        adapter = (folder / "adapter_config.json").is_file()
        merge = "it holds a LoRA adapter: merge it with `python -m openrlhf.cli.lora_combiner`"
        problems.append(f"{error}; {merge}" if adapter else str(error))
    if normalize:
        try:
            if normalisation(config) is None:
                raise ValueError(f"{folder / 'config.json'} has no mean and std to normalise with")
        except ValueError as error:
            problems.append(str(error))
    return problems + tokenizer_problems(folder, messages=messages, pad_with_eos=pad_with_eos)


def tokenizer_problems(
    folder: str | Path, *, messages: bool = False, pad_with_eos: bool = False
) -> list[str]:
    """What a tokenizer lacks to train or to run a reward model, one line each."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # whatever a file of somebody else makes of it
        return [f"{folder} has no tokenizer that can be loaded: {_first_line(error)}"]
    config, problems = Path(folder) / "tokenizer_config.json", []
    if tokenizer.eos_token_id is None:
        problems.append(
            f"the tokenizer in {folder} has no EOS token, at which rewards are read: "
            f"set eos_token in {config.name}"
        )
    if tokenizer.pad_token_id is None and not (pad_with_eos and tokenizer.eos_token_id is not None):
        problems.append(
            f"the tokenizer in {folder} has no padding token: set pad_token in {config.name} "
            "(EOS will do, padding is masked)"
        )
    problems += _unknown_ids(Path(folder), tokenizer)
    if messages and not tokenizer.chat_template:
        problems.append(
            f"the tokenizer in {folder} has no chat template, which messages need: take the "
            f"model's instruct variant, or set chat_template in {config.name}"
        )
    return problems


def _unknown_ids(folder: Path, tokenizer: Any) -> list[str]:
    """Special tokens beyond the model's embeddings, which some tokenizers add unasked."""
    try:
        size = _number(read_config(folder), "vocab_size")
    except ValueError:
        return []  # told elsewhere
    found = {"EOS": tokenizer.eos_token_id, "padding": tokenizer.pad_token_id}
    return [
        f"the tokenizer in {folder} has the {what} token {token_id}, and the model knows {size}: "
        f"set {'eos' if what == 'EOS' else 'pad'}_token in tokenizer_config.json to one of those"
        for what, token_id in found.items()
        if size is not None and token_id is not None and token_id >= size
    ]


def read_config(folder: Path) -> dict[str, Any]:
    """config.json; ValueError if it is not there or not a JSON object."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder} has no config.json: it is no Hugging Face model") from None
    except (ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {_first_line(error)}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    return config


def head_prefix(config: dict[str, Any], wanted: str) -> str:
    """The value head's name: config.json has the last word, as in OpenRLHF."""
    prefix = config.get("value_head_prefix", wanted)
    return prefix if isinstance(prefix, str) else wanted


def normalisation(config: dict[str, Any]) -> Normalisation | None:
    """Mean and std of config.json, or None if it has neither; ValueError if they are unusable."""
    mean: Any = config.get("mean")
    std: Any = config.get("std")
    if mean is None and std is None:
        return None
    if not (_is_finite(mean) and _is_finite(std) and std > 0):
        raise ValueError(
            f"config.json has mean {mean!r} and std {std!r}: to normalise, both must be finite "
            "numbers and std above 0"
        )
    return Normalisation(float(mean), float(std))


def _is_finite(value: object) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float holds
        return False


def _architecture_problems(folder: Path, config: dict[str, Any]) -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    kind = config.get("model_type")
    if isinstance(kind, str) and kind in MODEL_MAPPING_NAMES:
        return []
    own_code = "auto_map" in config and "; code that comes with a checkpoint is not run"
    return [f"{folder}: transformers has no model of type {kind!r}{own_code or ''}"]


def _head_problems(folder: Path, config: dict[str, Any], prefix: str, shapes: Shapes) -> list[str]:
    """What is wrong with the value head: one output, of the model's width, without bias."""
    name, size = f"{prefix}.weight", _number(config, "hidden_size", "n_embd", "d_model")
    shape = shapes.get(name)
    if shape is None:
        found = ", ".join(sorted(_possible_heads(shapes, size)))
        if found:
            return [
                f"{folder} has no value head {name}, but {found}: if that is it, give its name "
                "without .weight as --ds.value_head_prefix"
            ]
        architectures = config.get("architectures") or ["?"]
        if "lm_head.weight" in shapes or str(architectures[0]).endswith("ForCausalLM"):
            return [
                f"{folder} is a causal model ({architectures[0]}) where a reward model is wanted: "
                "train one from it with `openrlhf-js rm train`"
            ]
        return [f"{folder} has no value head {name}: train one with `openrlhf-js rm train`"]
    if len(shape) != 2 or shape[0] != 1:
        outputs = shape[0] if len(shape) == 2 else f"shape {list(shape)}, not"
        return [f"{folder}: the value head {name} has {outputs} outputs; a reward is 1"]
    if size and shape[1] != size:
        return [f"{folder}: the value head {name} takes {shape[1]} values, the model gives {size}"]
    if f"{prefix}.bias" in shapes:
        return [f"{folder}: the value head has a bias, {prefix}.bias, which OpenRLHF would drop"]
    return []


def _possible_heads(shapes: Shapes, size: int | None) -> list[str]:
    """Tensors that look like a head: at the top, and from the model's width to a few numbers."""
    return [
        name
        for name, shape in shapes.items()
        if name.count(".") == 1 and name.endswith(".weight")
        if len(shape) == 2 and shape[0] <= 8 and shape[1] == size
    ]


def _number(config: dict[str, Any], *names: str) -> int | None:
    """The first of these settings, of the model or of its part for text."""
    for part in (config, config.get("text_config")):
        for name in names:
            if isinstance(part, dict) and isinstance(part.get(name), int):
                return part[name]
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
