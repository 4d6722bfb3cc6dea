"""Counts of style, against the rules of the official repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.evaluation.arena import style
from openrlhf_js.evaluation.arena.style import load_tokenizer, metadata, without_code


def words(text: str) -> int:
    return len(text.split())


def test_counts_by_hand_and_their_order() -> None:
    text = (
        "# One\n## Two\n####### no header\n#no header\n"
        "1. first\n  22. second\n3.no item\n- a\n * b\n+ c\n-no item\n"
        "**bold** and __bold__ and **not\nbold**\n"
        "```python\n# comment\n- x\n```\nx # comment"
    )
    found = metadata(text, words)
    assert list(found) == ["token_len", "header_count", "list_count", "bold_count"]
    assert found["token_len"] == len(text.split())  # of the whole text, code too
    assert found["header_count"] == {"h1": 1, "h2": 1, "h3": 0, "h4": 0, "h5": 0, "h6": 0}
    assert found["list_count"] == {"ordered": 2, "unordered": 3}
    assert found["bold_count"] == {"**": 1, "__": 1}


def test_what_a_code_block_holds_goes_everywhere() -> None:
    assert without_code("a```b```c") == "a``````c"
    assert without_code("x y```x``` x") == " y`````` "
    assert without_code("```unclosed # a") == "```unclosed # a"
    assert without_code("```a`b``` c") == "```a`b``` c"  # a block with a backtick is none


# Upstream's rule for items: space before one may run over line ends.
ORDERED = re.compile(r"^\s*\d+\.\s", re.MULTILINE)
UNORDERED = re.compile(r"^\s*[-*+]\s", re.MULTILINE)


@given(st.text(alphabet="1.-* \n\t\r\x0b\x0c\x85\u2028a", max_size=40))
def test_items_as_upstream_finds_them(text: str) -> None:
    found = metadata(text, len)["list_count"]
    assert found == {
        "ordered": len(ORDERED.findall(text)),
        "unordered": len(UNORDERED.findall(text)),
    }


def test_a_million_empty_lines_take_no_time() -> None:
    assert metadata("\n" * 1_000_000 + "1. x", len)["list_count"]["ordered"] == 1


class TestTokenizer:
    def test_none_is_taken_instead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import tiktoken

        def offline(_: str) -> None:
            raise ConnectionError("no route")

        monkeypatch.setattr(tiktoken, "encoding_for_model", offline)
        with pytest.raises(ValueError, match="--style_tokenizer") as caught:
            load_tokenizer()
        assert style.CACHE_NAME in str(caught.value)

    def test_another_file(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"IQ== 0\n")
        with pytest.raises(ValueError, match=r"is not o200k_base\.tiktoken"):
            load_tokenizer(tmp_path / "f")

    def test_a_file_that_is_not_there_is_no_failed_download(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            load_tokenizer(tmp_path / "f")

    def test_a_given_file_is_where_tiktoken_looks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import hashlib
        import os

        import tiktoken

        (tmp_path / "f").write_bytes(b"tokens")
        monkeypatch.setattr(style, "TOKENS_SHA256", hashlib.sha256(b"tokens").hexdigest())
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "before")
        seen = []

        class Encoding:
            def encode(self, text: str, disallowed_special: tuple[()]) -> list[str]:
                return text.split()

        def load(name: str) -> Encoding:
            folder = Path(os.environ["TIKTOKEN_CACHE_DIR"])
            seen.append((name, (folder / style.CACHE_NAME).read_bytes()))
            return Encoding()

        monkeypatch.setattr(tiktoken, "encoding_for_model", load)
        assert load_tokenizer(tmp_path / "f")("a <|endoftext|>") == 2
        assert seen == [("gpt-4o", b"tokens")]
        assert os.environ["TIKTOKEN_CACHE_DIR"] == "before"

    def test_the_name_in_the_cache(self) -> None:
        """It is what tiktoken makes of its own address of the file."""
        import hashlib
        import inspect

        from tiktoken_ext import openai_public

        source = inspect.getsource(openai_public.o200k_base)
        (address,) = re.findall(r'"(https://[^"]*o200k_base\.tiktoken)"', source)
        assert hashlib.sha1(address.encode()).hexdigest() == style.CACHE_NAME
        assert style.TOKENS_SHA256 in source
