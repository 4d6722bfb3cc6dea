"""What a check of preference files finds, and what keeps pairs from being trained on."""

from collections.abc import Iterable

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from answer_graders.programs.files import FileRow
from openrlhf_js.reward_model.check import ALLOWABLE, Making, Report, check
from openrlhf_js.reward_model.preferences import Keys

EOS = "</s>"
WORDS = ["<pad>", EOS, "<unk>", *"abcdefghij"]


def words() -> PreTrainedTokenizerFast:
    """A tokenizer that takes every word for a token."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(2)  # as a file may have it; must not be taken for the length
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token="<pad>", unk_token="<unk>"
    )


def rows(values: Iterable[object]) -> list[FileRow]:
    return [
        FileRow(f"line {n}", value if isinstance(value, dict | ValueError) else {})
        for n, value in enumerate(values, 1)
    ]


def sides(*pairs: tuple[str, str]) -> list[FileRow]:
    return rows({"chosen": chosen, "rejected": rejected} for chosen, rejected in pairs)


def found(data: list[FileRow], **changes: object) -> Report:
    return check([("f", data)], Making(Keys(), words(), 1000)._replace(**changes))


def turns(*contents: str, roles: str = "ua") -> list[dict[str, str]]:
    names = {"u": "user", "a": "assistant"}
    return [{"role": names[r], "content": c} for r, c in zip(roles, contents, strict=True)]


def template(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
    return " ".join(each["content"] for each in messages)


def test_sides_that_are_the_same_to_the_tokenizer():
    report = found(sides(("a", "a"), ("a\n", f"a {EOS}"), ("a", "a ")))
    assert report.problems == {
        "same": [f"f, line {n}: chosen and rejected are the same text" for n in (1, 2)]
    }
    assert report.stopping() == ["same"]
    assert report.stopping(["same"]) == []
    assert "same (2)" in report.refusal(["same"])
    assert "--js.allow same" in report.refusal(["same"])


def test_up_to_a_twentieth_may_be_cut():
    others = [(f"x{n}", "y") for n in range(38)]
    assert found(sides(*others[:19], ("a a a", "b")), max_len=3).stopping() == []  # 1 of 20
    more = found(sides(*others[:37], *[("a a a", "b")] * 2), max_len=3)  # 2 of 39
    assert more.counts == {"cut": 2}
    assert more.stopping() == ["cut"]
    assert more.stopping(["cut"]) == []


def test_lengths_count_the_end_and_the_longer_side():
    # a + </s> = 2 tokens; a b c + </s> = 4
    report = found(sides(("a", "b c"), ("a b c", "a")), max_len=3)
    assert list(report.tokens) == [3, 4]
    assert report.problems == {"cut": ["f, line 2: takes 4 tokens of 3"]}


def test_sides_with_different_prompts_or_none():
    data = [{"chosen": turns("q", "a"), "rejected": turns("other", "b")}]
    data += [{"chosen": turns("q", "a"), "rejected": turns("q", " \n")}]
    assert found(rows(data), template=template).problems == {
        "prompts": ["f, line 1: 'chosen' and 'rejected' differ before the last message"],
        "empty": ["f, line 2: no response in rejected"],
    }


def test_a_prompt_that_no_key_names():
    rest = {"chosen": "a", "rejected": "b"}
    bare = found(rows([{"prompt": "q", **rest}, {"prompt": "a", "chosen": "a c", "rejected": "a"}]))
    assert bare.problems == {"unread": ["f, line 1: the sides lack the text under 'prompt'"]}
    assert bare.stopping() == []
    assert "unread" not in ALLOWABLE
    assert not found(rows([{"prompt": "q", **rest}]), keys=Keys("prompt")).counts
    whole = {"chosen": turns("q", "a"), "rejected": turns("q", "b")}
    for prompt in ("q", turns("q", roles="u")):  # the conversations hold it
        assert not found(rows([{"prompt": prompt, **whole}]), template=template).counts
    cut = {side: messages[1:] for side, messages in whole.items()}
    assert found(rows([{"prompt": "q", **cut}]), template=template).counts["unread"] == 1


def test_what_cannot_be_trained_on_cannot_be_allowed():
    data = rows([ValueError("not JSON"), {"chosen": "a"}, {"chosen": turns("q", "a")}])
    report = found(data)
    assert report.counts == {"no pair": 3}
    assert report.pairs == 0
    assert report.problems["no pair"][0] == "f, line 1: not JSON"
    assert report.stopping(ALLOWABLE) == ["no pair"]
    assert "correct the lines" in report.refusal(["no pair"])
    messages = rows([{"chosen": turns("q", "a"), "rejected": turns("q", "b")}])
    assert found(messages).stopping(ALLOWABLE) == ["no text"]
