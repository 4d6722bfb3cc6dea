"""Counts of style, against the rules of the official repository."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.evaluation.arena import style
from openrlhf_js.evaluation.arena.style import load_tokenizer, metadata, tokenizer_of, without_code


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
    def test_each_bench_has_that_of_its_time(self) -> None:
        import tiktoken

        for bench, model in (
            ("arena-hard-v0.1", "gpt-3.5-turbo"),
            ("arena-hard-v2.0", "gpt-4o"),
            ("mine", "gpt-4o"),
        ):
            assert tokenizer_of(bench).name == tiktoken.model.encoding_name_for_model(model)

    def test_none_is_taken_instead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import tiktoken

        def offline(_: str) -> None:
            raise ConnectionError("no route")

        monkeypatch.setattr(tiktoken, "get_encoding", offline)
        for bench, name in (("arena-hard-v0.1", "cl100k_base"), ("mine", "o200k_base")):
            with pytest.raises(ValueError, match="--style_tokenizer") as caught:
                load_tokenizer(bench)
            assert f"{name}.tiktoken" in str(caught.value)
            assert tokenizer_of(bench).cache_name in str(caught.value)

    def test_another_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "f").write_bytes(b"IQ== 0\n")
        with pytest.raises(ValueError, match=r"is not o200k_base\.tiktoken"):
            load_tokenizer("mine", tmp_path / "f")
        digest = hashlib.sha256(b"IQ== 0\n").hexdigest()
        monkeypatch.setattr(style, "OLDER", style.OLDER._replace(sha256=digest))
        with pytest.raises(ValueError, match=r"is cl100k_base\.tiktoken; .* with o200k_base\."):
            load_tokenizer("mine", tmp_path / "f")

    def test_a_file_that_is_not_there_is_no_failed_download(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            load_tokenizer("mine", tmp_path / "f")

    @pytest.mark.parametrize("bench", ["arena-hard-v0.1", "arena-hard-v2.0"])
    def test_a_given_file_is_where_tiktoken_looks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: str
    ) -> None:
        import tiktoken

        (tmp_path / "f").write_bytes(b"tokens")
        wanted = tokenizer_of(bench)._replace(sha256=hashlib.sha256(b"tokens").hexdigest())
        monkeypatch.setattr(style, "tokenizer_of", {bench: wanted}.__getitem__)
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "before")
        seen = []

        class Encoding:
            def encode(self, text: str, disallowed_special: tuple[()]) -> list[str]:
                return text.split()

        def load(name: str) -> Encoding:
            folder = Path(os.environ["TIKTOKEN_CACHE_DIR"])
            seen.append((name, (folder / wanted.cache_name).read_bytes()))
            return Encoding()

        monkeypatch.setattr(tiktoken, "get_encoding", load)
        assert load_tokenizer(bench, tmp_path / "f")("a <|endoftext|>") == 2
        assert seen == [(wanted.name, b"tokens")]
        assert os.environ["TIKTOKEN_CACHE_DIR"] == "before"

    @pytest.mark.parametrize("each", [style.OLDER, style.NEWER])
    def test_the_name_in_the_cache(self, each: style.Tokenizer) -> None:
        """It is what tiktoken makes of its own address of the file."""
        from tiktoken_ext import openai_public

        source = inspect.getsource(getattr(openai_public, each.name))
        (address,) = re.findall(rf'"(https://[^"]*{each.name}\.tiktoken)"', source)
        assert hashlib.sha1(address.encode()).hexdigest() == each.cache_name
        assert each.sha256 in source
