"""A reward model's folder, and what keeps it from being used."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

WEIGHTS = "model.safetensors"


def checkpoint_problems(
    folder: str | Path,
    value_head_prefix: str = "score",
    *,
    normalize: bool = False,
    trust_remote_code: bool = False,
) -> list[str]:
    """What keeps a folder from being used as a reward model."""
    folder = Path(folder)
    try:
        config = read_config(folder, trust_remote_code)
        problems = _head_problems(folder, config, head_prefix(config, value_head_prefix))
        if normalize and normalisation(config) is None:
            problems.append(f"{folder}/config.json has no mean and std to normalise with")
    except ValueError as error:
        return [str(error)]
    return problems + tokenizer_problems(folder, trust_remote_code=trust_remote_code)


def tokenizer_problems(
    folder: str | Path, *, messages: bool = False, trust_remote_code: bool = False
) -> list[str]:
    """What a tokenizer lacks to train or run a reward model, one line each; EOS may serve as
    padding.

    With `messages` it needs a chat template.
    """
    from transformers import AutoTokenizer

    folder = Path(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # tokenizers raises bare Exceptions on damaged files
        return [f"{folder} has no tokenizer that can be loaded: {first_line(error)}"]
    embeddings = math.inf
    if (folder / "config.json").is_file():
        config = read_config(folder, trust_remote_code)
        embeddings = getattr(config.get_text_config(), "vocab_size", math.inf)
    problems = []
    if tokenizer.eos_token_id is None:
        problems.append(f"{folder} has no EOS token: set eos_token in tokenizer_config.json")
    for name in ("eos", "pad"):  # some tokenizers add special tokens without an embedding
        token = getattr(tokenizer, f"{name}_token_id")
        if token is not None and token >= embeddings:
            problems.append(
                f"{folder}: {name}_token {token}, and the model has {embeddings} embeddings"
            )
    if messages and not tokenizer.chat_template:
        problems.append(f"{folder} has no chat template: use the model's instruct variant")
    return problems


def load_tokenizer(folder: Path, *, messages: bool, trust_remote_code: bool) -> Any:
    """The tokenizer; ValueError lists its problems, if any."""
    from transformers import AutoTokenizer

    problems = tokenizer_problems(folder, messages=messages, trust_remote_code=trust_remote_code)
    if problems:
        raise ValueError("\n".join(problems))
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)


def read_config(folder: Path, trust_remote_code: bool = False) -> Any:
    """The configuration as transformers loads it; ValueError where it cannot."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # whatever a damaged file raises
        raise ValueError(f"{folder} has no config.json that loads: {first_line(error)}") from None


def head_prefix(config: Any, default: str) -> str:
    """The value head's name: config.json has precedence, as in OpenRLHF."""
    return getattr(config, "value_head_prefix", None) or default


class Normalisation(NamedTuple):
    """Mean and std of the rewards of a model."""

    mean: float
    std: float


def normalisation(config: Any) -> Normalisation | None:
    """Mean and std of rewards in config.json, None without them; ValueError if unusable."""
    mean: Any = getattr(config, "mean", None)
    std: Any = getattr(config, "std", None)
    if mean is None and std is None:
        return None
    if _is_finite(mean) and _is_finite(std) and std > 0:
        return Normalisation(mean, std)
    raise ValueError(
        f"config.json has mean {mean!r:.40}, std {std!r:.40}: both must be finite, and std above 0"
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor; ValueError for damaged files."""
    return {name: tuple(tensor.shape) for name, tensor in read_tensors(folder).items()}


def read_tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of the safetensors files, mapped; ValueError where they are damaged."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    try:
        for file in _weight_files(folder):
            tensors.update(load_file(file))
    except Exception as error:  # of safetensors or JSON
        raise ValueError(
            f"the weights in {folder} cannot be read ({first_line(error)}): "
            "copy the checkpoint again"
        ) from None
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors file, or the shards that an index names; none where there is neither."""
    whole = folder / WEIGHTS
    index = folder / f"{WEIGHTS}.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        return []
    shards = json.loads(index.read_bytes())["weight_map"].values()
    return sorted({folder / Path(shard).name for shard in shards})


def _head_problems(folder: Path, config: Any, prefix: str) -> list[str]:
    """What is wrong with the value head: one output, of the model's width, without bias."""
    name = f"{prefix}.weight"
    width = config.get_text_config().hidden_size
    shapes = tensor_shapes(folder)
    if name not in shapes and (folder / "adapter_config.json").is_file():
        return [
            f"{folder} is a LoRA adapter, which OpenRLHF 0.11.2 saves without its value head: "
            "train again with `openrlhf-js rm train`, which saves the merged model"
        ]
    if name not in shapes:
        return [
            f"{folder} has no value head {name} in {WEIGHTS}: give its name as "
            "--ds.value_head_prefix (--value_head_prefix of `rm eval`); of a language model "
            "`openrlhf-js rm train` makes a reward model"
        ]
    if shapes[name] != (1, width):
        shape = list(shapes[name])
        return [f"{folder}: the value head {name} has shape {shape}, a reward needs [1, {width}]"]
    bias = f"{prefix}.bias"
    if bias in shapes:
        return [f"{folder}: the value head has a bias, {bias}, which OpenRLHF would drop"]
    return []


def first_line(error: BaseException) -> str:
    """The first line of an error's message that is not empty, at most 200 characters."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    return next(lines, type(error).__name__)[:200]
