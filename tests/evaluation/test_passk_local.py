import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.evaluation.passk.items import item_of
from openrlhf_js.evaluation.passk.local import prompts_of, sample_local
from openrlhf_js.evaluation.passk.samples import SampleFile
from openrlhf_js.sampling.engines import key

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import items, lines

END = 99
ITEMS = items(4)


class Letters:
    """A tokenizer of one token a character."""

    def __init__(self, chat_template=None):
        self.chat_template = chat_template

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return type("Encoded", (), {"input_ids": list(map(ord, text))})

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize and add_generation_prompt
        return "".join(f"<{each['role']}>{each['content']}" for each in messages) + "<say>"


class Keyed:
    """An engine whose responses are a formula of the key; stops after some calls."""

    def __init__(self, calls=None):
        self.calls, self.batches = calls, []

    def sample(self, prompts, keys):
        if self.calls == len(self.batches):
            raise KeyboardInterrupt
        self.batches.append(len(prompts))
        said = (rf"\boxed{{{key % 3 + 1}}}" for key in keys)
        tokens = ([*map(ord, text)] for text in said)
        return [
            np.array(each + [END] * (key % 2), dtype=np.int32)
            for each, key in zip(tokens, keys, strict=True)
        ]


def decode(tokens):
    return "".join(map(chr, tokens))


def sampled(folder, engine, rows=6, samples=5):
    prompts = prompts_of(ITEMS, Letters(), "auto")
    with SampleFile(folder, "toy", {}, ITEMS) as file:
        told = []
        sample_local(file, ITEMS, prompts, samples, engine, (END,), decode, 3, rows, told.append)
        return file.path, told


def in_order(path):
    return sorted(lines(path), key=lambda row: (row["item"], row["draw"]))


def test_samples_by_hand(tmp_path):
    path, told = sampled(tmp_path, Keyed())
    assert told == [6, 12, 18, 20]
    for row in lines(path):
        own = key(3, row["item"], row["draw"])
        answer = str(own % 3 + 1)
        assert row["seed"] == own
        assert row["text"] == rf"\boxed{{{answer}}}"  # without its end
        assert row["finish_reason"] == ("stop" if own % 2 else "length")
        assert row["tokens"] == len(row["text"]) + own % 2
        right = answer == ITEMS[row["item"]].label
        assert (row["status"], row["answer"]) == ("correct" if right else "wrong", answer)


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_what_was_stopped_goes_on_with_the_same_batches(tmp_path, calls):
    whole, _ = sampled(tmp_path / "whole", Keyed())
    with pytest.raises(KeyboardInterrupt):
        sampled(tmp_path / "stopped", Keyed(calls))
    rest = Keyed()
    path, _ = sampled(tmp_path / "stopped", rest)
    assert rest.batches == [6, 6, 6, 2][calls:]
    assert lines(path) == lines(whole)


def test_neither_batch_size_nor_later_samples_change_a_sample(tmp_path):
    few, _ = sampled(tmp_path / "few", Keyed(), rows=3, samples=2)
    assert len(lines(few)) == 8
    more, _ = sampled(tmp_path / "few", Keyed(), rows=64, samples=5)
    whole, _ = sampled(tmp_path / "whole", Keyed())
    assert in_order(more) == in_order(whole)


MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
CHAT = item_of({"input": MESSAGES, "label": "3", "datasource": "gsm8k"})
TEXT = item_of({"input": "T", "label": "3", "datasource": "gsm8k"})


@pytest.mark.parametrize(
    ("form", "template", "expected"),
    [
        ("auto", "x", ["<system>S<user>U<say>", "<user>T<say>"]),
        ("auto", None, ["S\n\nU", "T"]),
        ("text", "x", ["S\n\nU", "T"]),
        ("chat", "x", ["<system>S<user>U<say>", "<user>T<say>"]),
    ],
)
def test_prompts(form, template, expected):
    found = prompts_of([CHAT, TEXT], Letters(template), form)
    assert [each.text for each in found] == expected
    assert [decode(each.tokens) for each in found] == expected


def test_prompts_that_cannot_be_given():
    with pytest.raises(ValueError, match="no chat template: take --prompt_form text"):
        prompts_of([TEXT], Letters(), "chat")
    seen = TEXT._replace(images=["a.png"])
    with pytest.raises(ValueError, match=r"1 of 2 items have images.*serve the model"):
        prompts_of([TEXT, seen], Letters(), "auto")
