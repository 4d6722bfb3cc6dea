"""GSM8K items come from its own layout; a box or `####` gives the answer."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openrlhf_js.tasks import gsm8k
from openrlhf_js.tasks.base import scored

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
    found = list(gsm8k.load("test", str(tmp_path)))
    assert found == [ROWS[0], ROWS[1], ROWS[3]]  # the third is the second in other words
    assert [gsm8k.label(item) for item in found] == ["7", "2300", "-7"]
    assert list(gsm8k.load("train", str(tmp_path / "main"))) == found


def test_by_default_the_hub_is_asked(monkeypatch):
    asked = []

    def rows(*arguments):
        asked.append(arguments)
        return iter([])

    monkeypatch.setattr(gsm8k.hub, "rows", rows)
    gsm8k.load("test")
    assert asked == [("openai/gsm8k", "test", ("question", "answer"), "main", gsm8k.hub.unseen)]
    with pytest.raises(ValueError, match="train and test, not 'validation'"):
        gsm8k.load("validation")


@pytest.mark.parametrize("answer", ["7", "#### seven", "#### 7 pens", "####", "#### 1/2", "#### "])
def test_an_answer_without_its_number_is_refused_by_row(tmp_path, answer):
    file = tmp_path / "train.jsonl"
    rows = [ROWS[0], {"question": "How many?", "answer": answer}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"row 2: .*must end in '#### ' .*question 'How many\?'"):
        list(gsm8k.load("train", str(file)))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"So \boxed{7}.", "7"),
        ("So 7.\n#### 7", "7"),
        ("#### Step 1\n3 + 4\n#### 7\n", "7"),
        (r"#### Adding" + "\n" + r"\boxed{7}", "7"),
        (r"\boxed{7}" + "\n#### Check\n7 - 4 = 3", "7"),
        (r"#### \boxed{7}", "7"),
        (r"\boxed{}" + "\n#### 7", ""),
        ("The answer is 7.", None),
    ],
)
def test_the_box_counts_and_without_it_the_hashes(monkeypatch, response, answer):
    graded = []

    def grade(found, label):
        graded.append((found, label))
        return scored("wrong", "")

    monkeypatch.setattr(gsm8k.grader, "grade", grade)
    assert gsm8k.score(response, "7").status == "wrong"
    assert graded == [(answer, "7")]


@pytest.mark.parametrize("label", ["7", "2300", "-7", "0.5", "99999999999999999999"])
def test_the_gold_answer_scores_one_and_another_does_not(label):
    assert gsm8k.score(gsm8k.right_response(label), label).status == "correct"
    assert gsm8k.score(f"#### {label}", label).status == "correct"
    assert gsm8k.score(gsm8k.wrong_response(label), label).status == "wrong"
    assert gsm8k.score("I give up.", label).status == "no_answer"


@pytest.mark.parametrize("label", ["seven", "", "7 pens", "1/2", "#### 7"])
def test_a_label_that_is_no_number_is_malformed(label):
    with pytest.raises(ValueError, match="the label must be a number such as 7, not"):
        gsm8k.score(r"\boxed{7}", label)
    assert gsm8k.score(r"\boxed{2300}", "2,300").status == "correct"


def test_the_prompt_asks_for_a_box():
    system, user = gsm8k.prompt(ROWS[0])
    assert "\\boxed{}" in system["content"] and "\\boxed{}" in user["content"]
    assert user["content"].startswith(ROWS[0]["question"])
    assert "7" not in user["content"]
