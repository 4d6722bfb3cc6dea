"""The server over real connections, with a stand-in for the model."""

from __future__ import annotations

import asyncio
import base64
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import stub_server
from stub_server import GATE, SEEN, stub

TOKEN = "a-token-that-is-long-enough"
HEAD = b"POST /get_reward HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_answers_on_the_wire() -> None:
    with stub() as server:
        answer = server.post(["1.5", "-2"])
        assert answer.status_code == 200
        assert answer.json() == {"rewards": [1.5, -2.0], "scores": [1.5, -2.0], "extra_logs": {}}
        assert server.post([]).json() == {"rewards": [], "scores": [], "extra_logs": {}}
        body = {"query": ["3"], "prompts": ["p"], "labels": [None]}  # as OpenRLHF sends it
        answer = httpx.post(f"{server.url}/get_reward", json=body)
        assert answer.json()["rewards"] == [3.0]


def test_concurrent_requests_share_batches_and_keep_their_scores() -> None:
    with stub(max_wait_seconds=0.05) as server, ThreadPoolExecutor(32) as threads:
        answers = threads.map(lambda i: server.post([str(i), str(i + 0.5)]).json(), range(200))
        assert [each["rewards"] for each in answers] == [[i, i + 0.5] for i in range(200)]
        text = server.client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert lines['openrlhf_js_reward_requests_total{status="200"}'] == "200.0"
    assert float(lines["openrlhf_js_reward_texts_total"]) == 400
    assert float(lines["openrlhf_js_reward_request_seconds_count"]) == 200
    assert float(lines["openrlhf_js_reward_queue_texts"]) == 0


def test_a_score_that_is_no_number_is_an_error_of_its_request_alone() -> None:
    with stub(max_wait_seconds=0.3) as server, ThreadPoolExecutor(3) as threads:
        bad, infinite, good = threads.map(server.post, [["1", "nan"], ["inf"], ["2"]])
        assert (bad.status_code, infinite.status_code) == (500, 500)
        assert bad.json()["detail"] == "query 1 has the score nan, which is no number"
        assert "rewards" not in bad.json()
        assert good.json()["rewards"] == [2.0]


def test_a_model_that_fails() -> None:
    with stub() as server:
        for number in range(3):
            health = server.client.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "ok"), number
            failed = server.post(["fail"])
            assert failed.status_code == 500
            assert "out of memory" not in failed.text  # goes to the log
        assert server.client.get("/health").status_code == 503
        assert server.post(["4"]).json()["rewards"] == [4.0]
        assert server.client.get("/health").json()["status"] == "ok"


def test_health_says_what_is_served() -> None:
    with stub(queue_size=9) as server:
        assert server.client.get("/health").json() == {
            "status": "ok",
            "model": "stub",
            "architecture": "None",
            "value_head": "score",
            "device": "cpu",
            "dtype": "float32",
            "max_len": 8,
            "truncation_side": "right",
            "normalized": True,
            "mean": 0.5,
            "std": 2.0,
            "queue": {"texts": 0, "most": 9},
        }


def test_the_event_loop_answers_while_the_model_works() -> None:
    with stub() as server:
        busy = threading.Thread(target=server.post, args=(["hold"],))
        busy.start()
        until(lambda: "hold" in SEEN)
        assert server.client.get("/health").status_code == 200
        assert server.post([]).json()["rewards"] == []
        assert server.post([1]).status_code == 422
        GATE.set()
        busy.join()


def test_a_full_queue_asks_to_come_back() -> None:
    with stub(queue_size=2) as server, ThreadPoolExecutor(3) as threads:
        busy = threads.submit(server.post, ["hold"])
        until(lambda: "hold" in SEEN)
        waiting = threads.submit(server.post, ["1", "2"])
        until(lambda: server.waiting() == 2)
        refused = server.post(["3"])
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        GATE.set()
        assert busy.result().status_code == 200
        assert waiting.result().json()["rewards"] == [1.0, 2.0]
        assert server.post(["3"]).json()["rewards"] == [3.0]


def test_scores_that_take_too_long() -> None:
    with stub(answer_seconds=0.3) as server:
        for text in ("hold", "1"):
            refused = server.post([text])
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        until(lambda: server.waiting() == 0)
        GATE.set()
        until(lambda: server.post(["2"]).status_code == 200)
        assert "1" not in SEEN  # it was dropped while it waited


def test_a_client_that_hangs_up_is_not_worked_for() -> None:
    with stub() as server, ThreadPoolExecutor(1) as threads:
        busy = threads.submit(server.post, ["hold"])
        until(lambda: "hold" in SEEN)
        with socket.create_connection(("127.0.0.1", server.port)) as leaving:
            leaving.sendall(HEAD + b'content-length: 15\r\n\r\n{"query":["7"]}')
            until(lambda: server.waiting() == 1)
        until(lambda: server.waiting() == 0)
        GATE.set()
        assert busy.result().status_code == 200
        assert server.post(["8"]).json()["rewards"] == [8.0]
        assert SEEN == ["hold", "8"]


