"""The server over real connections, with a stand-in for the model."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from kit import until
from small_models import save_reward_model

from openrlhf_js.cli import rm
from openrlhf_js.reward_model import TOKEN_VARIABLE
from openrlhf_js.reward_model import server as server_module
from openrlhf_js.reward_model.server import (
    Batching,
    bind,
    is_loopback,
    make_app,
    make_server,
    read_token,
)

TOKEN = "a-token-that-is-long-enough"
HEAD = b"POST /get_reward HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
DESCRIPTION = {"model": "stub", "value_head": "score", "mean": 0.5}


class Scorer:
    """The score of a text is its number; `hold` waits for the gate, `fail` raises."""

    def __init__(self):
        self.gate = threading.Event()
        self.holding = threading.Event()
        self.batches: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[float]:
        self.batches.append(list(texts))
        if "hold" in texts:
            self.holding.set()
            self.gate.wait(30)
        if "fail" in texts:
            raise RuntimeError("out of memory\nand more")
        return [0.0 if text == "hold" else float(text) for text in texts]


class Stub:
    def __init__(self, token: str | None, **options):
        self.scorer = Scorer()
        self.server = make_server(make_app(self.scorer, DESCRIPTION, token, **options))
        self.listener = bind("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        until(lambda: self.server.started)
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def post(self, query: object) -> httpx.Response:
        return self.client.post("/get_reward", json={"query": query})

    def waiting(self) -> int:
        return self.client.get("/health").json()["queue"]["texts"]


@contextlib.contextmanager
def stub(token: str | None = None, **options) -> Iterator[Stub]:
    made = Stub(token, **options)
    try:
        yield made
    finally:
        made.scorer.gate.set()
        made.client.close()
        made.server.should_exit = True
        made.thread.join(20)
        made.listener.close()
        assert not made.thread.is_alive()


def test_answers_and_a_score_that_is_not_finite_is_an_error_of_its_request_alone() -> None:
    with stub(batching=Batching(64, 0.3)) as server, ThreadPoolExecutor(3) as threads:
        body = {"query": ["1.5", "-2"], "prompts": ["p"] * 2, "labels": [None] * 2}  # OpenRLHF's
        answer = httpx.post(f"{server.url}/get_reward", json=body)
        assert answer.json() == {"rewards": [1.5, -2.0], "scores": [1.5, -2.0], "extra_logs": {}}
        assert server.post([]).json() == {"rewards": [], "scores": [], "extra_logs": {}}
        bad, infinite, good = threads.map(server.post, [["1", "nan"], ["inf"], ["2"]])
        assert (bad.status_code, infinite.status_code) == (500, 500)
        assert bad.json() == {"detail": "query 1 has the score nan"}
        assert good.json()["rewards"] == [2.0]


def test_concurrent_requests_share_batches() -> None:
    with stub(batching=Batching(7, 0.05)) as server, ThreadPoolExecutor(32) as threads:
        answers = threads.map(lambda i: server.post([str(i), str(i + 0.5)]).json(), range(200))
        assert [each["rewards"] for each in answers] == [[i, i + 0.5] for i in range(200)]
        sizes = list(map(len, server.scorer.batches))
        assert len(sizes) < 100
        assert max(sizes) <= 7


def test_a_failure_is_that_of_its_own_text() -> None:
    with stub() as server, ThreadPoolExecutor(4) as threads:
        first = threads.submit(server.post, ["hold"])
        until(server.scorer.holding.is_set)
        tasks = [threads.submit(server.post, [text]) for text in ("1", "fail", "3")]
        until(lambda: server.waiting() == 3)
        server.scorer.gate.set()
        assert first.result().json()["rewards"] == [0.0]
        one, failed, three = (task.result().json() for task in tasks)
        assert failed == {"detail": "the model failed on a text"}
        assert (one["rewards"], three["rewards"]) == ([1.0], [3.0])
        assert [len(batch) for batch in server.scorer.batches] == [1, 3, 1, 1, 1]


def test_health_and_a_model_that_fails() -> None:
    with stub(batching=Batching(64, 0.003, 9)) as server:
        assert server.client.get("/health").json() == {
            "status": "ok",
            **DESCRIPTION,
            "queue": {"texts": 0, "most": 9},
        }
        for number in range(3):
            assert server.client.get("/health").status_code == 200, number
            failed = server.post(["fail"])
            assert failed.status_code == 500
            assert "out of memory" not in failed.text  # goes to the log
        assert server.client.get("/health").status_code == 503
        assert server.post(["4"]).json()["rewards"] == [4.0]
        assert server.client.get("/health").json()["status"] == "ok"


def test_health_and_a_model_that_hangs() -> None:
    with stub(answer_seconds=0.2) as server:
        assert server.post(["hold"]).status_code == 503
        until(lambda: server.client.get("/health").status_code == 503)
        server.scorer.gate.set()
        until(lambda: server.client.get("/health").json()["status"] == "ok")


def test_a_busy_model_a_full_queue_and_a_time_out() -> None:
    with (
        stub(batching=Batching(64, 0.003, 2), answer_seconds=1.5) as server,
        ThreadPoolExecutor(3) as threads,
    ):
        busy = threads.submit(server.post, ["hold"])
        until(server.scorer.holding.is_set)
        assert server.post([]).json()["rewards"] == []  # the event loop is free
        assert server.post([1]).status_code == 422
        waiting = threads.submit(server.post, ["1", "2"])
        until(lambda: server.waiting() == 2)
        refused = server.post(["3"])
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        for late in (busy, waiting):
            assert (late.result().status_code, late.result().headers["retry-after"]) == (503, "1")
        server.scorer.gate.set()
        until(lambda: server.waiting() == 0)
        assert server.post(["3", "4", "5"]).json()["rewards"] == [3.0, 4.0, 5.0]  # alone, it fits
        assert server.scorer.batches == [["hold"], ["3", "4", "5"]]


def test_the_end_answers_what_is_left() -> None:
    with stub(batching=Batching(64, 1.0)) as server, ThreadPoolExecutor(1) as threads:
        left = threads.submit(server.post, ["1", "2"])
        until(lambda: server.waiting() == 1)  # the other one is in a batch
        server.server.should_exit = True
        assert left.result().json()["rewards"] == [1.0, 2.0]


def test_a_token_is_asked_for_everywhere_but_by_health() -> None:
    with stub(TOKEN) as server:
        bare = server.client.get("/health", headers={"authorization": ""})
        assert (bare.status_code, bare.json()) == (200, {"status": "ok"})
        known = server.client.get("/health", headers={"authorization": f"Bearer {TOKEN}"})
        assert known.json()["model"] == DESCRIPTION["model"]
        rights = (f"Bearer {TOKEN}", f"bearer {TOKEN}")
        wrongs = ("", "Bearer", f"Bearer {TOKEN}x", TOKEN, f"Basic {TOKEN}")
        for header in (*rights, *wrongs):
            headers = {"authorization": header}
            answer = server.client.post("/get_reward", headers=headers, json={"query": ["1"]})
            assert answer.status_code == (200 if header in rights else 401)


def posted(body: bytes) -> bytes:
    return HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)


BODIES = (
    *(b"", b"{", b"\xff", b"[" * 4000, b'{"query": "1"}', b'{"query": [1]}'),
    *(b'{"query": [%s"1"]}' % (1024 * b'"1",'), b'{"query": ["\\ud800"]}'),
)
BAD = {
    413: [
        posted(b" " * 9000),
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + (b"64\r\n" + b" " * 100 + b"\r\n") * 60,
    ],
    422: list(map(posted, BODIES)),
}


def test_bad_requests_get_a_4xx_and_leave_no_trace(monkeypatch, capfd) -> None:
    monkeypatch.setattr(server_module, "BODY_BYTES", 8192)
    with stub() as server:
        for status, requests in BAD.items():
            for request in requests:
                with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
                    connection.sendall(request)
                    answer = connection.recv(1 << 16)
                assert answer.startswith(b"HTTP/1.1 %d " % status), (request[-60:], answer)
                assert b"Traceback" not in answer
        for _ in range(20):  # and who hangs up
            with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
                connection.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        assert server.post(["1"]).json()["rewards"] == [1.0]
        assert server.scorer.batches == [["1"]]
    assert "Traceback" not in capfd.readouterr().err


# `openrlhf-js rm serve`


def test_what_cannot_be_served(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    folder = save_reward_model(tmp_path / "model", outputs=2)
    normal = save_reward_model(tmp_path / "normal")

    def problem(folder: Path, *flags: str) -> str:
        assert rm.main(["serve", f"--reward.model_name_or_path={folder}", "--port=0", *flags]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "a reward needs [1, 32]" in problem(folder)
    assert "no mean and std" in problem(normal, "--reward.normalize_enable")
    for host in ("0.0.0.0", "example.org"):
        assert "clients must send a token" in problem(tmp_path, "--host", host)
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    assert "needs 16 or more characters" in problem(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert "has no config.json" in problem(tmp_path, "--host", "0.0.0.0")
    assert "No such file" in problem(tmp_path, "--token_file", str(tmp_path / "missing"))


def test_hosts_and_tokens(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "", "10.0.0.1", "127.0.0.1.nip.io"):
        assert not is_loopback(host)
    assert read_token(None, None) is None
    assert read_token(f" {TOKEN}\n", None) == TOKEN
    (tmp_path / "token").write_text(f"{TOKEN}-of-the-file\n")
    assert read_token(TOKEN, tmp_path / "token") == f"{TOKEN}-of-the-file"
    for bad in ("short", "\N{SNOWMAN}" * 20, "a-token-with-a\ttab-in-it"):
        with pytest.raises(ValueError, match="needs 16 or more"):
            read_token(bad, None)
