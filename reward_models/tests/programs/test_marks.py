"""Marks of thoughts: those at the end of a prompt, and those of a chat template."""

import pytest
from jinja2 import TemplateError
from thoughts import MARKS

from answer_graders.marks import is_mark, marks_of_template, opening_mark


class Tokenizer:
    """Renders an assistant's thought between two texts, or none."""

    def __init__(self, opening, closing, field="reasoning_content"):
        self.opening = opening
        self.closing = closing
        self.field = field

    def apply_chat_template(self, messages, tokenize):
        assert not tokenize
        question, reply = messages
        thought = f"{self.opening}\n{reply[self.field]}\n{self.closing}\n" if self.field else ""
        return f"<|user|>{question['content']}<|assistant|>{thought}{reply['content']}<|end|>"


@pytest.mark.parametrize(
    ("opening", "closing", "names"),
    [
        ("<musing>", "</musing>", ["musing"]),
        ("<think>", "</think>", ["think"]),
        ("<|plan_start|>", "<|plan_end|>", ["plan"]),
        ("[PLAN]", "[/PLAN]", ["plan"]),
        ("<musing>", "</plan>", []),
        ("", "", []),
        ("<musing>", "<musing>", []),
    ],
)
def test_the_marks_of_a_template(opening, closing, names):
    assert marks_of_template(Tokenizer(opening, closing)) == names
    assert marks_of_template(Tokenizer(opening, closing, field="thinking")) == names
    assert marks_of_template(Tokenizer(opening, closing, field="")) == []


def test_a_template_that_takes_no_such_conversation():
    class Strict:
        def apply_chat_template(self, messages, tokenize):
            raise TemplateError("roles must alternate")

    assert marks_of_template(Strict()) == []


def test_the_end_of_a_prompt():
    for opening, closing in MARKS:
        assert opening_mark(f"<|user|>Q<|assistant|>{opening}\n") == opening.strip()
        assert opening_mark(f"<|user|>Q<|assistant|>{opening}\n{closing}\n") == ""
        assert is_mark(opening.strip())
        assert is_mark(closing) == (closing not in ("<|end|>", "<|call|>"))
    for prompt in ("", "<|im_start|>assistant\n", "[/INST]", "<|end_header_id|>\n\n", "a < b>"):
        assert opening_mark(prompt) == ""
