"""Thinking is told from the answer, by the marks of every family of models."""

import time

import pytest

from openrlhf_js.tasks.thinking import (
    TAGS,
    after_thinking,
    split_thinking,
    with_opened_thinking,
)

ANALYSIS = "<|channel|>analysis<|message|>"
CALL = "<|start|>assistant<|channel|>commentary to=python <|constrain|>json<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(("start", "end"), [*TAGS, (ANALYSIS, "<|end|>")])
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


@pytest.mark.parametrize("opening", [*(opening for opening, _ in TAGS), ANALYSIS])
def test_a_thought_that_the_prompt_opens(opening):
    assert after_thinking(with_opened_thinking(f"Why? {opening}\n", "no")) == ""
    assert with_opened_thinking(f"What is {opening}?", "yes") == "yes"


def test_time_grows_with_the_text_alone():
    for piece in ("<think>", "</think>", "[THINK]a", "<|channel|>", "<|end|>", "<", ANALYSIS):
        began = time.process_time()
        for anywhere in (True, False):
            split_thinking(piece * (200_000 // len(piece)), anywhere=anywhere)
        assert time.process_time() - began < 0.5, piece
