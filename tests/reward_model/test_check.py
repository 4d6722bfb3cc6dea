"""What a check of preference files finds, and what keeps pairs from being trained on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from openrlhf_js.reward_model.check import BATCH, Making, check
from openrlhf_js.reward_model.findings import ALLOWABLE, Report
from openrlhf_js.reward_model.lengths import Budget
from openrlhf_js.reward_model.preferences import Keys
from openrlhf_js.reward_model.rows import Row

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


def rows(values: Iterable[object]) -> list[Row]:
    return [
        Row(n, "line", value if isinstance(value, dict | ValueError) else {}, 10)
        for n, value in enumerate(values, 1)
    ]


def sides(*pairs: tuple[str, str]) -> list[Row]:
    return rows({"chosen": chosen, "rejected": rejected} for chosen, rejected in pairs)


def found(data: list[Row], **changes: object) -> Report:
    return check([("f", data)], Making(Keys(), EOS)._replace(**changes))


def turns(*contents: str, roles: str = "ua") -> list[dict[str, str]]:
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool", "x": "human"}
    return [{"role": names[r], "content": c} for r, c in zip(roles, contents, strict=True)]


def template(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
    return " ".join(each["content"] for each in messages)


def test_good_pairs_have_no_problems():
    report = found(sides(("a", "b"), ("a", "c"), ("b", "c")))
    assert report.pairs == 3 and not report.counts and not report.stopping()


def test_sides_that_are_the_same_to_the_tokenizer():
    report = found(sides(("a", "a"), ("a\n", f"a {EOS}"), ("a", "a ")))
    assert report.counts == {"same": 2}
    assert report.problems["same"] == [
        "f, line 1: chosen and rejected are the same text",
        "f, line 2: chosen and rejected are the same text",
    ]
    assert report.stopping() == ["same"] and report.stopping(["same"]) == []


def test_repeated_and_reversed_pairs_point_at_the_first():
    report = found(sides(("a", "b"), ("c", "d"), ("a", "b\n"), ("b", "a"), ("b", "a")))
    assert report.problems["repeated"] == ["f, line 3: see line 1"]
    assert report.problems["reversed"] == ["f, line 4: see line 1", "f, line 5: see line 1"]


def test_pairs_are_compared_across_files_and_with_their_prompts():
    making = Making(Keys("p"), EOS)
    one = rows([{"p": "q", "chosen": "a", "rejected": "b"}])
    two = rows([{"p": "r", "chosen": "a", "rejected": "b"}, *(row.value for row in one)])
    report = check([("one", one), ("two", two)], making)
    assert report.problems == {"repeated": ["two, line 2: see one, line 1"]}
    assert report.tallies["one"].pairs == 1 and report.tallies["two"].pairs == 2


@pytest.mark.parametrize("kind", ["cut", "repeated", "reversed"])
def test_up_to_a_twentieth_pass(kind):
    first = ("a", "b")
    others = [(f"x{n}", "y") for n in range(98)]
    odd = {"cut": ("a a a", "b"), "repeated": first, "reversed": ("b", "a")}[kind]
    budget = Budget(words(), 3)  # tokens
    assert found(sides(first, *others[:18], odd), budget=budget).stopping() == []  # 1 of 20
    again = ("a a a a", "b") if kind == "cut" else odd
    more = found(sides(first, *others[:36], odd, again), budget=budget)  # 2 of 39
    assert more.counts == {kind: 2}
    assert more.stopping() == [kind] and more.stopping([kind]) == []


def test_lengths_count_the_end_and_the_longer_side():
    # a + </s> = 2 tokens; a b c + </s> = 4
    report = found(sides(("a", "b c"), ("a b c", "a")), budget=Budget(words(), 3))
    assert list(report.tallies["f"].tokens) == [3, 4]
    assert report.problems == {"cut": ["f, line 2: takes 4 tokens of 3"]}


def test_sides_that_a_cut_makes_the_same():
    # the last of three tokens becomes the end, so that `a b` is left of both
    report = found(sides(("a b c d", "a b d c"), ("a c d d", "a b d d")), budget=Budget(words(), 3))
    assert report.problems["same"] == ["f, line 1: the same once cut to 3 tokens"]
    assert report.counts == {"cut": 2, "same": 1}


def test_a_tokenizer_that_cuts_on_the_left():
    tokenizer = words()
    tokenizer.truncation_side = "left"
    report = found(
        sides(("a b c d", "b a c d"), ("d c b a", "d b c a")), budget=Budget(tokenizer, 3)
    )
    assert report.problems["same"] == ["f, line 1: the same once cut to 3 tokens"]


def test_encoding_is_whole_whatever_the_tokenizer_did_before():
    tokenizer = words()
    budget = Budget(tokenizer, 3)
    for _ in range(2):
        assert [len(each) for each in budget.encode(["a b c d e", "a"])] == [5, 1]
        assert tokenizer("a b c", truncation=True, max_length=2)["input_ids"] == [3, 4]


def test_a_text_that_the_tokenizer_cannot_take():
    tokenizer = Tokenizer(models.WordLevel({EOS: 0, "a": 1}))  # without a token for the unknown
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    budget = Budget(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS), 3)
    with pytest.raises(ValueError, match=r"f, line 1 to line 2: the tokenizer cannot take a text"):
        found(sides(("a", "a a"), ("a", "b")), budget=budget)


def byte_level(normalizer: object = None, space: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte and one for `aaaa`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([EOS, *alphabet, "aa", "aaaa"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "a"), ("aa", "aa")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False),
        ]
    )
    if normalizer:
        tokenizer.normalizer = normalizer
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)


@settings(deadline=None)
@given(
    st.text(max_size=12) | st.text("a é\u0301\u1100\u1161\U0001d160", max_size=12),
    st.sampled_from([None, normalizers.NFC()]),
    st.booleans(),
)
def test_a_text_that_is_known_to_fit_does(text, normalizer, space):
    budget = Budget(byte_level(normalizer, space), 9)
    if budget.fits(text):
        assert len(budget.encode([text])[0]) <= 9


def test_which_texts_are_known_to_fit():
    short, long = "aé" * 3, "é" * 5  # 9 and 10 bytes
    assert Budget(byte_level(), 9).fits(short) and not Budget(byte_level(), 9).fits(long)
    assert not Budget(byte_level(), 9).fits("e\u0301")  # NFC could make it longer
    assert not Budget(byte_level(normalizers.NFKC()), 9).fits(short)
    assert not Budget(byte_level(space=True), 9).fits(short)
    assert not Budget(words(), 9).fits(short)


def test_every_pair_that_is_cut_is_found_whether_its_tokens_are_counted_or_not(monkeypatch):
    monkeypatch.setattr("openrlhf_js.reward_model.check.BATCH", 2)
    monkeypatch.setattr("openrlhf_js.reward_model.check.COUNTED_FIRST", 1)
    monkeypatch.setattr("openrlhf_js.reward_model.check.COUNTED_EVERY", 3)
    data = sides(*[("b" * n, "aaaa" * n) for n in range(1, 13)])  # n bytes; space and end: 2 tokens
    report = found(data, budget=Budget(byte_level(), 10))
    assert report.counts["cut"] == 4  # 9, 10, 11 and 12
    assert list(report.tallies["f"].tokens) == [3, 4, 7, 8, 13, 14]  # batches 1, 3 and 6


@pytest.mark.parametrize(
    ("roles", "good"),
    [
        ("ua", True),
        ("sua", True),
        ("uaua", True),
        ("suata", True),
        ("uatta", True),
        ("a", False),
        ("u", False),
        ("su", False),
        ("uua", False),
        ("uaa", False),
        ("usa", False),
        ("uta", False),
        ("uat", False),
        ("ussa", False),
        ("xa", False),
    ],
)
def test_roles_alternate_and_the_assistant_speaks_last(roles, good):
    contents = "abcdef"[: len(roles)]
    side = turns(*contents, roles=roles)
    row = {"chosen": side, "rejected": [*side[:-1], {**side[-1], "content": "z"}]}
    report = found(rows([row]), template=template)
    assert report.counts == ({} if good else {"roles": 1})
    assert report.stopping() == ([] if good else ["roles"])


def test_a_prompt_of_its_own_begins_the_conversation():
    row = {"p": turns("q", roles="u"), "chosen": turns("a", roles="a")}
    good = {**row, "rejected": turns("b", roles="a")}
    bad = {**row, "rejected": turns("c", roles="u")}
    report = found(rows([good, bad]), template=template, keys=Keys("p"))
    assert report.problems == {"roles": ["f, line 2: 'rejected' has user, user"]}


def test_both_sides_answer_the_same_prompt():
    row = {"chosen": turns("q", "a"), "rejected": turns("other", "b")}
    report = found(rows([row]), template=template)
    assert report.problems == {
        "prompts": ["f, line 1: 'chosen' and 'rejected' differ before the last message"]
    }
    assert report.stopping() == ["prompts"]


def test_empty_sides():
    data = [{"chosen": turns("q", "a"), "rejected": turns("q", " \n")}]
    report = found(rows(data), template=template)
    assert report.problems == {"empty": ["f, line 1: 'rejected' has no response"]}
    assert found(sides((" ", "a"))).counts == {"empty": 1}


def test_what_cannot_be_trained_on_cannot_be_allowed():
    data = rows([ValueError("not JSON"), {"chosen": "a"}, {"chosen": turns("q", "a")}])
    report = found(data)
    assert report.counts == {"no pair": 3} and report.pairs == 0
    assert report.problems["no pair"][0] == "f, line 1: not JSON"
    assert report.stopping(ALLOWABLE) == ["no pair"]
    messages = rows([{"chosen": turns("q", "a"), "rejected": turns("q", "b")}])
    assert found(messages).stopping(ALLOWABLE) == ["no text"]
    assert found([]).stopping(ALLOWABLE) == ["no pair"]


def test_a_prompt_that_the_template_tears():
    def longer(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
        return template(messages, tokenize) + (" and so" if add_generation_prompt else "")

    row = {"p": turns("q", roles="u"), "chosen": turns("a", roles="a")}
    report = found(
        rows([{**row, "rejected": turns("bb", roles="a")}]), template=longer, keys=Keys("p")
    )
    assert "torn" in report.stopping()


def test_only_the_first_of_a_kind_are_kept_and_all_are_counted():
    report = found(sides(*[("a", "a")] * (2 * BATCH + 1)))
    assert report.counts == {"same": 2 * BATCH + 1} and len(report.problems["same"]) == 3


def test_progress_is_told_of_every_row_once():
    told: list[tuple[int, int]] = []
    data = sides(*[(f"a{n}", "b") for n in range(BATCH + 1)])
    check([("f", data)], Making(Keys(), EOS), progress=lambda n, size: told.append((n, size)))
    assert told == [(BATCH, 10 * BATCH), (1, 10)]
