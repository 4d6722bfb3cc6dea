"""Thinking is told from the answer, by the marks of every family of models."""

import time

import pytest
from thoughts import MARKS, rows

from answer_graders import marks
from answer_graders.tasks import TASKS
from answer_graders.thinking import after_thinking, split_thinking, with_opened_thinking

ANALYSIS = "<|channel|>analysis<|message|>"
CALL = "<|start|>assistant<|channel|>commentary to=python <|constrain|>json<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(("start", "end"), MARKS)
def test_thinking_at_the_beginning(start, end):
    assert split_thinking(f"\n{start}\nhm\n{end}\n\nyes") == ("yes", "hm")
    assert split_thinking(f"{start}hm, well") == ("", "hm, well")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  plain\n", ("  plain\n", "")),
        ("", ("", "")),
        ("hm</think>\nyes", ("yes", "hm")),  # the template wrote the opening tag
        ("<think></think>yes", ("yes", "")),
        ("<think>a</think><think>b</think>yes", ("yes", "a\n\nb")),
        ("<think>a</think>The tag <think> opens.", ("The tag <think> opens.", "a")),
        # a tag that the answer is about
        ("Use <think>x</think> tags.", ("Use <think>x</think> tags.", "")),
        ("End with </think> and go on.", ("End with </think> and go on.", "")),
        ("Close with `</think>`.", ("Close with `</think>`.", "")),
        ("```\n</think>\n```", ("```\n</think>\n```", "")),
        ("</think>yes", ("yes", "")),
        ("hm</think>", ("", "hm")),
        (
            "<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>b<|end_of_solution|>",
            ("b", "a"),
        ),
        (f"{ANALYSIS}a<|end|>{FINAL}b<|return|>", ("b", "a")),
        (f"{ANALYSIS}a<|end|>{CALL}{{}}<|call|>{FINAL}b", ("b", "a\n\n{}")),
        ("<|channel|>final<|message|>b<|return|>", ("b", "")),
        ("yes<|end|>", ("yes<|end|>", "")),  # some models end every turn with it
        ("<think>a <think>b</think>\nc\n</think>\nyes", ("yes", "a <think>b\n\nc")),
        ("<think>a</think><|START_RESPONSE|>b<|END_RESPONSE|>", ("b", "a")),
        ("<think>a</think>\n<response>\nb\n</response>", ("b", "a")),
        ("<think>a</think><response>b</response> c", ("b</response> c", "a")),
        ("<|channel>thought\n<channel|>b", ("b", "")),
        ("[Analysis]\nb\n[Answer]\nc", ("[Analysis]\nb\n[Answer]\nc", "")),  # headings
        ("[Analysis]\nb", ("", "b")),
        ("[Analysis]a[/Analysis]b", ("b", "a")),
    ],
)
def test_thinking(text, expected):
    assert split_thinking(text) == expected


def test_thinking_that_the_endpoint_has_split_off():
    assert split_thinking("yes </think>", "hm") == ("yes </think>", "hm")
    assert split_thinking("<think>more</think>yes", "hm") == ("yes", "hm\n\nmore")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("yes", "yes"),
        ("<think>hm</think> yes\n", " yes\n"),
        ("hm</think>yes", "yes"),
        ("no <think>hm</think>yes", "yes"),
        ("no <think>hm", ""),
        ("<think>a <think>b</think>no</think>yes", "yes"),
        ("[THINK]no[/THINK]yes", "yes"),
        ("[THINK]no", ""),
        ("[THINK]a </think> b[/THINK]yes", "yes"),
        (f"{ANALYSIS}no<|end|>", ""),
        (f"{ANALYSIS}no<|end|>{FINAL}yes<|return|>", "yes<|return|>"),
        (f"no<|end|>{FINAL}yes", "yes"),  # the prompt has opened the channel
        (f"{ANALYSIS}no<|end|>{CALL}no<|call|>{ANALYSIS}no<|end|>{FINAL}yes", "yes"),
        (f"{FINAL}no<|end|><|start|>assistant{ANALYSIS}hm", ""),
    ],
)
def test_what_follows_thoughts_wherever_they_stand(text, answer):
    assert after_thinking(text) == answer


@pytest.mark.parametrize("opening", [opening for opening, _ in MARKS])
def test_a_thought_that_the_prompt_opens(opening):
    assert after_thinking(with_opened_thinking(f"Why? {opening}\n", "no")) == ""
    assert with_opened_thinking(f"What is {opening}?", "yes") == "yes"


def test_what_thoughts_and_answers_earn():
    wrong = []
    for task, reply, reward in rows():
        score = TASKS[task].score(reply, "18")
        if score.value != reward:
            wrong.append((task, reply, reward, score))
    assert not wrong


@pytest.fixture
def named(monkeypatch):
    """`name_marks`, forgotten after the test."""
    monkeypatch.setattr(marks, "_named_marks", set())
    yield marks.name_marks
    monkeypatch.undo()
    marks.name_marks([])


def test_a_mark_that_the_user_names(named):
    thoughts = (
        r"<musing>\boxed{18}",
        r"[musing]\boxed{18}[/musing]No.",
        r"<|musing_start|>\boxed{18}",
    )
    for response in thoughts:
        assert TASKS["math"].score(response, "18").value == 1
    named(["musing"])
    for response in thoughts:
        assert TASKS["math"].score(response, "18").value == 0
    assert TASKS["math"].score(r"<musing>17?</musing>\boxed{18}", "18").value == 1
    with pytest.raises(ValueError, match="'a b' cannot name the mark of a thought: give"):
        named(["a b"])


def test_time_grows_with_the_text_alone():
    pieces = ("<think>", "</think>", "[THINK]a", "<|channel|>", "<|end|>", "<", ANALYSIS)
    more = ("<think a=", "<|channel>a", "`<think>`", "a <think> a", "[Analysis]", "<aa")
    headings = ("the [Analysis] x ", " [Analysis]\n", "[Analysis]\n")
    for piece in (*pieces, *more, *headings):
        text = piece * (400_000 // len(piece)) + "\n[Verdict]"
        began = time.process_time()
        for anywhere in (True, False):
            split_thinking(text, anywhere=anywhere)
        assert time.process_time() - began < 5, piece
