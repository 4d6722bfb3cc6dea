"""What an answer looks like, counted as the official repository counts it."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CountTokens = Callable[[str], int]


class Tokenizer(NamedTuple):
    """What counts the tokens of a bench's answers, whatever model has answered.

    Attributes:
        name: tiktoken's, and its file's before `.tiktoken`.
        sha256: of that file.
        cache_name: of the file in tiktoken's cache: sha1 of the address that it has the file from.
    """

    name: str
    sha256: str
    cache_name: str


# That of gpt-4o, which v2.0's gen_answer.py takes.
NEWER = Tokenizer(
    "o200k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "fb374d419588a4632f3f557e76b4b70aebbca790",
)
# That of gpt-3.5-turbo, which gen_answer.py took at the time of v0.1.
OLDER = Tokenizer(
    "cl100k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
)
_OF_BENCH = {"arena-hard-v0.1": OLDER}  # the newer one for all others

_CODE = re.compile(r"```([^`]*)```")
_HEADERS = {f"h{level}": re.compile(rf"^#{{{level}}}\s", re.MULTILINE) for level in range(1, 7)}
# Upstream lets space before an item run over line ends, which finds the same items and takes time
# that is quadratic in the number of empty lines.
_LISTS = {
    "ordered": re.compile(r"^[^\S\n]*\d+\.\s", re.MULTILINE),
    "unordered": re.compile(r"^[^\S\n]*[-*+]\s", re.MULTILINE),
}
_BOLD = {"**": re.compile(r"\*\*[^*\n]+\*\*"), "__": re.compile(r"__[^_\n]+__")}


def metadata(text: str, count_tokens: CountTokens) -> dict[str, Any]:
    """The counts of an answer, as an answers' file holds them, and in that order.

    Tokens are those of the whole text; markdown is counted outside of code blocks.

    Args:
        text: as the judge sees it.
        count_tokens: of `load_tokenizer`.
    """
    plain = without_code(text)
    return {
        "token_len": count_tokens(text),
        "header_count": _counts(_HEADERS, plain),
        "list_count": _counts(_LISTS, plain),
        "bold_count": _counts(_BOLD, plain),
    }


def without_code(text: str) -> str:
    """The text without what is between fences.

    As upstream does it: what one block holds is removed wherever else it stands, too, and the
    fences stay.
    """
    for inside in _CODE.findall(text):
        text = text.replace(inside, "")
    return text


def _counts(patterns: dict[str, re.Pattern[str]], text: str) -> dict[str, int]:
    return {name: sum(1 for _ in each.finditer(text)) for name, each in patterns.items()}


def tokenizer_of(bench: str) -> Tokenizer:
    """The one that the official repository counted with when it had this bench."""
    return _OF_BENCH.get(bench, NEWER)


def load_tokenizer(bench: str, path: Path | None = None) -> CountTokens:
    """What counts tokens as upstream does for this bench, with tiktoken.

    Args:
        bench: its name; one's own takes what v2.0 does.
        path: the tokenizer's file, such as `o200k_base.tiktoken`, where tiktoken cannot download
            it; None: tiktoken's own cache (the folder in TIKTOKEN_CACHE_DIR), or a download.

    Raises:
        ValueError: it is not to be had, or the file is another one; no other tokenizer is taken
            instead, since its counts could not be compared with those of published answers.
        OSError: the file cannot be read.
    """
    try:
        import tiktoken
    except ImportError:
        raise ValueError("tiktoken, which counts the tokens, is not installed") from None
    wanted = tokenizer_of(bench)
    if path is not None:
        _check(path, wanted, bench)
    try:
        if path is None:
            encoding = tiktoken.get_encoding(wanted.name)
        else:
            with _cache_with(path, wanted):
                encoding = tiktoken.get_encoding(wanted.name)
    except OSError as error:  # what `requests` raises is one, too
        raise ValueError(
            f"the tokenizer that counts an answer's tokens cannot be downloaded "
            f"({type(error).__name__}). Give its file, {wanted.name}.tiktoken (generate "
            f"--style_tokenizer FILE, score --count_style FILE); or put it, named "
            f"{wanted.cache_name}, into a folder and name that in TIKTOKEN_CACHE_DIR"
        ) from None

    def count(text: str) -> int:
        return len(encoding.encode(text, disallowed_special=()))

    return count


def _check(path: Path, wanted: Tokenizer, bench: str) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest == wanted.sha256:
        return
    for other in (OLDER, NEWER):
        if digest == other.sha256:
            raise ValueError(
                f"{path} is {other.name}.tiktoken; the answers of {bench} are counted with "
                f"{wanted.name}.tiktoken: give that file"
            )
    raise ValueError(
        f"{path} is not {wanted.name}.tiktoken as OpenAI publishes it (sha256 {wanted.sha256}); "
        "was it downloaded whole?"
    )


@contextmanager
def _cache_with(path: Path, tokenizer: Tokenizer) -> Iterator[None]:
    """While it lasts, tiktoken finds the file in its cache."""
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / tokenizer.cache_name).symlink_to(path.resolve())
        os.environ["TIKTOKEN_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before
