"""Files in both official schemas, what is odd in them, and fetching."""

import json
import os
from pathlib import Path

import pytest
from judged_bench import answer_row, counts, judgment_row, read_lines, write_lines

from paired_eval.arena.data import (
    Folder,
    GameResult,
    Judgment,
    ModelAnswer,
    Question,
    bench_of,
    fetch,
    file_name,
    file_names,
    merge_rows,
    read_answers,
    read_judgments,
    read_questions,
    select,
)
from paired_eval.arena.data import judgment_row as row_of
from paired_eval.arena.pool import load
from paired_eval.arena.protocol import JudgeSettings, digest, fetch_texts, prompt_of

V1 = "arena-hard-v0.1"
V2 = "arena-hard-v2.0"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, "own")


def test_questions(folder, capsys):
    rows = [
        {"uid": "a", "category": "c", "prompt": "p\u2028q", "subcategory": "s"},
        {"uid": "7", "category": V1, "cluster": "d", "prompt": "q"},
        {"uid": "b", "category": "c", "prompt": ["no text"]},
        {"uid": "c", "category": "c"},
    ]
    path = write_lines(folder.questions, rows)
    path.write_bytes(path.read_bytes().replace(b"\\u2028", "\u2028".encode()) + b'{"uid": "half')
    found = read_questions(folder)
    assert list(found.values()) == [
        Question("a", "c", "p\u2028q"),
        Question("7", V1, "q"),
    ]
    assert "3 rows are left out" in capsys.readouterr().err
    assert list(select(found, [V1])) == ["7"]
    with pytest.raises(ValueError, match="no question is of the category 'x'"):
        select(found, ["x"])
    write_lines(folder.questions, [*rows[:2], {**rows[0], "prompt": "another"}])
    with pytest.raises(ValueError, match="uid 'a'"):
        read_questions(folder)


def test_answers(folder, capsys):
    rows = [
        answer_row("a", "m", "<think>hm</think>yes", counts(9)),
        answer_row("b", "m", "plain", counts(3, 1)),
        {**answer_row("d", "m", "fine"), "metadata": {"token_len": "x"}},
        answer_row("e", "m", "$ERROR$"),
        answer_row("f", "m", "yes", prompt="really?"),
    ]
    rows[2]["messages"][-1]["content"]["thought"] = "apart"
    write_lines(folder.answers("m"), rows)
    assert read_answers(folder, "m") == {
        "a": ModelAnswer("a", "yes", thinking="hm"),  # counts were of the thinking too
        "b": ModelAnswer("b", "plain", (3, 1, 0, 0)),
        "d": ModelAnswer("d", "fine", thinking="apart"),
        "f": ModelAnswer("f", "yes", prompt="really?"),
    }
    assert "line 4" in capsys.readouterr().err
    assert read_answers(folder, "other") == {}


def test_judgments(folder, capsys):
    games = [
        {"score": "A<B", "judgment": "text", "user_prompt": "u"},
        {"score": None, "judgment": ""},
    ]
    rows = [
        judgment_row("a", 1, "failed"),
        {**judgment_row("b", 1, 1), "model": "org/m", "games": games},
        judgment_row("c", 1, 2),
        judgment_row("c", -1, 1),
        {**judgment_row("d", 1, 1), "games": []},
    ]
    del rows[1]["baseline"]
    path = write_lines(folder.judgments("j", "m"), rows)
    found = read_judgments(path)
    assert found["a"].games == (GameResult("because", "B>A", "B>A"), None)
    assert (found["b"].model, found["b"].baseline) == ("m", "")
    assert found["b"].games == (GameResult("text", "B>A", "B>A"), GameResult("", None, None))
    assert [found[uid].complete for uid in "abc"] == [False, False, True]
    assert found["c"].games[0].unquoted == "A>B"  # the last one counts
    assert "line 5" in capsys.readouterr().err


def test_v01_as_it_was_first_published(tmp_path):
    """Questions, answers and judgments with `question_id`, which name no category or baseline."""
    folder = Folder(tmp_path, V1)
    question = {"question_id": "q", "category": V1, "cluster": "c", "turns": [{"content": "Why?"}]}
    write_lines(folder.questions, [question])
    assert read_questions(folder) == {"q": Question("q", V1, "Why?")}
    for model in ("gpt-4-0314", "m"):
        choice = {"index": 0, "turns": [{"content": f"{model} says so.", "token_len": 4}]}
        answer = {"question_id": "q", "answer_id": "x", "model_id": model, "choices": [choice]}
        row = {**answer, "tstamp": 1.0, "conv_metadata": counts(4, 1)}
        write_lines(folder.answers(model), [row])
    assert read_answers(folder, "m") == {"q": ModelAnswer("q", "m says so.", (4, 1, 0, 0))}
    games = [
        {"user_prompt": "p", "judgment": "\nMy final verdict is: [[B>>A]].", "score": "B>>A"},
        {"user_prompt": "p", "judgment": "\nHm.\nSo: [[A>B]]", "score": "A>B"},
    ]
    row = {"question_id": "q", "model": "m", "judge": "gpt-4-1106-preview", "games": games}
    path = write_lines(folder.judgments("gpt-4-1106-preview", "m"), [row])
    assert read_judgments(path)["q"] == Judgment(
        uid="q",
        category=V1,
        judge="gpt-4-1106-preview",
        model="m",
        baseline="",
        games=(
            GameResult(games[0]["judgment"], "B>>A", "B>>A"),
            GameResult(games[1]["judgment"], "A>B", "A>B"),
        ),
    )
    (pool,) = load(folder, ["gpt-4-1106-preview"])
    assert (pool.baseline, pool.judged.model[0]) == ("gpt-4-0314", "m")
    assert pool.judged[["margin_1", "margin_2"]].to_numpy().tolist() == [[2, 1]]
    assert pool.styles.loc[("m", "q")].tolist() == [4, 1, 0, 0]