@pytest.mark.parametrize("path", ["/get_reward", "/health", "/metrics"])
def test_a_token_is_asked_for_everywhere(path: str) -> None:
    with stub(TOKEN) as server:
        method, body = ("POST", {"query": ["1"]}) if path == "/get_reward" else ("GET", None)

        def status(authorization: str | None) -> int:
            headers = {} if authorization is None else {"authorization": authorization}
            return server.client.request(method, path, headers=headers, json=body).status_code

        basic = base64.b64encode(f"any:{TOKEN}".encode()).decode()  # what a URL can carry
        for wrong in (None, "", "Bearer", "Bearer wrong", TOKEN, "Basic ???", f"Basic {basic}x"):
            assert status(wrong) == 401
        for right in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Basic {basic}"):
            assert status(right) == 200


def test_bodies_that_are_too_large() -> None:
    with stub(body_bytes=1000, characters=50, queries=3) as server:
        assert server.post(["1" * 51]).status_code == 413
        assert server.post(["1"] * 4).status_code == 413
        for size in (1000, 5000, 50_000):  # within what is let go of, and beyond
            head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % size
            answer = server.raw(head, b" " * size)
            assert answer[9:12] == (b"400" if size == 1000 else b"413")
        chunk = b"64\r\n" + b" " * 100 + b"\r\n"
        answer = server.raw(HEAD + b"transfer-encoding: chunked\r\n\r\n", *[chunk] * 2000)
        assert answer[9:12] == b"413"
        assert server.post(["1"]).status_code == 200


def test_all_bodies_together_are_limited() -> None:
    with stub(held_bytes=1000, body_seconds=5) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(HEAD + b"content-length: 900\r\n\r\n" + b" " * 800)
            until(lambda: server.service._intake.held_bytes == 800)
            refused = server.post(["1" * 300])
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        until(lambda: server.service._intake.held_bytes == 0)
        assert server.post(["1"]).json()["rewards"] == [1.0]
        assert server.service._intake.held_bytes == 0


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"content-length: 20\r\n\r\n" + b'{"query":',
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_a_body_that_does_not_arrive(sent: bytes) -> None:
    with stub(body_seconds=0.3) as server:
        answer = server.raw(sent)
        assert answer[9:12] == b"408"
        assert b"connection: close" in answer


def test_bytes_now_and_then_do_not_prolong_a_body() -> None:
    with stub(body_seconds=0.5) as server:
        began = time.monotonic()
        pieces = [HEAD + b"content-length: 2000\r\n\r\n"] + [b" "] * 60
        assert server.raw(*pieces, pause=0.05)[9:12] == b"408"
        assert time.monotonic() - began < 10


def test_a_head_that_does_not_arrive_or_does_not_end() -> None:
    with stub(head_seconds=0.5) as server:
        assert server.raw(b"")[9:12] == b"408"
        assert server.raw(*[HEAD[i : i + 1] for i in range(20)], pause=0.05)[9:12] == b"408"
        assert server.raw(HEAD, *[b"a: " + b"b" * 10_000 + b"\r\n"] * 50)[9:12] == b"431"
        # a second request on the same connection has no longer to come
        good = HEAD + b'content-length: 15\r\n\r\n{"query":["1"]}'
        answer = server.raw(good, b"POST", pause=0.1)
        assert answer.count(b"HTTP/1.1 200") == 1 and answer.count(b"HTTP/1.1 408") == 1


def test_a_slow_answer_is_not_cut_by_the_limits_on_requests() -> None:
    with stub(head_seconds=1, body_seconds=1) as server:
        assert server.post(["wait 1.5"]).json()["rewards"] == [0.0]


def test_too_many_connections() -> None:
    with stub(connections=5) as server:
        others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        assert httpx.get(f"{server.url}/health").status_code == 200  # the fifth
        others.append(socket.create_connection(("127.0.0.1", server.port)))
        until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
        refused = httpx.post(f"{server.url}/get_reward", json={"query": ["1"]})
        assert refused.json() == {"detail": "there are too many connections"}
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        for connection in others:
            connection.close()
        until(lambda: httpx.get(f"{server.url}/health").status_code == 200)
        assert SEEN == []


def start_process(drain_seconds: float = 30) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, stub_server.__file__, str(drain_seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.ConnectError:
            return False

    until(is_up)
    return process, url


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_waits_for_what_is_under_way_and_refuses_what_is_new(number: int) -> None:
    process, url = start_process()

    async def test() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            post = client.post
            slow = asyncio.ensure_future(post("/get_reward", json={"query": ["wait 4", "3"]}))
            await asyncio.sleep(1)
            process.send_signal(number)
            await asyncio.sleep(0.3)
            new = await post("/get_reward", json={"query": ["1"]})
            assert (new.status_code, new.headers["retry-after"]) == (503, "1")
            assert (await client.get("/health")).json()["status"] == "draining"
            assert (await slow).json()["rewards"] == [0.0, 3.0]

    try:
        asyncio.run(test())
        assert process.wait(20) == 0
    finally:
        process.kill()


@pytest.mark.timeout(120)
def test_the_end_does_not_wait_for_ever() -> None:
    for drain_seconds, signals in ((0.5, 1), (100, 2)):
        process, url = start_process(drain_seconds)
        try:
            with ThreadPoolExecutor(1) as threads:
                slow = threads.submit(
                    httpx.post, f"{url}/get_reward", json={"query": ["wait 6"]}, timeout=60
                )
                time.sleep(0.5)
                for _ in range(signals):
                    process.send_signal(signal.SIGTERM)
                    time.sleep(0.3)
                assert process.wait(20) == 0
                assert slow.exception() or slow.result().status_code == 503
        finally:
            process.kill()
