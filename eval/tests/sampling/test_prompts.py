import json

import pytest

from paired_eval.sampling.prompts import Form, Prompt, asked, check_lengths, drawn, read_prompt_rows

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
    assert read_prompt_rows(path) == ROWS
    for text, message in (("", "holds no prompt"), ('{"a": 1}\n{"b"\n', r"line 2: not JSON")):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_prompt_rows(path)


def test_fewer_prompts_are_the_first_of_more():
    five = drawn(ROWS, 5, 128, 0)
    ten = drawn(ROWS, 10, 128, 0)
    assert ten[:5] == five
    assert ten != ROWS
    assert sorted(ten, key=ROWS.index) == ROWS
    assert drawn(ROWS, 5, 128, 1) != five
    assert len(drawn(ROWS, None, 128, 0)) == 10
    assert len(drawn(ROWS, None, 4, 0)) == 4
    with pytest.raises(ValueError, match="11 prompts are asked for, and there are 10"):
        drawn(ROWS, 11, 128, 0)


@pytest.mark.parametrize(
    ("row", "form", "prompt"),
    [
        (ROWS[0], Form(), Prompt("q0", "0", "t/0", [113, 48])),
        ({"q": "a"}, Form(input_key="q", label_key=None), Prompt("a", "", "", [97])),
        ({"input": "q"}, Form(label_key=None, apply_chat_template=True), "<user>q<assistant>"),
        (
            {"input": [{"role": "user", "content": "q"}]},
            Form(label_key=None, apply_chat_template=True),
            "<user>q<assistant>",
        ),
        (ROWS[0], Form(input_template="U: {}\nA:"), "U: q0\nA:"),
    ],
)
def test_a_row_as_a_prompt(row, form, prompt):
    (found,) = asked([row], form, Tokenizer())
    assert (found.text if isinstance(prompt, str) else found) == prompt


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "1"}, "nothing under 'input' .--input_key.; keys seen: label"),
        ({"input": "q"}, "nothing under 'label' .--label_key.; keys seen: input"),
        ({"input": "q", "label": 0.5}, "a label must be text, .*'label': 0.5"),
        ({"input": [], "label": "1"}, "messages need --apply_chat_template"),
        ({"input": "", "label": "1"}, "a prompt is empty"),
        ({"input": "q", "label": "1", "images": ["a.png"]}, "need a model that sees"),
    ],
)
def test_bad_rows(row, message):
    with pytest.raises(ValueError, match=message):
        asked([row], Form(), Tokenizer())


def test_no_chat_template():
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template, which messages need"):
        asked(ROWS, Form(apply_chat_template=True), tokenizer)


def test_lengths():
    prompts = [Prompt("", "", "", [1] * length) for length in (3, 10)]
    check_lengths(prompts, 10, 20)
    check_lengths(prompts, 10, None)
    with pytest.raises(ValueError, match=r"prompt of 10 tokens .* Lower --max_new_tokens"):
        check_lengths(prompts, 10, 19)
