"""Prompts as they are measured before a run: against upstream's text and tokens."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from openrlhf_js.plugin.prompts import Room, measure, render


def tokenizer_of_bytes(normalizer: normalizers.Normalizer) -> PreTrainedTokenizerFast:
    """No tokenizer gives a text more tokens than one for each byte."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(sorted(alphabet))}, []))
    model.normalizer = normalizer
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return PreTrainedTokenizerFast(tokenizer_object=model)


TOKENIZERS = [
    tokenizer_of_bytes(make())
    for make in (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
]


@given(st.lists(st.text("a \u00e9\u0344\ufdfa\uff01\U0001d160") | st.text(), max_size=8), st.data())
def test_empty_and_long_texts_are_those_that_the_tokenizer_says(texts, data):
    tokenizer = data.draw(st.sampled_from(TOKENIZERS))
    limit = data.draw(st.integers(1, 40))
    lengths = [len(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    found = measure(dict(enumerate(texts)), tokenizer, Room.of(limit + 3, 3))
    assert found.empty == [place for place, length in enumerate(lengths) if not length]
    assert found.long == {place: length for place, length in enumerate(lengths) if length > limit}


def template(chat, tokenize, add_generation_prompt):
    assert (tokenize, add_generation_prompt) == (False, True)
    return repr(chat)


@pytest.mark.parametrize(
    ("prompt", "flags"),
    [
        ("1+1?", {}),
        ("1+1?", {"data.input_template": "Q: {}\nA:"}),
        ("1+1?", {"data.input_template": "Q:"}),  # upstream takes it for none
        ("<image>Which?", {"data.apply_chat_template": True}),
        ([{"role": "user", "content": "1+1?"}], {"data.apply_chat_template": True}),
        ([{"role": "user", "content": None}], {"data.apply_chat_template": True}),
        (
            [{"role": "user", "content": "a <image> b"}, {"role": "user", "content": [{"x": 1}]}],
            {"data.apply_chat_template": True, "data.input_template": "Q: {}"},
        ),
    ],
)
def test_a_prompt_is_rendered_as_upstream_renders_it(prompt, flags):
    from openrlhf.datasets.prompts_dataset import preprocess_data

    flat = {"data.input_template": None, "data.apply_chat_template": False, **flags}
    wanted = flat["data.input_template"]
    wanted = wanted if wanted and "{}" in wanted else None  # as upstream's validation has it
    chat = template if flat["data.apply_chat_template"] else None
    text, _ = preprocess_data({"input": prompt}, wanted, apply_chat_template=chat)
    assert render(prompt, flat, SimpleNamespace(apply_chat_template=template)) == text
