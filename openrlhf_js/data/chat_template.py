"""Prompts as a model gets to see them: its own chat template, and its own tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openrlhf_js.data.reading import IMAGE_TAG, Example
from openrlhf_js.tasks.hub import quiet_hub


class ChatTemplate:
    """Turns messages into the text that OpenRLHF hands to the policy.

    Args:
        model: folder or name on the hub of a model, or of its tokenizer.

    Raises:
        ValueError: there is no tokenizer, or it has no chat template.
    """

    def __init__(self, model: str):
        try:
            self._processor = _load(model)
        except (OSError, ValueError) as error:
            raise ValueError(f"no tokenizer in {model}: {_first_line(error)}") from error
        if not getattr(self._processor, "chat_template", None):
            raise ValueError(
                f"the tokenizer in {model} has no chat template, which training with "
                "--data.apply_chat_template needs: take the model's instruct variant, or add "
                "`chat_template` to its tokenizer_config.json"
            )

    def text(self, example: Example) -> str:
        """The prompt, up to where the response begins.

        Raises:
            ValueError: the template refuses the messages.
        """
        from jinja2 import TemplateError

        messages = [{**each, "content": _parts(each["content"])} for each in example.messages]
        try:
            return self._processor.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise ValueError(f"the chat template refuses it: {_first_line(error)}") from error

    def tokens(self, example: Example) -> int:
        """How many tokens the prompt takes, those of its images among them.

        Raises:
            ValueError: the template refuses the messages, or an image cannot be read.
        """
        text = self.text(example)
        if not hasattr(self._processor, "image_processor"):
            if example.images:
                raise ValueError("there are images, but the model takes text only")
            # Quietly: the tokenizer's own idea of a longest text is not the budget.
            tokens = self._processor(text=text, add_special_tokens=False, verbose=False)
            return len(tokens["input_ids"])
        from PIL import Image

        try:
            images = [Image.open(image) for image in example.images]
        except OSError as error:
            raise ValueError(f"an image cannot be read: {error}") from error
        made = self._processor(text=[text], images=images or None, add_special_tokens=False)
        return len(made["input_ids"][0])


def _load(model: str) -> Any:
    """The processor of a model with eyes, the tokenizer of another."""
    from huggingface_hub import hf_hub_download
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError):
        if Path(model).is_dir():
            raise
        # By itself: without a network, AutoProcessor would try six files for half a minute each.
        with quiet_hub():
            hf_hub_download(model, "tokenizer_config.json")
            return AutoProcessor.from_pretrained(model)


def _parts(content: str) -> str | list[dict[str, str]]:
    """What chat templates of models with eyes take: text and images, as OpenRLHF parts them."""
    if IMAGE_TAG not in content:
        return content
    parts: list[dict[str, Any]] = []
    for number, text in enumerate(content.split(IMAGE_TAG)):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": text.strip()}] if text.strip() else []
    return parts


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
