"""A reward model's folder: what its files hold, and what keeps it from being loaded.

Only config.json, the tokenizer and the headers of the weights are read. Code that comes with a
checkpoint is never run.
"""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.sampling.models import local_folder as local_folder

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # transformers takes the first it finds
Shapes = dict[str, tuple[int, ...]]


class Normalisation(NamedTuple):
    """Mean and std of rewards on evaluation data, as OpenRLHF's training writes them."""

    mean: float
    std: float


def checkpoint_problems(
    folder: str | Path,
    value_head_prefix: str = "score",
    *,
    messages: bool = False,
    normalize: bool = False,
) -> list[str]:
    """Everything that keeps a folder from being used as a reward model, one line each.

    Args:
        folder: as OpenRLHF's reward model training writes it.
        value_head_prefix: the head's name unless config.json gives one, as in OpenRLHF.
        messages: whether conversations are scored, which needs a chat template.
        normalize: whether mean and std of config.json are used.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder} is not a folder: give one with config.json, weights and tokenizer"]
    try:
        config = read_config(folder)
    except ValueError as error:
        return [str(error)]
    problems = _architecture_problems(folder, config)
    try:
        shapes = tensor_shapes(folder)
        problems += _head_problems(folder, config, head_prefix(config, value_head_prefix), shapes)
    except ValueError as error:
        adapter = (folder / "adapter_config.json").is_file()
        merge = "it holds a LoRA adapter: merge it with `python -m openrlhf.cli.lora_combiner`"
        problems.append(f"{error}; {merge}" if adapter else str(error))
    if normalize:
        try:
            if normalisation(config) is None:
                problems.append(f"{folder}/config.json has no mean and std to normalise with")
        except ValueError as error:
            problems.append(str(error))
    return problems + tokenizer_problems(folder, messages=messages)


def tokenizer_problems(folder: str | Path, *, messages: bool = False) -> list[str]:
    """What a tokenizer lacks to train or run a reward model, one line each.

    A padding token is not needed: padding is masked, and EOS replaces it, as in OpenRLHF.
    """
    from transformers import AutoTokenizer

    folder = Path(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # tokenizers raises bare Exceptions on damaged files
        return [f"{folder} has no tokenizer that can be loaded: {first_line(error)}"]
    problems, where = [], "in tokenizer_config.json"
    special = {"eos": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    if special["eos"] is None:
        problems.append(
            f"the tokenizer in {folder} has no EOS token, where rewards are read: "
            f"set eos_token {where}"
        )
    # some tokenizers add special tokens that the model has no embedding for
    config = read_config(folder) if (folder / "config.json").is_file() else {}
    size = _number(config, "vocab_size")
    problems += [
        f"the tokenizer in {folder} has {name}_token {token}, and the model has {size} "
        f"embeddings: set another {name}_token {where}"
        for name, token in special.items()
        if size is not None and token is not None and token >= size
    ]
    if messages and not tokenizer.chat_template:
        problems.append(
            f"the tokenizer in {folder} has no chat template, which messages need: use the "
            f"model's instruct variant, or set chat_template {where}"
        )
    return problems


def read_config(folder: Path) -> dict[str, Any]:
    """config.json; ValueError where there is none."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder} has no config.json: it is not a Hugging Face model") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {first_line(error)}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    return config


def head_prefix(config: dict[str, Any], default: str) -> str:
    """The value head's name: config.json has precedence, as in OpenRLHF."""
    prefix = config.get("value_head_prefix", default)
    return prefix if isinstance(prefix, str) else default


def normalisation(config: dict[str, Any]) -> Normalisation | None:
    """Mean and std of config.json, None if it has neither; ValueError if they are unusable."""
    mean: Any = config.get("mean")
    std: Any = config.get("std")
    if mean is None and std is None:
        return None
    try:
        usable = type(mean) in (int, float) and type(std) in (int, float)
        if usable and math.isfinite(mean) and math.isfinite(std) and std > 0:
            return Normalisation(float(mean), float(std))
    except OverflowError:  # an integer too large for a float
        pass
    raise ValueError(
        f"config.json has mean {mean!r:.40} and std {std!r:.40}: to normalise, both must be finite "
        "numbers and std above 0"
    )


def tensor_shapes(folder: Path) -> Shapes:
    """The shape of every tensor, without reading the weights; ValueError for damaged files."""
    return {name: shape for path in _files(folder) for name, shape in _shapes_in(path).items()}


def read_tensor(folder: Path, name: str) -> Any:
    """One tensor of a folder, as stored."""
    import torch
    from safetensors import safe_open

    path = next(path for path in _files(folder) if name in _shapes_in(path))
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            return file.get_tensor(name)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)[name].clone()


def _files(folder: Path) -> list[Path]:
    """The file of the weights, or the shards that an index names."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            try:
                names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
                return [folder / Path(shard).name for shard in names]
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{index} is damaged: copy the checkpoint again") from None
    raise ValueError(f"{folder} has no weights, neither {' nor '.join(WEIGHT_FILES)}, nor shards")


def _shapes_in(path: Path) -> Shapes:
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        tensors = torch.load(path, map_location="meta", weights_only=True)
        return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: copy the checkpoint again") from None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, AttributeError) as bad:
        raise ValueError(
            f"{path} is damaged ({first_line(bad)}): copy the checkpoint again"
        ) from None


def _architecture_problems(folder: Path, config: dict[str, Any]) -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    kind = config.get("model_type")
    if isinstance(kind, str) and kind in MODEL_MAPPING_NAMES:
        return []
    return [f"{folder}: transformers has no model of type {kind!r:.40} (code in it is not run)"]


def _head_problems(folder: Path, config: dict[str, Any], prefix: str, shapes: Shapes) -> list[str]:
    """What is wrong with the value head: one output, of the model's width, without bias."""
    name, width = f"{prefix}.weight", _number(config, "hidden_size", "n_embd", "d_model")
    shape = shapes.get(name)
    if shape is None:
        other = [
            each
            for each, (*rows, columns) in shapes.items()
            if each.count(".") == 1 and columns == width and len(rows) == 1 and rows[0] <= 8
        ]
        if other:
            return [
                f"{folder} has no value head {name}, but {', '.join(other)}: if that is it, give "
                "its name without .weight as --ds.value_head_prefix"
            ]
        architecture = str((config.get("architectures") or ["?"])[0])
        causal = "lm_head.weight" in shapes or architecture.endswith("ForCausalLM")
        what = f"is a causal model ({architecture})" if causal else f"has no value head {name}"
        return [f"{folder} {what}: train a reward model with `openrlhf-js rm train`"]
    if len(shape) != 2 or shape[0] != 1:
        return [f"{folder}: the value head {name} has shape {list(shape)}; a reward is one output"]
    if width and shape[1] != width:
        return [f"{folder}: the value head {name} takes {shape[1]} values, the model gives {width}"]
    if f"{prefix}.bias" in shapes:
        return [f"{folder}: the value head has a bias, {prefix}.bias, which OpenRLHF would drop"]
    return []


def _number(config: dict[str, Any], *names: str) -> int | None:
    """The first of these settings, of the model or of its text part."""
    parts = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    found = [part[name] for part in parts for name in names if isinstance(part.get(name), int)]
    return found[0] if found else None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
