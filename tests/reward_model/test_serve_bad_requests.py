"""Over a hundred kinds of bad requests: each gets a clear 4xx, and the server stays as it was."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import bad_requests
from bad_requests import Bad
from real_server import Server, serving
from small_models import TEXTS, save_reward_model
from stub_server import read_all

from openrlhf_js.reward_model.requests import BadRequest, Limits, parse

MOST_GROWTH = 48 << 20  # bytes, over everything below
PAUSE_SECONDS = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = save_reward_model(tmp_path_factory.mktemp("served") / "model")
    limits = {
        "body_bytes": bad_requests.MOST_BODY,
        "queries": bad_requests.MOST_QUERIES,
        "characters": bad_requests.MOST_CHARACTERS,
        "body_seconds": bad_requests.SECONDS,
        "head_seconds": bad_requests.SECONDS,
    }
    flags = [text for name, value in limits.items() for text in (f"--max_{name}", str(value))]
    with serving(folder, "--ds.param_dtype", "float32", *flags) as server:
        yield server


def send(server: Server, bad: Bad, seconds: float = 60) -> tuple[int, bytes]:
    """The status and all that came back until the server hung up, or for so long."""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as connection:
        with contextlib.suppress(ConnectionError):
            for number, piece in enumerate(bad.pieces):
                if number:
                    time.sleep(PAUSE_SECONDS)
                connection.sendall(piece)
        answer = read_all(connection)
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0, answer


def scores(server: Server) -> list[float]:
    return httpx.post(server.url, json={"query": TEXTS}, timeout=60).json()["rewards"]


@pytest.mark.timeout(300)
def test_every_kind_gets_a_clear_answer_and_leaves_no_trace(server: Server) -> None:
    kinds = list(bad_requests.kinds())
    assert len(kinds) >= 100 and len({bad.name for bad in kinds}) == len(kinds)
    expected = scores(server)
    with ThreadPoolExecutor(12) as threads:  # many of them wait
        list(
            threads.map(lambda bad: send(server, bad), kinds)
        )  # so that memory is as large as ever
        before = server.resident_bytes()
        wrong = []
        for _ in range(2):
            answers = threads.map(lambda bad: send(server, bad), kinds)
            for bad, (status, answer) in zip(kinds, answers, strict=True):
                if status not in bad.statuses:
                    wrong.append(f"{bad.name}: {status}, not {bad.statuses}: {answer[:200]!r}")
                if b"Traceback" in answer or b"rewards" in answer:
                    wrong.append(f"{bad.name}: {answer[:300]!r}")
    assert not wrong, "\n".join(wrong)
    assert server.process.poll() is None
    assert scores(server) == pytest.approx(expected, abs=1e-5)
    assert server.resident_bytes() - before < MOST_GROWTH
    health = httpx.get(server.url.replace("get_reward", "health")).json()
    assert (health["status"], health["queue"]["texts"]) == ("ok", 0)


@pytest.mark.timeout(120)
def test_good_requests_get_through_while_bad_ones_come(server: Server) -> None:
    expected = scores(server)
    slow = [bad for bad in bad_requests.kinds() if bad.name.startswith(("slow", "bombs"))]
    with ThreadPoolExecutor(2 * len(slow)) as threads:
        pending = [threads.submit(send, server, bad) for bad in slow * 2]
        while not all(each.done() for each in pending):
            assert scores(server) == pytest.approx(expected, abs=1e-5)


@pytest.mark.timeout(120)
def test_requests_with_bytes_changed_at_random(server: Server) -> None:
    draws = random.Random(0)
    good = bad_requests.request(b'{"query": ["sort(21)=12", "21"], "labels": ["12", "1"]}')
    requests = []
    for _ in range(300):
        changed = bytearray(good)
        for _ in range(draws.randint(1, 8)):
            place = draws.randrange(len(changed))
            changed[place : place + draws.choice((0, 1, 4))] = draws.randbytes(draws.choice((0, 1)))
        requests.append(Bad("changed", (), (bytes(changed),)))
    with ThreadPoolExecutor(16) as threads:
        statuses = [status for status, _ in threads.map(lambda bad: send(server, bad, 5), requests)]
    assert all(status == 200 or 400 <= status < 500 for status in statuses), set(statuses)
    assert sum(status >= 400 for status in statuses) > 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON | st.fixed_dictionaries({"query": JSON | st.lists(JSON)}) | st.binary())
def test_a_body_is_a_list_of_texts_or_refused(content: object) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    try:
        queries = parse(body, Limits())
    except BadRequest as bad:
        assert bad.status in (400, 413, 422)
        assert str(bad) and "\n" not in str(bad) and len(str(bad)) < 300
    else:
        assert all(type(query) is str for query in queries)
        assert json.loads(body)["query"] == queries
        "".join(queries).encode()


@given(st.lists(st.text(), max_size=5))
def test_texts_come_as_they_were_sent(texts: list[str]) -> None:
    for ascii_only in (True, False):
        body = json.dumps({"query": texts}, ensure_ascii=ascii_only)
        with contextlib.suppress(UnicodeEncodeError):
            assert parse(body.encode(), Limits()) == texts


def test_a_large_body_with_as_much_as_is_allowed() -> None:
    texts = ['\\"[{,\\\\' * 300] * 1024  # nothing in a text counts as a value
    body = json.dumps({"query": texts, "prompts": texts, "labels": ["[1, 2]"] * 1024}).encode()
    assert len(body) > 1 << 20
    assert parse(body, Limits(body_bytes=len(body))) == texts
