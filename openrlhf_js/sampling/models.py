"""A model's files: a fingerprint, its tokenizer, context and end tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import fingerprint
from openrlhf_js.common.model_folders import PYTHON, own_code
from openrlhf_js.common.processors import load_processor

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
