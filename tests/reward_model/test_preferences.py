"""Preference files row by row, and the texts that pairs become."""

from __future__ import annotations

import pytest
from jinja2 import TemplateError

from openrlhf_js.reward_model.preferences import (
    Keys,
    PreferencePair,
    ended,
    pair,
    read_pairs,
    rendered,
    texts,
)


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def template(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
    assert tokenize is False
    made = "".join(f"<{each['role']}>{each['content']}|\n" for each in messages)
    return made + ("<assistant>" if add_generation_prompt else "")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b'{"chosen": "a"}', "no value under the key 'rejected'; keys seen: chosen"),
        (b'{"chosen": null, "rejected": "a"}', "no value under the key 'chosen'"),
        (b'{"chosen": 3, "rejected": "a"}', "'chosen' must hold text or a list of messages, not 3"),
        (b'{"chosen": "a", "rejected": [{"role": "user"}]}', "message 1 in 'rejected'"),
        (
            b'{"chosen": "a", "rejected": [{"role": "user", "content": "b"}]}',
            "all hold text or all hold messages",
        ),
    ],
)
def test_a_row_that_is_not_a_pair_is_named_with_its_line(line, problem, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"chosen": "a", "rejected": "b", "subset": "sums"}\n' + line + b"\n")
    pairs = read_pairs(path)
    assert next(pairs) == PreferencePair(None, "a", "b", "line 1", "sums")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: ") as caught:
        next(pairs)
    assert problem in str(caught.value)


@pytest.mark.parametrize("margin", [None, "1", True, float("nan"), 10**400])
def test_the_margin_loss_wants_a_finite_number(margin):
    row = {"chosen": "a", "rejected": "b", "margin": margin}
    assert pair(row, Keys(), "") == PreferencePair(None, "a", "b", "")
    with pytest.raises(ValueError, match="'margin' must hold a finite number, not"):
        pair(row, Keys(margin="margin"), "")
    assert pair(row | {"margin": -1.5}, Keys(margin="margin"), "")


def test_text_with_and_without_a_prompt_and_its_end():
    assert texts(PreferencePair("2+2=", "4\n", "5", "")) == ("2+2=4\n", "2+2=5")
    assert texts(PreferencePair("2+2=", "4", "5", ""), input_template="Q {} A") == (
        "Q 2+2= A4",
        "Q 2+2= A5",
    )
    assert texts(PreferencePair(None, "4", "5", ""), input_template="Q {} A") == ("4", "5")
    assert texts(PreferencePair(None, "4</s>", "5", ""), eos_token="</s>") == ("4</s>", "5 </s>")
    assert ended("four\n\n", "</s>") == "four </s>"
    assert ended("four</s>\n", "</s>") == "four</s>"
    assert ended("", "</s>") == " </s>"


def test_messages_through_a_template():
    question, four, five = said("user", "2+2"), said("assistant", "4"), said("assistant", "5")
    expected = ("<user>2+2|\n<assistant>4|\n", "<user>2+2|\n<assistant>5|\n")
    apart = PreferencePair([question], [four], [five], "")
    together = PreferencePair(None, [question, four], [question, five], "")
    assert texts(apart, template) == texts(together, template) == expected
    assert rendered(apart, template).whole


def test_a_generation_prompt_that_does_not_begin_the_response_is_noticed():
    def thinking(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
        made = template(messages, tokenize, add_generation_prompt)
        return made + ("<think>" if add_generation_prompt else "")

    question, response = [said("user", "q")], [said("assistant", "a long one")]
    made = rendered(PreferencePair(question, response, [said("assistant", "b")], ""), thinking)
    # what OpenRLHF trains on: seven characters of the response are lost
    assert made.chosen == "<user>q|\n<assistant><think>one|\n"
    assert not made.whole


def test_text_and_messages_are_not_confused():
    with pytest.raises(ValueError, match=r"need --data\.apply_chat_template"):
        texts(PreferencePair(None, [said("user", "a")], [said("user", "b")], ""))
    with pytest.raises(ValueError, match="is for messages, and the sides hold text"):
        texts(PreferencePair(None, "a", "b", ""), template)

    def refuses(*_: object, **__: object) -> str:
        raise TemplateError("roles must alternate")

    with pytest.raises(ValueError, match="the chat template refuses it: roles must alternate"):
        texts(PreferencePair(None, [said("user", "a")], [said("user", "b")], ""), refuses)
