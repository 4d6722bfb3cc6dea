"""Requests that no client should send, by name: the bytes, and with which status they may fail."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import NamedTuple

MOST_BODY, MOST_QUERIES, MOST_CHARACTERS = 1 << 20, 64, 10_000  # what the server is told
SECONDS = 1.0  # for a head or a body to arrive

MALFORMED, TYPE, SIZE = (400,), (422,), (413,)


class Bad(NamedTuple):
    """One kind.

    Attributes:
        statuses: any of which is right.
        pieces: what is sent, with a pause between them if they are several.
    """

    name: str
    statuses: tuple[int, ...]
    pieces: tuple[bytes, ...]


def request(body: bytes, *headers: str, method: str = "POST", path: str = "/get_reward") -> bytes:
    """A request, as JSON unless the headers say otherwise."""
    names = [header.partition(":")[0].lower() for header in headers]
    lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close", *headers]
    if "content-type" not in names:
        lines.append("content-type: application/json")
    if "content-length" not in names and "transfer-encoding" not in names:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def kinds() -> Iterator[Bad]:
    """All of them."""
    for make in (
        _no_json,
        _types,
        _texts,
        _sizes,
        _bombs,
        _media,
        _routes,
        _heads,
        _framing,
        _slow,
    ):
        for name, statuses, sent in make():
            pieces = sent if isinstance(sent, tuple) else (sent,)
            yield Bad(f"{make.__name__[1:]}: {name}", statuses, pieces)


def _no_json():
    for text in (
        *("", " ", "{", "}", "[", '"', "{]", "nul", "True", "undefined", "'text'", "0x10", "01"),
        *("1.", "+1", ".5", "-", "1e", '{"query": ["1"],}', '{"query": ["1"', '{"query" ["1"]}'),
        *("{query: []}", "{'query': []}", '{"query": []} x', '{"query": []}{}', "// a\n{}"),
        *('{"query": ["\n"]}', '{"query": ["\t"]}', '{"query": ["\\x"]}', '{"query": ["\\u12"]}'),
        *("NaN", '{"query": [NaN]}', '{"query": Infinity}', '{"labels": -Infinity}', "\0"),
        *("query=1", "<xml/>", "--boundary\r\n", "\ufeff{}"),
    ):
        yield f"{text!r}", MALFORMED, request(text.encode())
    good = '{"query": ["21"]}'
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        yield encoding, MALFORMED, request(good.encode(encoding))
    for name, data in {
        "latin-1": b"\xe4",
        "overlong": b"\xc0\xaf",
        "cut": b"\xe2\x82",
        "surrogate": b"\xed\xa0\x80",
        "beyond": b"\xf5\x80\x80\x80",
        "0xff": b"\xff\xfe",
    }.items():
        yield f"{name} in a text", MALFORMED, request(b'{"query": ["%s"]}' % data)
    yield "random", MALFORMED, request(bytes(range(256)) * 4)
    yield "gzip unsaid", MALFORMED, request(gzip.compress(good.encode()))


def _types():
    for text in ("null", "true", "false", "0", "1.5", '"21"', "[]", '["21"]', "[{}]", "{}"):
        yield text, TYPE, request(text.encode())
    for value in (None, True, 1, 1.5, "21", {}, {"0": "21"}):
        yield f"query {value!r}", TYPE, request(json.dumps({"query": value}).encode())
    for value in (None, True, False, 0, 1, -1.5, [], ["21"], {}, {"text": "21"}):
        body = json.dumps({"query": ["21", value]}).encode()
        yield f"an item {value!r}", TYPE, request(body)
    for name in ("queries", "Query", "query ", "prompts", "input", ""):
        yield f"key {name!r}", TYPE, request(json.dumps({name: ["21"]}).encode())
    yield "a number of 4000 digits", TYPE, request(b'{"query": [%s]}' % (b"9" * 4000))
    yield "a number of 5000 digits", MALFORMED, request(b'{"query": [%s]}' % (b"9" * 5000))
    yield "1e999", TYPE, request(b'{"query": [1e999]}')
    yield "twice", TYPE, request(b'{"query": ["21"], "query": "21"}')


def _texts():
    for text in (r"\ud800", r"a\udfffb", r"\udc00\ud800", r"\ud800\ud800"):
        yield f"half a character {text}", TYPE, request(b'{"query": ["%s"]}' % text.encode())
    yield "too long", SIZE, request(json.dumps({"query": ["1" * (MOST_CHARACTERS + 1)]}).encode())
    long = "\N{GRINNING FACE}" * (MOST_CHARACTERS + 1)
    yield "long, astral", SIZE, request(json.dumps({"query": [long]}).encode())
    yield "the second", SIZE, request(json.dumps({"query": ["1", "2" * 20_000]}).encode())


def _sizes():
    for count in (MOST_QUERIES + 1, 1000, 20_000):
        yield f"{count} queries", SIZE, request(json.dumps({"query": ["1"] * count}).encode())
    for factor in (1, 3, 20):
        body = b" " * (factor * MOST_BODY + 1)
        yield f"a body of {factor} times the limit", SIZE, request(body)
    for size in (1 << 31, 1 << 40, (1 << 63) - 1):
        yield f"content-length {size}", SIZE, request(b"{}", f"content-length: {size}")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    yield "chunks and no end", SIZE, request(chunk * 40, "transfer-encoding: chunked")
    yield "many chunks", SIZE, request(chunk * 200, "transfer-encoding: chunked")


def _bombs():
    fill = MOST_BODY - 100
    for name, data, statuses in (
        ("nested lists", b"[" * fill, (400, 413)),
        ("nested lists, closed", b"[" * (fill // 2) + b"]" * (fill // 2), (400, 413)),
        ("lists nested a little", b"[" * 20_000 + b"]" * 20_000, MALFORMED),
        ("nested objects", b'{"a":' * (fill // 5), (400, 413)),
        ("many lists", b"[" + b"[]," * (fill // 3) + b"[]]", SIZE),
        ("many objects", b"[" + b"{}," * (fill // 3) + b"{}]", SIZE),
        ("many numbers", b"[" + b"0," * (fill // 2) + b"0]", SIZE),
        ("many texts", b'["' + b'","' * (fill // 3) + b'"]', SIZE),
        ("many escapes", b'{"query": ["' + b"\\n" * (fill // 2) + b'"]}', SIZE),
        ("many backslashes", b'{"query": ["' + b"\\\\" * (fill // 2) + b'"]}', SIZE),
        ("many lists in labels", b'{"labels": [' + b"[]," * (fill // 3) + b"[]]}", SIZE),
    ):
        yield name, statuses, request(data)
    keys = ",".join(f'"{number}":0' for number in range(100_000))
    yield "many keys", SIZE, request(f"{{{keys}}}".encode())


def _media():
    body = b'{"query": ["21"]}'
    for kind in (
        *("", "text/plain", "text/json", "application/x-www-form-urlencoded", "json", "*/*"),
        *("multipart/form-data; boundary=x", "application/octet-stream", "application/jsonp"),
        *("application/json; charset=utf-16", "application/json; charset=latin-1", "/", ";"),
    ):
        yield f"content-type {kind!r}", (415,), request(body, f"content-type: {kind}")
    bomb = gzip.compress(b" " * (50 << 20))
    for coding, data in {
        "gzip": bomb,
        "x-gzip": bomb,
        "deflate": zlib.compress(b" " * (50 << 20)),
        "br": body,
        "zstd": body,
        "gzip, gzip": gzip.compress(bomb),
        "nonsense": body,
    }.items():
        yield f"content-encoding {coding}", (415,), request(data, f"content-encoding: {coding}")


def _routes():
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        yield method, (405,), request(b"", method=method)
    for method in ("post", "BREW", "CONNECT", "P O S T", "\0", "GET" * 1000):
        yield f"method {method[:9]!r}", (400, 405), request(b"", method=method)
    for path in ("/", "/get_rewards", "/get_reward/", "//get_reward", "/../get_reward", "/docs"):
        yield path, (404,), request(b"{}", path=path)
    for path in ("/%00", "/get_reward%00", "/get_reward%ff", "/" + "a" * 5000):
        yield path[:20], (404,), request(b"{}", path=path)
    for path in ("get_reward", "", "/\x01", "http://", "/ get_reward"):
        yield f"path {path!r}", (400, 404), request(b"{}", path=path)
    yield "a path of 200 kB", (400, 404, 431), request(b"{}", path="/" + "a" * 200_000)
    upgrade = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    yield "websocket", (405,), request(b"", *upgrade, method="GET")


def _heads():
    for name, line in {
        "no colon": "nonsense",
        "no name": ": value",
        "space before the colon": "a : b",
        "null": "a: \0",
        "line feed in a name": "a\nb\x01: c",
        "not ASCII": "\xe4\x01: c",
    }.items():
        yield name, MALFORMED, request(b"{}", line)
    yield "a header of 1 MB", (431,), request(b"{}", "a: " + "b" * (1 << 20))
    yield "many headers", (431,), request(b"{}", *["a: b"] * 100_000)
    for data in (
        b"nonsense\r\n\r\n",
        b"\r\n\r\n\r\nx",
        b"\0" * 100,
        b"\xff" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /get_reward HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST /get_reward HTTX/1.1\r\nhost: x\r\n\r\n",
    ):
        yield f"{data[:30]!r}", MALFORMED, data
    yield "no version", (400, 415), b"POST /get_reward\r\nhost: x\r\n\r\n"


def _framing():
    body = b'{"query": ["21"]}'
    for length in ("-1", "1.5", "x", "0x11", "17 17", "99999999999999999999999"):
        yield f"content-length {length}", (400, 413), request(body, f"content-length: {length}")
    both = ("content-length: 17", "content-length: 18")
    yield "two lengths", MALFORMED, request(body, *both)
    mixed = ("content-length: 17", "transfer-encoding: chunked")
    yield "length and chunks", MALFORMED, request(b"0\r\n\r\n", *mixed)
    for coding in ("gzip", "gzip, chunked", "identity", "chunked, gzip"):
        sent = request(b"0\r\n\r\n", f"transfer-encoding: {coding}")
        yield f"transfer-encoding {coding}", (400, 415), sent
    for chunk in ("x\r\n", "-1\r\n", "FFFFFFFFFFFFFFFFFF\r\n", "2\r\n{}}}\r\n0\r\n\r\n"):
        sent = request(chunk.encode(), "transfer-encoding: chunked")
        yield f"chunk {chunk!r}", (400, 413), sent


def _slow():
    head = request(b"", "content-length: 1000")
    chunked = request(b"", "transfer-encoding: chunked")
    yield "nothing", (408,), b""
    yield "half a head", (408,), head[:30]
    yield "a head, byte by byte", (408,), tuple(head[i : i + 1] for i in range(60))
    yield "headers without end", (408, 431), (head[:-2], *[b"a: b\r\n"] * 60)
    yield "no body", (408,), head
    yield "half a body", (408,), head + b" " * 500
    yield "a body, byte by byte", (408,), (head, *[b" "] * 60)
    yield "no chunk", (408,), chunked
    yield "chunks without end", (408,), (chunked, *[b"1\r\n \r\n"] * 60)
    yield "a chunk extension without end", (400, 408), (chunked + b"1;a=", *[b"b" * 100] * 60)
    yield "a chunk that stops", (408,), chunked + b"ff\r\n{"
    yield "chunks without the last", (408,), chunked + b'11\r\n{"query": ["21"]}\r\n'
    expect = request(b"", "content-length: 1000", "expect: 100-continue")
    yield "a body that was asked for", (408,), expect
