"""Thoughts parted from answers."""

from __future__ import annotations

import pytest

from openrlhf_js.evaluation.arena.thinking import TAGS, Parted, part


@pytest.mark.parametrize(("start", "end"), TAGS)
def test_thoughts_at_the_beginning(start: str, end: str) -> None:
    assert part(f"\n{start}\nhm\n{end}\n\nyes") == Parted("yes", "hm", False)


@pytest.mark.parametrize(("start", "end"), TAGS)
def test_thoughts_that_never_end(start: str, end: str) -> None:
    assert part(f"{start}hm, well") == Parted("", "hm, well", True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", Parted("plain", "", False)),
        ("  plain\n", Parted("  plain\n", "", False)),
        ("", Parted("", "", False)),
        ("hm</think>\nyes", Parted("yes", "hm", False)),  # the template wrote the opening tag
        ("<think></think>yes", Parted("yes", "", False)),
        ("<think>a</think><think>b</think>yes", Parted("yes", "a\n\nb", False)),
        ("<think>a</think>The tag <think> opens.", Parted("The tag <think> opens.", "a", False)),
        # a tag that the answer is about
        ("Use <think>x</think> tags.", Parted("Use <think>x</think> tags.", "", False)),
        ("End with </think> and go on.", Parted("End with </think> and go on.", "", False)),
        ("hm\n</think>yes", Parted("yes", "hm", False)),
        ("</think>yes", Parted("yes", "", False)),
        ("hm</think>", Parted("", "hm", False)),
        ("Close with `</think>`.", Parted("Close with `</think>`.", "", False)),
        ("```\n</think>\n```", Parted("```\n</think>\n```", "", False)),
        (
            "<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>b<|end_of_solution|>",
            Parted("b", "a", False),
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            Parted("b", "a", False),
        ),
    ],
)
def test_cases(text: str, expected: Parted) -> None:
    assert part(text) == expected


def test_what_the_endpoint_has_parted() -> None:
    assert part("yes </think>", "hm") == Parted("yes </think>", "hm", False)
    assert part("<think>more</think>yes", "hm") == Parted("yes", "hm\n\nmore", False)
