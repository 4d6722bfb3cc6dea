"""The official judge's texts, found without running anything."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.evaluation.arena.benches import EVERY
from openrlhf_js.evaluation.arena.files import read_answers, read_questions
from openrlhf_js.evaluation.arena.official_texts import (
    Texts,
    by_category,
    system_messages,
    template_of,
    texts_of_clone,
    texts_of_judgments,
)

sys.path.insert(0, str(Path(__file__).parent))
import arena_clones as clones


def test_of_a_clone(tmp_path: Path) -> None:
    found = texts_of_clone(clones.clone(tmp_path), "arena-hard-v2.0")
    assert found.template == clones.TEMPLATE
    assert found.system == {"hard_prompt": clones.HARD, "creative_writing": clones.CREATIVE}
    assert found.sources == ("config/arena-hard-v2.0.yaml", "utils/judge_utils.py")
    assert "RAN" not in os.environ


def test_of_a_clone_of_the_older_repository(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "judge_config.yaml").write_text(
        "judge_model: j\nmax_tokens: 1\nsystem_prompt: s\n"
        "prompt_template: ['{question_1} {answer_1} {answer_2}']\n"
    )
    found = texts_of_clone(tmp_path, "arena-hard-v0.1")
    assert found.template == "{QUESTION} {ANSWER_A} {ANSWER_B}"
    assert by_category(found, {"arena-hard-v0.1": "?"}) == {"arena-hard-v0.1": "s"}


def test_of_a_folder_without_any(tmp_path: Path) -> None:
    assert texts_of_clone(tmp_path, "arena-hard-v2.0") == Texts("", {}, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "JUDGE_SETTINGS = 1",
        "JUDGE_SETTINGS = {'x': {}}",
        "JUDGE_SETTINGS = load()",
        "JUDGE_SETTINGS = (",
        "JUDGE_SETTINGS = " + "(" * 100_000,
        "\0",
        "#" * (2**20 + 1),
    ],
)
def test_python_that_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "j.py").write_text(text)
    with pytest.raises(ValueError, match="has no JUDGE_SETTINGS that can be read without running"):
        system_messages(tmp_path / "j.py")


def test_of_published_judgments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clones.make_official(monkeypatch)
    root = clones.clone(tmp_path, code=False) / "data" / "arena-hard-v2.0"
    questions = read_questions(root / "question.jsonl", pytest.fail)
    answers = {
        name: read_answers(root / "model_answer" / f"{name}.jsonl", pytest.fail)
        for name in clones.BASELINES.values()
    }
    lines = (root / "model_judgment" / "gpt-4.1" / "other.jsonl").open("rb")
    rows = [json.loads(line) for line in lines]
    broken = [
        {},
        {"uid": "h0", "games": 3},
        {**rows[0], "games": [None, None]},
        {**rows[0], "games": [{}, 1]},
    ]
    found = texts_of_judgments([*broken, *rows], questions, answers)
    assert found.template == clones.TEMPLATE
    assert found.system == {"hard_prompt": clones.HARD, "creative_writing": clones.CREATIVE}
    assert texts_of_judgments(broken[:1], questions, answers) == Texts("", {}, ())
    monkeypatch.undo()  # now it is not the official one
    assert texts_of_judgments(rows, questions, answers).template == ""


pieces = st.text(alphabet="ab\n|", max_size=4)


@given(st.tuples(pieces, pieces, pieces, pieces), st.text("cdef", min_size=1, max_size=5))
def test_a_template_from_both_orders(parts: tuple[str, str, str, str], other: str) -> None:
    p0, p1, p2, p3 = parts
    question, baseline = "WHY?", "BASE"
    first = p0 + question + p1 + baseline + p2 + other + p3
    second = p0 + question + p1 + other + p2 + baseline + p3
    expected = f"{p0}{{QUESTION}}{p1}{{ANSWER_A}}{p2}{{ANSWER_B}}{p3}"
    assert template_of(first, second, question, baseline) == expected


def test_messages_that_do_not_belong_together() -> None:
    assert template_of("q a b", "x y", "q", "a") == ""
    assert template_of("no", "no", "q", "a") == ""


def test_a_message_counts_wherever_its_hash_is_the_official_one() -> None:
    texts = Texts("t", {"hard_prompt": "h", EVERY: "e"}, ())
    hashes = {"math": clones.hashed("h"), "hard_prompt": "other", "poems": "none"}
    assert by_category(texts, hashes) == {"math": "h", "hard_prompt": "h", "poems": "e"}
