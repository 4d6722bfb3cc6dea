"""Both schemas read alike, and nothing that a file may hold stops the reading or is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openrlhf_js.evaluation.arena import lines
from openrlhf_js.evaluation.arena.appending import append_line
from openrlhf_js.evaluation.arena.files import (
    Folder,
    answer_line,
    judgment_line,
    only_known,
    read_answers,
    read_judgments,
    read_questions,
)
from openrlhf_js.evaluation.arena.records import Answer, Game, Judgment, Question, Style, file_name

METADATA = {
    "token_len": 7,
    "header_count": {"h1": 1, "h2": 2},
    "list_count": {"ordered": 3, "unordered": 4},
    "bold_count": {"**": 5, "__": 0},
}
STYLE = Style(tokens=7, headers=3, lists=7, bold=5)


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def older_answer(uid: str, text: str) -> dict[str, Any]:
    return {
        "question_id": uid,
        "answer_id": "id",
        "model_id": "m",
        "choices": [{"index": 0, "turns": [{"content": text}]}],
        "tstamp": 1.0,
        "conv_metadata": METADATA,
    }


def newer_answer(uid: str, content: Any, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]
    return {"uid": uid, "ans_id": "id", "model": "m", "messages": messages, "tstamp": 1.0, **more}


def judgment(uid: str, first: Any, second: Any, **more: Any) -> dict[str, Any]:
    names = {"category": "hard_prompt", "judge": "j", "model": "m", "baseline": "b"}
    return {"uid": uid, **names, "games": [first, second], **more}


def game(score: str | None, text: Any = "said") -> dict[str, Any]:
    return {"score": score, "judgment": {"answer": text}, "prompt": []}


class TestSchemas:
    def test_questions_of_both(self, tmp_path: Path) -> None:
        newer = {
            "uid": "a",
            "category": "hard_prompt",
            "subcategory": "coding",
            "prompt": "p\u2028q",
        }
        older = {"question_id": "b", "category": "arena-hard-v0.1", "cluster": "Pi"}
        path = written(
            tmp_path / "q.jsonl",
            newer,
            {**older, "turns": [{"content": "why?"}]},
            {**older, "question_id": 3, "turns": ["how?"]},
        )
        said: list[str] = []
        assert list(read_questions(path, said.append).values()) == [
            Question("a", "hard_prompt", "p\u2028q", "coding"),
            Question("b", "arena-hard-v0.1", "why?", "Pi"),
            Question("3", "arena-hard-v0.1", "how?", "Pi"),
        ]
        assert said == []

    def test_answers_of_both(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "m.jsonl",
            newer_answer("a", {"answer": "yes", "thought": "hm"}, metadata=METADATA),
            newer_answer("b", "plain"),
            older_answer("c", "old"),
        )
        said: list[str] = []
        assert list(read_answers(path, said.append).values()) == [
            Answer("a", "m", "yes", STYLE, "hm", "id"),
            Answer("b", "m", "plain", None, "", "id"),
            Answer("c", "m", "old", STYLE, "", "id"),
        ]
        assert said == []

    def test_judgments_of_all_three(self, tmp_path: Path) -> None:
        older_game = {"user_prompt": "<|User|>", "judgment": "My verdict: [[A>B]]", "score": "A>B"}
        path = written(
            tmp_path / "m.jsonl",
            judgment("a", game("A>>B"), None),
            judgment("b", game(None, None), game("A<<B")),
            # migrated: new names, old games, no baseline
            {"uid": "c", "category": "arena-hard-v0.1", "judge": "j", "model": "m",
             "games": [older_game, older_game]},
            {"question_id": "d", "judge": "j", "model": "m", "games": [older_game, older_game]},
        )  # fmt: skip
        said: list[str] = []
        old = Game("A>B", "My verdict: [[A>B]]")
        assert read_judgments(path, said.append) == [
            Judgment("a", "hard_prompt", "j", "m", "b", (Game("A>>B", "said"), None)),
            Judgment("b", "hard_prompt", "j", "m", "b", (Game(None, ""), Game("B>>A", "said"))),
            Judgment("c", "arena-hard-v0.1", "j", "m", "gpt-4-0314", (old, old)),
            Judgment("d", "arena-hard-v0.1", "j", "m", "gpt-4-0314", (old, old)),
        ]
        assert said == []

    def test_our_lines_come_back(self, tmp_path: Path) -> None:
        answer = Answer("a", "m", "text\u2028\x85\n", STYLE, "thought", "id")
        line = answer_line(answer, "p", METADATA, 2.5, {"finish_reason": "stop"})
        judged = Judgment("a", "c", "j", "m", "b", (Game("A=B", "x\r\n"), None))
        both = judgment_line(judged, ([{"role": "user", "content": "p"}], None))
        for each in (line, both):
            assert each.count(b"\n") == 1 and each.decode().splitlines() == [each.decode()[:-1]]
        (tmp_path / "a").write_bytes(line)
        (tmp_path / "j").write_bytes(both)
        assert read_answers(tmp_path / "a", pytest.fail) == {"a": answer}
        assert read_judgments(tmp_path / "j", pytest.fail) == [judged]

    def test_half_characters_become_whole_text(self, tmp_path: Path) -> None:
        line = answer_line(Answer("a", "m", "x\ud800y \U0001f600"), "p", None, 0.0)
        (tmp_path / "a").write_bytes(line)
        assert read_answers(tmp_path / "a", pytest.fail)["a"].text == "x\ufffdy \U0001f600"


class TestWhatFilesMayHold:
    @pytest.mark.parametrize(
        ("line", "told"),
        [
            (b'{"uid": "z"', "not JSON (Expecting ',' delimiter at column 12)"),
            (b'{"uid": "\xff"}', "not UTF-8 text (invalid start byte at byte 9)"),
            (b'["z"]', "not a JSON object, but list"),
            (b"[" * 100_000, "not JSON of a row (nested too deeply)"),
            (
                b'{"category": "c", "prompt": "p"}',
                "no 'uid' or 'question_id'; keys seen: category, ",
            ),
            (b'{"uid": true, "category": "c", "prompt": "p"}', "'uid' must be text, not True"),
            (b'{"uid": "z", "category": "c", "prompt": NaN}', "the prompt must be text, not float"),
            (b'{"uid": "z", "category": "c", "turns": []}', "0 turns, where one is understood"),
            (b'{"uid": "z", "category": "c"}', "'turns' must be a list, not NoneType"),
        ],
    )
    def test_a_bad_line_costs_no_other(self, tmp_path: Path, line: bytes, told: str) -> None:
        good = b'{"uid": "%s", "category": "c", "prompt": "p"}'
        path = tmp_path / "q.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + good % b"a" + b"\r\n\r\n" + line + b"\n" + good % b"b")
        said: list[str] = []
        assert list(read_questions(path, said.append)) == ["a", "b"]
        assert len(said) == 1
        assert said[0].startswith(f"{path}, line 3: {told}")
        assert said[0].endswith("; the line is left out")

    def test_half_a_last_line(self, tmp_path: Path) -> None:
        path = tmp_path / "q.jsonl"
        path.write_bytes(b'{"uid": "a", "category": "c", "prompt": "p"}\n{"uid": "b", "cat')
        said: list[str] = []
        assert list(read_questions(path, said.append)) == ["a"]
        assert said == [
            f"{path}, line 2: the last line is half written; it is left out, and moved into "
            "q.jsonl.half when a line is added"
        ]

    def test_a_huge_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "LARGEST_LINE_BYTES", 2**20)
        path = tmp_path / "q.jsonl"
        good = b'{"uid": "a", "category": "c", "prompt": "p"}\n'
        path.write_bytes(b"x" * (3 * 2**20) + b"\n" + good)
        said: list[str] = []
        assert list(read_questions(path, said.append)) == ["a"]
        assert said == [f"{path}, line 1: longer than 1 MiB; the line is left out"]

    def test_few_of_many_problems_are_told(self, tmp_path: Path) -> None:
        path = tmp_path / "q.jsonl"
        path.write_bytes(b"{}\n" * 50)
        said: list[str] = []
        assert read_questions(path, said.append) == {}
        assert len(said) == 11
        assert said[-1] == f"{path}: 40 more lines have such problems"

    def test_twice_the_same_uid(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "m.jsonl",
            newer_answer("a", "first"),
            newer_answer("b", "b"),
            newer_answer("a", "second"),
        )
        said: list[str] = []
        found = read_answers(path, said.append)
        assert [(uid, each.text) for uid, each in found.items()] == [("a", "second"), ("b", "b")]
        assert said == [
            f"{path}, line 3: the uid 'a' was in line 1 already; 1 such in this file; the last one "
            "counts"
        ]

    @pytest.mark.parametrize(
        ("verdicts", "counts"),
        [
            ([("A>B", "B>A"), ("A=B", "A=B")], "A=B"),
            ([("A>B", "B>A"), ("A=B", None)], "A>B"),
            ([("A=B", None), ("A>B", "B>A"), (None, None)], "A>B"),
            ([(None, "A=B"), ("A>>B", None)], "A>>B"),
        ],
    )
    def test_the_last_complete_judgment_counts(
        self, tmp_path: Path, verdicts: list[tuple[str | None, str | None]], counts: str
    ) -> None:
        rows = [judgment("a", game(a), game(b)) for a, b in verdicts]
        said: list[str] = []
        (found,) = read_judgments(written(tmp_path / "m.jsonl", *rows), said.append)
        assert found.games[0] is not None and found.games[0].verdict == counts
        assert len(said) == 1 and said[0].endswith("the last one with two verdicts counts")

    def test_a_strange_score_is_a_game_without_a_verdict(self, tmp_path: Path) -> None:
        path = written(tmp_path / "m.jsonl", judgment("a", game("A>>>B"), game("A>B")))
        said: list[str] = []
        (found,) = read_judgments(path, said.append)
        assert found.games == (Game(None, "said"), Game("A>B", "said"))
        assert said == [
            f"{path}, line 1: the score 'A>>>B' is no verdict; the game counts as one without"
        ]

    @pytest.mark.parametrize("more", [{"model": "/"}, {"model": "a/.."}, {"baseline": ".."}])
    def test_a_name_that_leads_elsewhere_costs_its_line(
        self, tmp_path: Path, more: dict[str, str]
    ) -> None:
        row = {"uid": "u", "model": "m", "games": [None, None]}
        path = written(tmp_path / "m.jsonl", {**row, **more}, row)
        said: list[str] = []
        assert [each.model for each in read_judgments(path, said.append)] == ["m"]
        (line,) = said
        assert line.startswith(f"{path}, line 1: ") and "is no name for a model" in line

    def test_names_can_be_written_as_text(self, tmp_path: Path) -> None:
        path = tmp_path / "m.jsonl"
        path.write_text(json.dumps({"uid": "u", "model": "m\ud800", "games": [None, None]}))
        (found,) = read_judgments(path, pytest.fail)
        assert found.model == "m?"

    @pytest.mark.parametrize(
        ("metadata", "told"),
        [
            ({"token_len": 1}, "'metadata' lacks header_count, list_count, bold_count"),
            ({**METADATA, "token_len": float("nan")}, "token_len holds nan"),
            ({**METADATA, "list_count": {"ordered": "3"}}, "list_count holds '3'"),
            ({**METADATA, "bold_count": {"**": -1}}, "bold_count holds -1"),
            ({**METADATA, "token_len": 10**400}, "token_len holds 1000000"),
            ({**METADATA, "token_len": 1e308}, "token_len holds 1e+308"),
            ([1], "'metadata' must hold counts by name"),
        ],
    )
    def test_an_answer_outlives_its_counts(self, tmp_path: Path, metadata: Any, told: str) -> None:
        path = written(tmp_path / "m.jsonl", newer_answer("a", "yes", metadata=metadata))
        said: list[str] = []
        assert read_answers(path, said.append)["a"] == Answer("a", "m", "yes", None, "", "id")
        assert len(said) == 1 and told in said[0]
        assert said[0].endswith("; the answer is kept without its style")

    def test_a_failed_answer_is_none(self, tmp_path: Path) -> None:
        failed = newer_answer("a", {"answer": None}), older_answer("b", "$ERROR$")
        said: list[str] = []
        assert read_answers(written(tmp_path / "m.jsonl", *failed), said.append) == {}
        assert [
            "there is no answer: the call of the model had failed" in line for line in said
        ] == [
            True,
            True,
        ]

    def test_thoughts_in_an_answer_are_not_for_the_judge(self, tmp_path: Path) -> None:
        rows = [
            newer_answer("a", {"answer": "<think>hm</think>\nyes"}, metadata=METADATA),
            newer_answer("b", {"answer": "no", "thought": "ah"}, metadata=METADATA),
        ]
        path = written(tmp_path / "m.jsonl", *rows)
        before, said = path.read_bytes(), []
        found = read_answers(path, said.append)
        assert [(each.text, each.thinking) for each in found.values()] == [
            ("yes", "hm"),
            ("no", "ah"),
        ]
        # the file's counts are of the thoughts too
        assert [each.style for each in found.values()] == [None, STYLE]
        assert path.read_bytes() == before
        assert said == [
            f"{path}: 1 answers begin with their model's thoughts, which are left out here, and so "
            "are the file's counts of them (--count_style makes new ones); another program's "
            "judgments may be of answer and thoughts together"
        ]

    def test_several_models_in_one_file_are_told(self, tmp_path: Path) -> None:
        rows = [newer_answer("a", "x"), {**newer_answer("b", "x"), "model": "n"}]
        said: list[str] = []
        assert len(read_answers(written(tmp_path / "m.jsonl", *rows), said.append)) == 2
        assert said == [f"{tmp_path / 'm.jsonl'}: answers of 2 models (m, n); all are taken"]

    def test_uids_of_no_question(self, tmp_path: Path) -> None:
        questions = {"a": Question("a", "c", "p")}
        said: list[str] = []
        kept = only_known({"a": 1, "x": 2, "y": 3}, questions, tmp_path / "f", said.append)
        assert kept == {"a": 1}
        assert said == [
            f"{tmp_path / 'f'}: 2 of 3 uids are of no question (the first is 'x'); they are left "
            "out"
        ]


class TestFolder:
    def test_places(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path, "bench")
        assert folder.questions == tmp_path / "bench/question.jsonl"
        assert folder.answers("meta/llama") == tmp_path / "bench/model_answer/llama.jsonl"
        assert folder.judgments("o/j", "./m/") == tmp_path / "bench/model_judgment/j/m.jsonl"
        assert folder.judges() == []
        for path in (folder.answers("b"), folder.answers("a"), folder.judgments("j", "m")):
            append_line(path, b"{}\n")
        (folder.judged_by("empty")).mkdir()
        assert folder.judges() == ["j"]

    @pytest.mark.parametrize("name", ["", "/", "..", "a/..", "x\0y", "x\ny", "x" * 201])
    def test_names_that_lead_elsewhere(self, name: str) -> None:
        with pytest.raises(ValueError, match="is no name for a model"):
            file_name(name)

    @pytest.mark.parametrize("name", ["", ".", "..", "../x", "arena-hard-v2.0/", "/etc", "x\0y"])
    def test_benches_that_lead_elsewhere(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ValueError, match="is no name for a benchmark: give that of its folder"):
            _ = Folder(tmp_path, name).questions