def test_the_official_programs_read_what_is_written(folder):
    """Their way of reading, written anew."""
    pandas = pytest.importorskip("pandas")
    path = folder.judgments("j", "m")
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    judged = Judgment(
        uid="0a",
        category="hard_prompt",
        judge="j",
        model="m",
        baseline="base",
        games=(GameResult("x\u2028y\ud800", "A>>B", "A>>B"), GameResult("z", "B>A", "B>A")),
        settings="hash",
    )
    failed = judged._replace(uid="0b", games=(GameResult("none", None, None), None))
    rows = {
        "0a": row_of(judged, (prompt, prompt)),
        "0b": row_of(failed, (prompt, prompt)),
    }
    merge_rows(path, rows)
    frame = pandas.read_json(path, lines=True)
    null = frame.games.map(
        lambda x: x[0] is None or x[1] is None or x[0]["score"] is None or x[1]["score"] is None
    )
    assert null.tolist() == [False, True]
    assert frame.uid.tolist() == ["0a", "0b"]
    assert frame.games[0][0]["judgment"]["answer"] == "x\u2028y\ufffd"
    assert read_judgments(path)["0b"] == failed


def test_rows_replace_those_of_their_uid_and_no_others(folder):
    path = write_lines(folder.judgments("j", "m"), [judgment_row(uid, 1, 1) for uid in "abc"])
    path.write_bytes(path.read_bytes() + b"not json\n" + b'{"uid": "d"}')
    merge_rows(path, {"b": {"uid": "b", "new": 1}, "e": {"uid": "e"}})
    rows = read_lines(path)
    assert [row["uid"] for row in rows] == list("acdbe")
    assert rows[3] == {"uid": "b", "new": 1}


def test_names_and_benches():
    with pytest.raises(ValueError, match="no name for a model"):
        file_name("..")
    assert file_names(["a/m", "n", "a/m"]) == ["m", "n"]
    with pytest.raises(ValueError, match="a/m and b/m"):
        file_names(["a/m", "b/m"])
    assert bench_of(V2).category("creative_writing").baseline == "gemini-2.0-flash-001"
    assert bench_of(V2, "b").category("hard_prompt").baseline == "b"
    assert bench_of("mine", "b").category("any").baseline == "b"


HARD = "Judge.\nEnd with [[A=B]]."
TALES = "Judge tales."
TEMPLATE = "Q {QUESTION} A {ANSWER_A} B {ANSWER_B}"
PYTHON = f"""
import os
os.environ["RAN"] = "yes"
HARD = {HARD!r}
JUDGE_SETTINGS = {{"creative_writing": {{"system_prompt": {TALES!r}}}}}
"""


def clone(root: Path) -> Path:
    """A small official repository, with texts and questions made up."""
    categories = {"h": "hard_prompt", "c": "creative_writing"}
    theirs = Folder(root / "data", V2)
    rows = [{"uid": u, "category": c, "prompt": "p"} for u, c in categories.items()]
    write_lines(theirs.questions, rows)
    for model in ("o3-mini-2025-01-31", "gemini-2.0-flash-001", "other"):
        answers = [answer_row(uid, model, "a", counts(1)) for uid in categories]
        write_lines(theirs.answers(model), answers)
    write_lines(theirs.judgments("gpt-4.1", "other"), [judgment_row("h", 1, 1, "other")])
    (root / "utils").mkdir()
    (root / "utils" / "judge_utils.py").write_text(PYTHON)
    (root / "config").mkdir()
    text = f"judge_model: gpt-4.1\nmax_tokens: 9\nprompt_template: {json.dumps(TEMPLATE)}\n"
    (root / "config" / f"{V2}.yaml").write_text(text)
    return root


def test_fetching_from_a_clone(tmp_path):
    source = clone(tmp_path / "clone")
    folder = Folder(tmp_path / "data", V2)
    bench = bench_of(V2)
    write_lines(folder.answers("other"), [{"mine": 1}])
    missing = fetch(folder, bench, source, models=["other", "absent"], judges=["gpt-4.1"])
    assert len(missing) == 2 and all("absent" in line for line in missing)
    assert read_lines(folder.answers("other")) == [{"mine": 1}]  # never overwritten
    assert len(read_lines(folder.judgments("gpt-4.1", "other"))) == 1
    assert len(read_lines(folder.answers("gemini-2.0-flash-001"))) == 2
    texts = {"hard_prompt": HARD, "creative_writing": TALES}
    own = {
        name: bench.category(name)._replace(system_sha256=digest(text))
        for name, text in texts.items()
    }
    fetch_texts(folder, bench._replace(categories=own), source)
    settings = JudgeSettings(judge_model="j")
    assert prompt_of(folder, "hard_prompt", settings) == (HARD, TEMPLATE)
    assert prompt_of(folder, "creative_writing", settings) == (TALES, TEMPLATE)
    assert "RAN" not in os.environ
    fetch_texts(folder, bench, tmp_path)  # has none
    assert prompt_of(folder, "hard_prompt", settings) == (HARD, TEMPLATE)
    with pytest.raises(ValueError, match=r"question\.jsonl"):
        fetch(folder, bench, tmp_path / "none", models=[], judges=[])
