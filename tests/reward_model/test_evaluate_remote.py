import asyncio
import contextlib
import json
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openrlhf_js.reward_model import remote_scoring
from openrlhf_js.reward_model.remote_scoring import UNTOLD, Servers
from openrlhf_js.reward_model.score_file import Rewards, ScoreFile
from openrlhf_js.reward_model.scoring import ScoringFailed

TEXTS = [(f"chosen {i}", f"rejected {i}") for i in range(40)]


def rewards_of(texts):
    return [int(text.split()[1]) + text.startswith("chosen") / 2 for text in texts]


class Server:
    """A real server on loopback; `answer(queries, number)` gives status and body."""

    def __init__(self, answer=None, encoding="identity", health=None):
        self.answer = answer or (lambda texts, number: (200, {"rewards": rewards_of(texts)}))
        self.requests, self.tokens = [], []
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                known = self.path == "/v1/health" and health is not None
                self.send(200 if known else 404, health if known else {"detail": "Not Found"})

            def do_POST(self):
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["query"]
                with outer._lock:
                    outer.requests.append(texts)
                    outer.tokens.append(self.headers["Authorization"])
                    number = len(outer.requests)
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                status, body = outer.answer(texts, number)
                with outer._lock:
                    outer._now -= 1
                self.send(status, body)

            def send(self, status, body):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Encoding", encoding)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1/get_reward"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch):
    monkeypatch.setattr(remote_scoring, "FIRST_WAIT_SECONDS", 0.001)


def score_and_hear(path, urls, *, in_flight=4, token=None, timeout=10.0, texts=TEXTS):
    with ScoreFile(path, {}, len(texts)) as file:
        told = asyncio.run(
            Servers(urls, timeout_seconds=timeout, token=token).score_pairs(
                texts, file, at_once=4, in_flight=in_flight, progress=lambda done: None
            )
        )
        return file.rewards, told


def score(*args, **more):
    return score_and_hear(*args, **more)[0]


EXPECTED = {i: (i + 0.5, i) for i in range(40)}


def test_several_requests_are_in_flight(tmp_path):
    def slow(texts, number):
        time.sleep(0.1)
        return 200, {"rewards": rewards_of(texts)}

    with Server(slow) as server:
        assert score(tmp_path / "s", [server.url], token="secret") == EXPECTED
        assert 2 <= server.most_at_once <= 4
        assert set(server.tokens) == {"Bearer secret"}
        assert len(server.requests) == 1 + 10  # one to see that it answers


def test_all_servers_share_the_work(tmp_path):
    with Server() as one, Server() as two:
        assert score(tmp_path / "s", [one.url, two.url]) == EXPECTED
        assert len(one.requests) >= 3
        assert len(two.requests) >= 3


def test_passing_failures_are_asked_again(tmp_path):
    def shaky(texts, number):
        return (200, {"rewards": rewards_of(texts)}) if number % 3 else (503, b"busy")

    with Server(shaky) as server:
        assert score(tmp_path / "s", [server.url]) == EXPECTED


def test_one_of_two_servers_may_go_down(tmp_path):
    stopped = []

    def once(texts, number):
        if number > 3:
            stopped.append(number)
            return 500, b"out of memory"
        return 200, {"rewards": rewards_of(texts)}

    with Server() as one, Server(once) as two:
        assert score(tmp_path / "s", [one.url, two.url]) == EXPECTED
    assert stopped


def test_nobody_there(tmp_path):
    with Server() as server:
        url = server.url
    with pytest.raises(ScoringFailed, match=r"no rewards after 6 attempts; the last: .*Connect"):
        score(tmp_path / "s", [url])


def test_a_refusal_is_not_repeated(tmp_path):
    with Server(lambda texts, number: (401, b"token missing")) as server:
        with pytest.raises(ScoringFailed, match="answered 401: 'token missing'"):
            score(tmp_path / "s", [server.url])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"rewards": [1.0]}, "8 texts got 1 rewards"),
        ({"rewards": [1.0] * 9}, "8 texts got 9 rewards"),
        ({"rewards": None}, "8 texts got no list of rewards"),
        ({"scores": [1.0] * 8}, "an answer without rewards"),
        ([1.0] * 8, "an answer without rewards"),
        (b"", "an answer without rewards"),
        (b"[" * 100_000, "an answer without rewards"),
        (b'{"rewards": [1, 1, 1, 1, 1, 1, 1, NaN]}', "no finite number"),
        ({"rewards": [1.0] * 7 + ["2"]}, "no finite number"),
        ({"rewards": [1.0] * 7 + [None]}, "no finite number"),
        (b"x" * 2_000_000, "larger than 1056768 bytes"),
    ],
)
def test_what_is_no_reward_stops_the_evaluation(tmp_path, body, message):
    def answer(texts, number):
        good = {"rewards": rewards_of(texts)}
        return 200, good if len(texts) == 1 or number < 4 else body

    with Server(answer) as server, pytest.raises(ScoringFailed, match=message):
        score(tmp_path / "s", [server.url], in_flight=1)
    with ScoreFile(tmp_path / "s", {}, 40) as file:
        assert file.rewards == {i: EXPECTED[i] for i in range(8)}


def test_nothing_is_unpacked(tmp_path):
    def packed(texts, number):
        return 200, zlib.compress(json.dumps({"rewards": rewards_of(texts)}).encode())

    with (
        Server(packed, encoding="deflate") as server,
        pytest.raises(ScoringFailed, match="an answer without rewards"),
    ):
        score(tmp_path / "s", [server.url])


def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path):
    def stuck(texts, number):
        time.sleep(0 if number == 1 else 1.0)
        return 200, {"rewards": rewards_of(texts)}

    with Server(stuck) as server, pytest.raises(ScoringFailed, match="ReadTimeout"):
        score(tmp_path / "s", [server.url], timeout=0.1, in_flight=1, texts=TEXTS[:4])


def test_another_model_behind_the_same_address_is_noticed(tmp_path):
    with ScoreFile(tmp_path / "s", {}, 40) as file:
        file.append({5: Rewards(77.0, 0.0)})
    with Server() as server, pytest.raises(ValueError, match=r"gives 5\.5 for a text that had 77"):
        score(tmp_path / "s", [server.url])


def test_servers_of_two_models_are_noticed(tmp_path):
    def other(texts, number):
        return 200, {"rewards": [3.0 + reward for reward in rewards_of(texts)]}

    with (
        Server() as one,
        Server(other) as two,
        pytest.raises(ValueError, match="not the same model"),
    ):
        score(tmp_path / "s", [one.url, two.url])


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([{"normalized": True, "mean": 0.5, "std": 2.0}], (True, 0.5, 2.0)),
        ([{"normalized": False, "mean": 0.5, "std": 2.0}] * 2, (False, None, None)),
        ([{"normalized": True, "mean": 0.5, "std": 2.0}, {"normalized": False}], UNTOLD),
        ([{"normalized": False}, None], UNTOLD),  # the other one is OpenRLHF's
        ([None], UNTOLD),
        ([{"normalized": True, "mean": None, "std": 2.0}], UNTOLD),
        ([{"normalized": "yes"}], UNTOLD),
        ([[1, 2]], UNTOLD),
        ([b"<html>"], UNTOLD),
        ([b" " * 2_000_000], UNTOLD),
    ],
)
def test_servers_say_whether_they_normalise(tmp_path, answers, told):
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(Server(health=each)).url for each in answers]
        assert score_and_hear(tmp_path / "s", urls) == (EXPECTED, told)
