"""Answers are made once each, in whatever pieces, with thoughts and counts beside them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openrlhf_js.evaluation.arena.answer_file import AnswerFile, Tally, tally
from openrlhf_js.evaluation.arena.files import Folder, read_answers
from openrlhf_js.evaluation.arena.generate import (
    GIVE_UP_AFTER,
    answer_locally,
    answer_remotely,
    opening_of,
)
from openrlhf_js.evaluation.arena.records import Question
from openrlhf_js.evaluation.endpoint import EndpointUnavailable, Reply, RequestRefused
from openrlhf_js.sampling.engines import key

END = 0
QUESTIONS = [Question(f"u{i}", "c", f"p{i}") for i in range(7)]
SETTINGS = {"temperature": 0.0, "versions": {"a": "1"}}


def known(questions: Sequence[Question] = QUESTIONS) -> dict[str, Question]:
    return {each.uid: each for each in questions}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, "bench")


def opened(folder: Folder, **more: Any) -> AnswerFile:
    return AnswerFile(folder, "x/m", {**SETTINGS, **more}, pytest.fail)


class Engine:
    """Says its prompt, and the key if it has one; question 3 without an end."""

    def __init__(self, most: int = 1000):
        self.most, self.asked = most, 0

    def greedy(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        return self.sample(prompts, [0] * len(prompts))

    def sample(self, prompts: Sequence[Sequence[int]], keys: Sequence[int]) -> list[Any]:
        self.asked += len(prompts)
        if self.asked > self.most:
            raise KeyboardInterrupt
        ends = [[] if prompt == [3] else [END] for prompt in prompts]
        return [
            np.array([*prompt, own % 1000 + 100, *end], dtype=np.int32)
            for prompt, own, end in zip(prompts, keys, ends, strict=True)
        ]


def say(tokens: list[int]) -> str:
    return " ".join(map(str, tokens))


def locally(file: AnswerFile, engine: Engine, *, greedy: bool = False, opening: str = "") -> None:
    answer_locally(
        file,
        list(file.missing(QUESTIONS)),
        {each.uid: (f"p {opening}\n", [number]) for number, each in enumerate(QUESTIONS)},
        engine,
        [END],
        say,
        greedy,
        5,
        2,
        lambda text: len(text.split()),
        lambda done: None,
    )


def texts(file: AnswerFile) -> dict[str, str]:
    return {uid: each.text for uid, each in read_answers(file.path, pytest.fail).items()}


def test_an_interrupt_costs_a_batch_and_changes_nothing(folder: Folder, tmp_path: Path) -> None:
    with opened(folder) as file, pytest.raises(KeyboardInterrupt):
        locally(file, Engine(most=5))
    assert len(texts(file)) == 4
    again = Engine()
    with opened(folder) as file:
        locally(file, again)
    assert again.asked == 3
    with opened(Folder(tmp_path, "whole")) as whole:
        locally(whole, Engine())
    expected = {f"u{i}": f"{i} {key(5, i, 0) % 1000 + 100}" for i in range(7)}
    assert texts(file) == texts(whole) == expected
    assert tally(file.path, known()) == Tally(answers=7, cut_off=1, empty=0)
    assert tally(file.path, known(QUESTIONS[:3])) == Tally(3, 0, 0)


def test_what_a_line_holds(folder: Folder) -> None:
    with opened(folder) as file:
        locally(file, Engine(), greedy=True)
    assert file.path == folder.root / "model_answer" / "m.jsonl"
    row = json.loads(file.path.read_bytes().split(b"\n")[3])
    assert row["model"] == "m" and row["uid"] == "u3" and len(row["ans_id"]) == 22
    assert row["messages"] == [
        {"role": "user", "content": "p3"},
        {"role": "assistant", "content": {"answer": "3 100"}},
    ]
    assert (row["finish_reason"], row["completion_tokens"]) == ("length", 2)
    assert row["metadata"]["token_len"] == 2
    settings = json.loads((file.path.parent / "m.generation.json").read_bytes())
    assert settings == SETTINGS


def test_thoughts_that_the_template_opens_and_nothing_closes(folder: Folder) -> None:
    with opened(folder) as file:
        locally(file, Engine(), greedy=True, opening="<think>")
    found = read_answers(file.path, pytest.fail)
    assert found["u1"].text == "" and found["u1"].thinking == "1 100"
    assert tally(file.path, known()).empty == 7


def test_openings() -> None:
    assert opening_of("<|assistant|><think>\n") == "<think>"
    assert opening_of("tell me of <think> tags") == ""


def test_other_settings_are_no_matter_before_there_is_an_answer(folder: Folder) -> None:
    """The first call may have ended before any."""
    opened(folder).__exit__(None, None, None)
    with opened(folder, temperature=1.0) as file:
        locally(file, Engine())
    with pytest.raises(ValueError, match=r"were made with temperature 1\.0, not 0\.0"):
        opened(folder)


def test_other_settings_are_refused_and_versions_are_not(folder: Folder) -> None:
    with opened(folder) as file:
        locally(file, Engine())
    with opened(folder, versions={"a": "2"}) as file:
        assert list(file.missing(QUESTIONS)) == []
    with pytest.raises(
        ValueError, match=r"were made with temperature 0\.0, not 1\.0: give .* --na"
    ):
        opened(folder, temperature=1.0)
    (file.path.parent / "m.generation.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged; move it away, and the answers too"):
        opened(folder)
    (file.path.parent / "m.generation.json").unlink()
    with pytest.raises(ValueError, match="holds answers that another program made"):
        opened(folder)


def test_two_at_once_are_refused(folder: Folder) -> None:
    with opened(folder), pytest.raises(ValueError, match="another program is adding to"):
        opened(folder)
    opened(folder).__exit__(None, None, None)


class Chat:
    """Answers as `say` says, or raises what it gives."""

    def __init__(self, replies: dict[str, Any]):
        self.replies, self.asked = replies, []

    async def ask(self, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Reply:
        self.asked.append((messages, parameters))
        await asyncio.sleep(0)
        reply = self.replies.get(messages[-1]["content"], "ok")
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Reply) else Reply(reply, "", "stop", 3, 4)


def remotely(
    file: AnswerFile, chat: Any, questions: Sequence[Question] = QUESTIONS, concurrency: int = 3
) -> Any:
    places = list(file.missing(questions))
    asking = answer_remotely(
        file, places, "be kind", {"max_tokens": 9}, 5, chat, concurrency, len, lambda done: None
    )
    return asyncio.run(asking)


def test_an_endpoint_answers_what_it_can(folder: Folder) -> None:
    chat = Chat(
        {
            "p1": RequestRefused("too long"),
            "p2": EndpointUnavailable("busy"),
            "p3": Reply("<think>a</think>b", "", "stop", 1, 2),
            "p4": Reply("c", "thought", "length", None, None),
        }
    )
    with opened(folder) as file:
        assert remotely(file, chat) == {"u1": "too long", "u2": "busy"}
    found = read_answers(file.path, pytest.fail)
    assert sorted(found) == ["u0", "u3", "u4", "u5", "u6"]
    assert [(found[uid].text, found[uid].thinking) for uid in ("u0", "u3", "u4")] == [
        ("ok", ""),
        ("b", "a"),
        ("c", "thought"),
    ]
    messages, parameters = chat.asked[0]
    assert messages == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "p0"},
    ]
    assert parameters == {"max_tokens": 9, "seed": key(5, 0, 0) >> 32}
    again = Chat({})
    with opened(folder) as file:
        assert remotely(file, again) == {}
    assert [messages[-1]["content"] for messages, _ in again.asked] == ["p1", "p2"]
    assert again.asked[0][1]["seed"] == key(5, 1, 0) >> 32  # its own, whatever else is asked


def test_an_endpoint_that_is_gone(folder: Folder) -> None:
    many = [Question(f"u{i}", "c", f"p{i}") for i in range(100)]
    chat = Chat({each.prompt: EndpointUnavailable("gone") for each in many[2:]})
    with opened(folder) as file, pytest.raises(EndpointUnavailable, match="gone"):
        remotely(file, chat, many)
    assert sorted(read_answers(file.path, pytest.fail)) == ["u0", "u1"]
    assert len(chat.asked) <= 2 + GIVE_UP_AFTER + 3


def test_what_was_answered_is_written_though_all_is_stopped(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More answers than threads wait for a slow disk when the endpoint is given up."""
    many = [Question(f"u{i}", "c", f"p{i}") for i in range(60 + GIVE_UP_AFTER)]
    chat = Chat({each.prompt: EndpointUnavailable("gone") for each in many[60:]})
    append = AnswerFile.append

    def slowly(self: AnswerFile, line: bytes) -> None:
        time.sleep(0.02)
        append(self, line)

    monkeypatch.setattr(AnswerFile, "append", slowly)
    with opened(folder) as file, pytest.raises(EndpointUnavailable, match="gone"):
        remotely(file, chat, many, concurrency=len(many))
    assert len(read_answers(file.path, pytest.fail)) == 60
