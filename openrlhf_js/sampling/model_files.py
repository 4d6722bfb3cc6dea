"""What a model's folder says of it: its tokenizer, its context, and the tokens that end a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

LEAST_VOCABULARY = 4


class ModelFiles(NamedTuple):
    """A model without its weights.

    Attributes:
        folder: a Hugging Face folder.
        tokenizer: of the folder.
        config: of the folder.
    """

    folder: Path
    tokenizer: Any
    config: Any

    @property
    def context(self) -> int | None:
        """Tokens of prompt and response together that it takes; None: nobody says."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None)

    def ends(self) -> tuple[int, ...]:
        """The tokens that end a response, by tokenizer, configuration and generation settings."""
        from transformers import GenerationConfig

        own = getattr(self.config.get_text_config(), "eos_token_id", None)
        ends = [self.tokenizer.eos_token_id, own]
        if (self.folder / "generation_config.json").is_file():
            ends.append(GenerationConfig.from_pretrained(self.folder).eos_token_id)
        flat = [each for end in ends for each in (end if isinstance(end, list) else [end])]
        return tuple(sorted({each for each in flat if each is not None}))


def model_files(folder: Path) -> ModelFiles:
    """Tokenizer and configuration of a model folder.

    Raises:
        ValueError: one of them cannot be loaded.
    """
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        found = ModelFiles(folder, tokenizer, AutoConfig.from_pretrained(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"--model {folder} is no model that can be loaded: {first}") from error
    if len(tokenizer) < LEAST_VOCABULARY:  # what is made where its files are not there
        raise ValueError(
            f"--model {folder} has no tokenizer: copy the tokenizer's files of the model that it "
            "was trained from into it"
        )
    return found
