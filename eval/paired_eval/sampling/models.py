"""A local model without its weights: its tokenizer, its context and its end tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class ModelFiles(NamedTuple):
    """A model without its weights."""

    folder: Path
    tokenizer: Any
    config: Any
    processor: Any = None  # of a vision-language model

    @property
    def context(self) -> int | None:
        """The most tokens of prompt and response together; None if the configuration has none."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None)

    def ends(self) -> tuple[int, ...]:
        """The tokens that end a response, from tokenizer, configuration and generation settings."""
        from transformers import GenerationConfig

        config = self.config.get_text_config()
        sources = [self.tokenizer.eos_token_id, getattr(config, "eos_token_id", None)]
        if (self.folder / "generation_config.json").is_file():
            sources.append(GenerationConfig.from_pretrained(self.folder).eos_token_id)
        ends: set[int] = set()
        for source in sources:  # a token, several, or None
            if isinstance(source, list):
                ends.update(source)
            elif source is not None:
                ends.add(source)
        return tuple(sorted(ends))


def model_files(folder: Path, trust_remote_code: bool = False) -> ModelFiles:
    """Tokenizer and configuration of a model folder; ValueError if they cannot be loaded."""
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        if len(tokenizer) < 4:  # transformers makes up such a one if there is none
            raise ValueError("it has no tokenizer")
        processor = None
        if hasattr(config, "vision_config"):
            from openrlhf_js.common.processors import load_processor

            processor = load_processor(folder, trust_remote_code)
        return ModelFiles(folder, tokenizer, config, processor)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{folder} is not a model that loads: {error}"
        raise ValueError(message.splitlines()[0]) from error
