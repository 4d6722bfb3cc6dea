"""GSM8K items come from its own layout; a box, a tag, `####` or the last sentence answers."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from answer_graders.tasks import gsm8k

TASK = gsm8k.TASK

ROWS = [
    {"question": "Ann has 3 pens and buys 4. How many?", "answer": "3+4=<<3+4=7>>7.\n#### 7"},
    {"question": "What do 2 cars cost?", "answer": "One is 1,150.\nTwo are 2,300.\n#### 2,300"},
    {"question": "What do 2  cars\ncost?", "answer": "Otherwise: 1150 + 1150\n#### 2300"},
    {"question": "How cold?", "answer": "5 - 12\n#### -7"},
]


def test_a_downloaded_copy(tmp_path):
    for config, rows in (("main", ROWS), ("socratic", ROWS * 2)):
        (tmp_path / config).mkdir()
        for split in ("train", "test"):
            file = tmp_path / config / f"{split}-00000-of-00001.parquet"
            pq.write_table(pa.Table.from_pylist(rows), file)
    files = "{split: train, path: main/train-*}, {split: test, path: main/test-*}"
    card = f"---\nconfigs:\n- config_name: main\n  data_files: [{files}]\n---\n"
    (tmp_path / "README.md").write_text(card)
    items = list(gsm8k.load("test", str(tmp_path)))
    assert items == [ROWS[0], ROWS[1], ROWS[3]]  # the third is the second in other words
    assert [gsm8k.label(item) for item in items] == ["7", "2300", "-7"]
    file = tmp_path / "main" / "train-00000-of-00001.parquet"
    assert list(gsm8k.load("train", str(file))) == items


@pytest.mark.parametrize("answer", ["7", "#### seven", "#### 7 pens", "####", "#### 1/2"])
def test_an_answer_without_its_number_is_refused_by_row(tmp_path, answer):
    file = tmp_path / "train.jsonl"
    rows = [ROWS[0], {"question": "How many?", "answer": answer}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match="row 2: an answer must end in '#### '"):
        list(gsm8k.load("train", str(file)))


@pytest.mark.parametrize(
    "answer",
    ["7 or 8", "not 7", "7 plus 2", "between 7 and 8", "8, not 7", "70", "7/2", "-7"],
)
@pytest.mark.parametrize(
    "form",
    [
        "The answer is {}.",
        "The answer is {} clips, altogether.",
        "#### {}",
        "#### Final Answer: {}",
        "#### Final Answer\n\nThe answer is {}.</s>",
    ],
)
def test_what_states_more_than_the_answer_is_not_right(form, answer):
    assert gsm8k.score(form.format(answer), "7").value == 0


def stated_answers():
    """The rows of `stated_answers.txt`: whether it is right, the label, the response."""
    table = (Path(__file__).parent / "stated_answers.txt").read_text("utf-8")
    for line in table.splitlines():
        if line.startswith(("= ", "! ")):
            mark, label, response = line.split(" ", 2)
            yield mark == "=", label, response.replace("⏎", "\n")


def test_a_sentence_answers_what_it_states():
    rows = list(stated_answers())
    wrong = [row for row in rows if (gsm8k.score(row[2], row[1]).value == 1) != row[0]]
    assert not wrong
    assert sum(not is_right for is_right, _, _ in rows) > 100


@pytest.mark.parametrize("begin", ["", "The answer is ", "#### ", "So "])
def test_a_megabyte_of_explanations_takes_no_time(begin):
    for piece in (
        " (1 a)",
        ", not 1",
        "not 1 a ",
        ", which ",
        " - so",
        ", 3 times",
        "So a. ",
        "1,000",
    ):
        began = time.process_time()
        gsm8k.answer_of(begin + piece * (1_000_000 // len(piece)) + ".")
        assert time.process_time() - began < 5, piece


@pytest.mark.parametrize("label", ["7", "2300", "-7", "0.5", "99999999999999999999"])
def test_the_gold_answer_scores_one_and_another_does_not(label):
    for response in (
        TASK.right_response(label),
        f"#### {label}",
        f"The answer is {label}.",
        f"The answer is {label} clips, altogether.",
    ):
        assert TASK.score(response, label).status == "correct"
    assert TASK.score(TASK.wrong_response(label), label).status == "wrong"
    assert TASK.score("I give up.", label).status == "no_answer"


@pytest.mark.parametrize("label", ["seven", "", "7 pens", "1/2", "#### 7"])
def test_a_label_that_is_no_number_is_malformed(label):
    with pytest.raises(ValueError, match="the label must be a number such as 7, not"):
        gsm8k.score(r"\boxed{7}", label)
    assert gsm8k.score(r"\boxed{2300}", "2,300").status == "correct"
