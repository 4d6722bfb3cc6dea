import json

import pytest

from openrlhf_js.sampling.prompts import Form, Prompt, asked, check_lengths, drawn, rows_of

ROWS = [{"input": f"q{i}", "label": str(i), "datasource": f"t/{i % 2}"} for i in range(10)]


class Tokenizer:
    """Characters are tokens; a template puts marks around messages."""

    chat_template = "there"

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return type("Encoded", (), {"input_ids": [ord(each) for each in text]})

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert (tokenize, add_generation_prompt) == (False, True)
        return "".join(f"<{each['role']}>{each['content']}" for each in messages) + "<assistant>"


def test_rows_of_a_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert rows_of(path) == ROWS


@pytest.mark.parametrize(
    ("text", "message"), [("", "holds no prompt"), ('{"a": 1}\n{"b"\n', r"line 2: not JSON")]
)
def test_rows_of_a_bad_file(tmp_path, text, message):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        rows_of(path)


def test_fewer_prompts_are_the_first_of_more():
    five, ten = drawn(ROWS, 5, 128, 0), drawn(ROWS, 10, 128, 0)
    assert ten[:5] == five
    assert ten != ROWS
    assert sorted(ten, key=ROWS.index) == ROWS
    assert drawn(ROWS, 5, 128, 1) != five


def test_how_many_where_nobody_says():
    assert len(drawn(ROWS, None, 128, 0)) == 10
    assert len(drawn(ROWS, None, 4, 0)) == 4
    with pytest.raises(ValueError, match="11, but there are 10 prompts; ask for fewer"):
        drawn(ROWS, 11, 128, 0)


def test_plain_text():
    assert asked(ROWS[:1], Form(), Tokenizer()) == [Prompt("q0", "0", "t/0", [113, 48])]


def test_without_label_and_group():
    found = asked([{"q": "a"}], Form(input_key="q", label_key=None), Tokenizer())
    assert found == [Prompt("a", "", "", [97])]


@pytest.mark.parametrize("value", ["q", [{"role": "user", "content": "q"}]])
def test_chat(value):
    (found,) = asked([{"input": value, "label": ""}], Form(apply_chat_template=True), Tokenizer())
    assert found.text == "<user>q<assistant>"


def test_input_template():
    (found,) = asked(ROWS[:1], Form(input_template="U: {}\nA:"), Tokenizer())
    assert found.text == "U: q0\nA:"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "1"}, "nothing under 'input' .--input_key.; keys seen: label"),
        ({"input": "q"}, "nothing under 'label' .--label_key.; keys seen: input"),
        ({"input": "q", "label": 3}, "the label 3 under 'label' is int; it must be text"),
        ({"input": [], "label": "1"}, "messages need --apply_chat_template"),
        ({"input": "", "label": "1"}, "a prompt is empty"),
        ({"input": "q", "label": "1", "images": ["a.png"]}, "models of text only"),
    ],
)
def test_bad_rows(row, message):
    with pytest.raises(ValueError, match=message):
        asked([row], Form(), Tokenizer())


def test_no_chat_template():
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template: leave out --apply_chat_template"):
        asked(ROWS, Form(apply_chat_template=True), tokenizer)


def test_lengths():
    prompts = [Prompt("", "", "", [1] * length) for length in (3, 10)]
    check_lengths(prompts, 10, 20)
    check_lengths(prompts, 10, None)
    with pytest.raises(ValueError, match=r"1 of 2 prompts.*Lower --max_new_tokens to 9 or less"):
        check_lengths(prompts, 10, 19)
    with pytest.raises(ValueError, match=r"1 of 2 prompts are too long.*Take them out"):
        check_lengths(prompts, 1, 10)
