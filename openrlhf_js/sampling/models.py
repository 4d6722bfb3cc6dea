"""A model's folder: where it is, the Python in it, a fingerprint, its tokenizer and context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import fingerprint
from openrlhf_js.common.processors import load_processor

NOT_DOWNLOADED = ("*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*")
PYTHON = "*.py"  # of a model, downloaded only where it is trusted
TRUST = "--trust_remote_code"
CONFIGURATIONS = "*config*.json"  # the files in which transformers looks for `auto_map`
GENERATION = "custom_generate/generate.py"  # which transformers runs without being referred to it
FINGERPRINTED = (  # what decides what a model says
    *("*.safetensors", "*.bin", "config.json", "*.index.json"),
    *("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "chat_template*"),
    *("processor_config.json", "preprocessor_config.json"),
)


class ModelFiles(NamedTuple):
    """A model without its weights."""

    folder: Path
    tokenizer: Any
    config: Any
    processor: Any = None  # of a model that sees

    @property
    def context(self) -> int | None:
        """Tokens of prompt and response together that it takes; None where nothing says."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None)

    def ends(self) -> tuple[int, ...]:
        """The tokens that end a response: of tokenizer, configuration and generation settings."""
        from transformers import GenerationConfig

        own = getattr(self.config.get_text_config(), "eos_token_id", None)
        ends = [self.tokenizer.eos_token_id, own]
        if (self.folder / "generation_config.json").is_file():
            ends.append(GenerationConfig.from_pretrained(self.folder).eos_token_id)
        flat = [each for end in ends for each in (end if isinstance(end, list) else [end])]
        return tuple(sorted({each for each in flat if each is not None}))


def local_folder(name_or_path: str | Path, **wanted: Any) -> Path:
    """The folder itself, or the one that the hub's files were downloaded to.

    `wanted` is as `snapshot_download` takes it; ValueError where the hub does not give them. The
    Python of a model stays on the hub.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        wanted = {"ignore_patterns": [*NOT_DOWNLOADED, PYTHON], **wanted}
        return Path(snapshot_download(str(name_or_path), **wanted))
    except (OSError, ValueError) as error:
        said = f"{name_or_path} is not a folder here, and the hub does not give it: {error}"
        raise ValueError(said.splitlines()[0]) from error


def model_folder(
    name_or_path: str | Path, trust_remote_code: bool, flag: str = TRUST, **wanted: Any
) -> Path:
    """The folder of a model, as `local_folder` finds it; it has no Python that is not trusted.

    Every program gets its models here, before anything of them is loaded. ValueError if the folder
    would have its own Python run and `trust_remote_code` is false; `flag` is what allows it.
    """
    if trust_remote_code:
        return local_folder(name_or_path, **{"ignore_patterns": [*NOT_DOWNLOADED], **wanted})
    folder = local_folder(name_or_path, **wanted)
    if code := "; ".join(own_code(folder)):
        raise ValueError(
            f"{name_or_path} would run its own Python ({code:.300}): read it, then allow it with "
            f"{flag}, or take a copy without auto_map if transformers itself has this model"
        )
    return folder


def own_code(folder: Path) -> Iterator[str]:
    """The Python that loading a model folder would run, by the file that calls for it.

    transformers and vLLM run what `auto_map` in a configuration refers to, in this folder or in
    another repository of the hub, and `GENERATION`.
    """
    for path in sorted(folder.glob(CONFIGURATIONS)):
        if classes := list(dict.fromkeys(_mapped_classes(path))):
            yield f"{path.name}: {', '.join(classes)}"
    if (folder / GENERATION).exists():
        yield GENERATION


def _mapped_classes(path: Path) -> Iterator[str]:
    """What `auto_map` refers to, at any depth: "file.Class" or "repository--file.Class"."""
    maps: list[Any] = []

    def keep(content: dict[str, Any]) -> dict[str, Any]:
        maps.append(content.get("auto_map"))
        return content

    try:
        json.loads(path.read_bytes(), object_hook=keep)
    except (ValueError, RecursionError):  # transformers refuses such a file, and says why
        return
    for classes in maps:
        values = classes.values() if isinstance(classes, dict) else [classes]
        for value in values:
            for name in value if isinstance(value, list) else [value]:
                if name:
                    yield " ".join(str(name).split())


def model_files(folder: Path, trust_remote_code: bool = False) -> ModelFiles:
    """Tokenizer and configuration of a model folder; ValueError where they cannot be loaded."""
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        if len(tokenizer) < 4:  # which transformers makes up where there is none
            raise ValueError("it has no tokenizer")
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        processor = None
        if hasattr(config, "vision_config"):
            processor = load_processor(folder, trust_remote_code)
        return ModelFiles(folder, tokenizer, config, processor)
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{folder} is not a model that loads: {error}"
        raise ValueError(said.splitlines()[0]) from error


def model_fingerprint(folder: Path) -> str:
    """The sha256 of a model's files, with progress on stderr."""
    patterns = [*FINGERPRINTED, *([f"**/{PYTHON}"] if any(own_code(folder)) else [])]
    paths = {path for pattern in patterns for path in folder.glob(pattern)}
    size = sum(path.stat().st_size for path in paths)
    with progress("reading the model", size // 10**6, "MB") as bar:
        return fingerprint(paths, lambda read: bar.update(read // 10**6))
