"""Preference files row by row, and the texts that pairs become."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from jinja2 import TemplateError

from openrlhf_js.reward_model.preferences import (
    Keys,
    Pair,
    ended,
    pair,
    read_pairs,
    rendered,
    texts,
)
from openrlhf_js.reward_model.rows import file_rows


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def template(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
    assert tokenize is False
    made = "".join(f"<{each['role']}>{each['content']}|\n" for each in messages)
    return made + ("<assistant>" if add_generation_prompt else "")


ROWS = [
    {"p": "2+2=", "chosen": "4", "rejected": "5", "subset": "sums"},
    {"p": "é\n", "chosen": "\u2028", "rejected": "7\n\n", "subset": None},
]
PAIRS = [Pair("2+2=", "4", "5", 1, "sums"), Pair("é\n", "\u2028", "7\n\n", 2, "")]


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS))


def write_list(path: Path) -> None:
    path.write_text("\n" + json.dumps(ROWS, indent=1))


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", write_lines),
        ("a.json", write_lines),
        ("b.json", write_list),
        ("a.parquet", write_parquet),
    ],
)
def test_every_format_holds_the_same_pairs(name, write, tmp_path):
    write(tmp_path / name)
    assert list(read_pairs(tmp_path / name, "p")) == PAIRS


def test_a_csv_names_the_line_where_a_row_ends(tmp_path):
    write_csv(tmp_path / "a.csv")
    found = list(read_pairs(tmp_path / "a.csv", "p"))
    assert [each.line for each in found] == [2, 6]  # the quoted text holds line ends
    assert [(each.prompt, each.chosen, each.rejected) for each in found] == [
        (each.prompt, each.chosen, each.rejected) for each in PAIRS
    ]


def test_blank_lines_and_a_byte_order_mark_keep_the_numbers_right(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n \n{"chosen": "a", "rejected": "b"}\n\n[]\n')
    rows = [(row.place, type(row.value)) for row in file_rows(path)]
    assert rows == [("line 3", dict), ("line 5", ValueError)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON"),
        (b'"chosen"', "not a JSON object, but str"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"chosen": ' + b"9" * 5000 + b"}", "a number is too long"),
        (b'{"chosen": "\xff"}', "not UTF-8"),
        (b'{"chosen": "a"}', "no value under the key 'rejected'; keys seen: chosen"),
        (b'{"chosen": null, "rejected": "a"}', "no value under the key 'chosen'"),
        (b'{"chosen": 3, "rejected": "a"}', "'chosen' must hold text or a list of messages, not 3"),
        (b'{"chosen": [], "rejected": "a"}', "list of messages, not []"),
        (b'{"chosen": "a", "rejected": ["b"]}', "message 1 in 'rejected' must have a role"),
        (b'{"chosen": "a", "rejected": [{"role": "user"}]}', "message 1 in 'rejected'"),
        (
            b'{"chosen": "a", "rejected": [{"role": "user", "content": "b"}]}',
            "all hold text or all hold messages",
        ),
        (b'{"chosen": "\\ud800", "rejected": "a"}', "half a character"),
    ],
)
def test_what_is_no_pair_is_named_with_its_line(line, problem, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"chosen": "a", "rejected": "b"}\n' + line + b"\n")
    pairs = read_pairs(path)
    assert next(pairs) == Pair(None, "a", "b", 1)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: ") as caught:
        next(pairs)
    assert problem in str(caught.value)


def test_files_that_hold_nothing_or_something_else(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no pair"):
        list(read_pairs(tmp_path / "empty.jsonl"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(ValueError, match="not readable as Parquet"):
        list(read_pairs(tmp_path / "a.parquet"))
    with pytest.raises(ValueError, match="must end in one of"):
        list(read_pairs(tmp_path / "a.txt"))
    with pytest.raises(FileNotFoundError):
        list(read_pairs(tmp_path / "absent.jsonl"))


@pytest.mark.parametrize("margin", [None, "1", True, float("nan"), 10**400, [1.0]])
def test_a_margin_is_a_finite_number_where_one_is_wanted(margin):
    row = {"chosen": "a", "rejected": "b", "margin": margin}
    assert pair(row, Keys(), 1) == Pair(None, "a", "b", 1)
    with pytest.raises(ValueError, match="'margin' must hold a finite number, not"):
        pair(row, Keys(margin="margin"), 1)
    for number in (0, -1.5, 3):
        assert pair(row | {"margin": number}, Keys(margin="margin"), 1)


def test_other_keys():
    keys = Keys("q", "good", "bad", "kind")
    row = {"q": "1", "good": "2", "bad": "3", "kind": 4}
    assert pair(row, keys, 9) == Pair("1", "2", "3", 9, "4")


def test_text_with_and_without_a_prompt():
    assert texts(Pair("2+2=", "4\n", "5", 1)) == ("2+2=4\n", "2+2=5")
    assert texts(Pair("2+2=", "4", "5", 1), input_template="Q {} A") == ("Q 2+2= A4", "Q 2+2= A5")
    assert texts(Pair(None, "4", "5", 1), input_template="Q {} A") == ("4", "5")


def test_the_end_comes_once_after_a_space_and_without_line_ends():
    assert ended("four\n\n", "</s>") == "four </s>"
    assert ended("four</s>\n", "</s>") == "four</s>"
    assert ended("", "</s>") == " </s>"
    assert texts(Pair(None, "4</s>", "5", 1), eos_token="</s>") == ("4</s>", "5 </s>")


def test_messages_through_a_template():
    question, four, five = said("user", "2+2"), said("assistant", "4"), said("assistant", "5")
    expected = ("<user>2+2|\n<assistant>4|\n", "<user>2+2|\n<assistant>5|\n")
    apart = Pair([question], [four], [five], 1)
    together = Pair(None, [question, four], [question, five], 1)
    assert texts(apart, template) == texts(together, template) == expected
    assert rendered(apart, template).whole


def test_a_generation_prompt_that_is_no_beginning_is_noticed():
    def thinking(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
        made = template(messages, tokenize, add_generation_prompt)
        return made + ("<think>" if add_generation_prompt else "")

    made = rendered(
        Pair([said("user", "q")], [said("assistant", "a long one")], [said("assistant", "b")], 1),
        thinking,
    )
    # what OpenRLHF trains on: seven characters of the response are lost
    assert made.chosen == "<user>q|\n<assistant><think>one|\n"
    assert not made.whole


def test_text_and_messages_are_not_taken_for_each_other():
    with pytest.raises(ValueError, match=r"need --data\.apply_chat_template"):
        texts(Pair(None, [said("user", "a")], [said("user", "b")], 1))
    with pytest.raises(ValueError, match="is for messages, and the sides hold text"):
        texts(Pair(None, "a", "b", 1), template)


def test_a_template_that_refuses_is_bad_input():
    def refuses(*_: object, **__: object) -> str:
        raise TemplateError("roles must alternate\nsomewhere")

    with pytest.raises(ValueError, match=r"the chat template refuses it: roles must alternate$"):
        texts(Pair(None, [said("user", "a")], [said("user", "b")], 1), refuses)
