"""The official programs read what we write: their way of reading, written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.appending import append_line
from openrlhf_js.evaluation.arena.files import Folder, answer_line, judgment_line
from openrlhf_js.evaluation.arena.records import Answer, Game, Judgment
from openrlhf_js.evaluation.arena.style import metadata

pandas = pytest.importorskip("pandas")

# What a verdict is worth to the answer shown first, in rows; the weight of >> is 3.
POINTS = {"A>>B": [1, 1, 1], "A>B": [1], "A=B": [0.5], "B>A": [0], "B>>A": [0, 0, 0]}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path, "arena-hard-v2.0")
    games = {
        "0a": (Game("A>>B", "x\u2028y"), Game("B>A", "z")),
        "0b": (Game("A=B", ""), Game("A>B", "")),
        "0c": (Game(None, "nothing"), Game("A>B", "")),
        "0d": (None, Game("A>B", "")),
    }
    for uid, (first, second) in games.items():
        for model in ("m", "o3-mini-2025-01-31"):
            answer = Answer(uid, model, f"# {uid}\n- **b**\n\u2028", None, "hm", "id")
            counts = metadata(answer.text, len)
            line = answer_line(answer, "p", counts, 1.5e9, {"finish_reason": "stop"})
            append_line(made.answers(model), line)
        judged = Judgment(uid, "hard_prompt", "j", "m", "o3-mini-2025-01-31", (first, second))
        told = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        append_line(made.judgments("j", "m"), judgment_line(judged, (told, told), {"cost": 1.5}))
    return made


def test_scores_as_show_result_counts_them(folder: Folder) -> None:
    frame = pandas.concat(
        [pandas.read_json(path, lines=True) for path in folder.judged_by("j").glob("*.jsonl")]
    )
    assert set(frame.columns) >= {"uid", "model", "category", "games"}
    whole = frame[
        [all(game is not None and game["score"] is not None for game in row) for row in frame.games]
    ]
    assert whole.uid.tolist() == ["0a", "0b"]
    # the model is A in the second game, and B in the first
    rows = [POINTS[b["score"]] + [1 - x for x in POINTS[a["score"]]] for a, b in whole.games]
    assert rows == [[0, 0, 0, 0], [1, 0.5]]
    assert whole.games[0][0]["judgment"]["answer"] == "x\u2028y"
    assert [each["role"] for each in whole.games[0][0]["prompt"]] == ["system", "user"]


def test_style_features_as_show_result_takes_them(folder: Folder) -> None:
    by_model = {}
    for path in (folder.root / "model_answer").glob("*.jsonl"):
        frame = pandas.read_json(path, lines=True)
        by_model[frame.iloc[0]["model"]] = frame.set_index("uid")["metadata"].to_dict()
    assert set(by_model) == {"m", "o3-mini-2025-01-31"}
    counts = by_model["m"]["0a"]
    # by position: length, headers, lists, bold; whole numbers, or summed up
    features = [
        value if isinstance(value, int) else sum(value.values()) for value in counts.values()
    ]
    assert features == [len("# 0a\n- **b**\n\u2028"), 1, 1, 1]


def test_answers_and_existing_judgments_by_uid(folder: Folder) -> None:
    answers = {}
    with folder.answers("m").open() as file:  # as text, by line
        for line in file:
            row = json.loads(line)
            answers[row["uid"]] = row
    assert list(answers) == ["0a", "0b", "0c", "0d"]
    assert answers["0a"]["messages"][-1]["content"]["answer"].startswith("# 0a")


def test_the_browser_finds_the_answer_second(folder: Folder) -> None:
    frame = pandas.read_json(folder.answers("m"), lines=True)
    message = frame[frame["uid"] == "0b"].iloc[0]["messages"][1]
    assert message["role"] == "assistant" and message["content"]["answer"].startswith("# 0b")
