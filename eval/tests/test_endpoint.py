"""The client of chat endpoints, against a real HTTP server that misbehaves."""

import asyncio
import logging
import os
import signal
import time

import openai._base_client
import pytest
from kit import free_port
from stub_judge import reply, serving

from paired_eval.sampling import endpoint, run_all
from paired_eval.sampling.endpoint import Endpoint, EndpointError, NoReply, Reply

KEY = "sk-very-secret-0123456789/abc"
ASKED = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "A or B?"}]
GOOD = reply("yes")


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.01)
    monkeypatch.setattr(endpoint, "RETRIES", 3)
    monkeypatch.setattr(endpoint, "PAUSE_SECONDS", 0.01)


def ask(url, **parameters):
    """The reply to a request."""

    async def run():
        async with Endpoint(url, "judge", timeout_seconds=5) as there:
            return await there.chat(ASKED, **parameters)

    return asyncio.run(run())


# As Gemini's endpoint has it: 21 + 5, and 60 of thinking.
USAGE = {"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 86}
THINKING_IN_THE_TOTAL = (200, {**GOOD[1], "usage": USAGE})
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": "x"},
    {"type": "text", "text": "y"},
    "odd",
]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply("x", tokens=None), Reply("x", "", "stop", None, None)),
        (reply(None, refusal="I cannot"), Reply("I cannot", "", "stop", 2, 3)),
        (reply(17, None), Reply("", "", "", 2, 3)),
        (reply("x", reasoning_content="hm"), Reply("x", "hm", "stop", 2, 3)),
        (reply("x", reasoning="hm"), Reply("x", "hm", "stop", 2, 3)),
        (reply(PARTS), Reply("xy", "hm", "stop", 2, 3)),
        (reply("lone \ud800 half"), Reply("lone ? half", "", "stop", 2, 3)),
        (THINKING_IN_THE_TOTAL, Reply("yes", "", "stop", 21, 65)),
    ],
)
def test_replies_of_all_forms(answer, expected):
    with serving(lambda *_: answer) as served:
        assert ask(served.url, temperature=0.0, seed=None, max_completion_tokens=7) == expected
    assert served.requests == [
        {"model": "judge", "messages": ASKED, "temperature": 0.0, "max_completion_tokens": 7}
    ]


@pytest.mark.parametrize("status", [500, 503])
def test_what_may_pass_is_retried_and_then_unanswered(status):
    answers = [(status, b"oops")] * 2 + [GOOD]
    with serving(lambda _, number: answers[number - 1]) as served:
        assert ask(served.url).text == "yes"
    with serving(lambda *_: (status, b"oops")) as served:
        with pytest.raises(NoReply, match=f"answered {status}: oops") as error:
            ask(served.url)
        assert len(served.requests) == 4
    assert not error.value.refused


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"", b"[" * 10**5, b'{"choices": [1]}', b'{"choices": [{"message": null}]}'],
)
def test_an_answer_without_a_completion(body):
    with serving(lambda *_: (200, body)) as served:
        with pytest.raises(NoReply, match="holds no chat completion"):
            ask(served.url)
        assert len(served.requests) == 1  # it may be charged for


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"who?", "it needs an API key"),
        (402, b"no credit", "no credit"),
        (404, b"", "no model 'm', or the address is not its base"),
        (429, b'{"error": {"code": "insufficient_quota"}}', "insufficient_quota"),
    ],
)
def test_what_every_request_would_get_ends_the_run(status, body, said):
    with serving(lambda *_: (status, body)) as served, pytest.raises(EndpointError, match=said):
        collect(served.url, range(20), concurrency=8)
    assert len(served.requests) <= 8 * (1 + 3 * (status == 429))  # which is retried


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_refused_request_is_sent_once(status):
    with serving(lambda *_: (status, b"invalid_prompt")) as served:
        with pytest.raises(NoReply, match=f"answered {status}: invalid_prompt") as error:
            ask(served.url)
        assert len(served.requests) == 1
    assert error.value.refused


def test_retry_after_is_waited_for():
    slow_down = (429, b"slow down", {"Retry-After": "1"})
    with serving(lambda _, number: slow_down if number == 1 else GOOD) as served:
        assert ask(served.url).text == "yes"
        first, second = served.times
    assert 1 <= second - first < 3


def test_a_long_retry_after_is_waited_for_too():
    slow_down = (429, b"slow down", {"Retry-After": "300"})  # more than the client waits itself
    with serving(lambda *_: slow_down) as served, pytest.raises(NoReply, match="limits your rate"):
        ask(served.url)
    assert len(served.requests) == 1


def test_a_limited_rate_is_waited_for():
    limited = (429, b'{"error": "requests per minute"}')
    with serving(lambda _, number: limited if number < 11 else GOOD) as served:
        assert ask(served.url).text == "yes"
    with serving(lambda *_: limited) as served, pytest.raises(NoReply) as raised:
        ask(served.url)
    assert "no reply within 5 s" in str(raised.value)
    assert "lower the concurrency" in str(raised.value)
    assert not raised.value.refused
    quota = (429, b'{"error": {"code": "insufficient_quota"}}')
    with serving(lambda *_: quota) as served, pytest.raises(EndpointError, match="quota"):
        ask(served.url)


@pytest.mark.parametrize("text", [None, "The first step"])
def test_a_reply_that_a_filter_cut_off_is_refused(text):
    answer = reply(text, "content_filter")
    with serving(lambda *_: answer) as served, pytest.raises(NoReply, match="filter") as raised:
        ask(served.url)
    assert raised.value.refused


def test_the_model_of_an_address():
    with serving() as served:
        assert Endpoint(served.url).connect().model == "small"
        assert Endpoint(f"{served.url}/#other/name").connect().model == "other/name"
    with serving(models=("one", "two")) as served, pytest.raises(ValueError, match="name one, as"):
        Endpoint(served.url).connect()
    with serving(models=()) as served, pytest.raises(ValueError, match="lists no models: correct"):
        Endpoint(served.url).connect()
    same = ("http://x/v1", "http://x/v1/", " http://x/v1/chat/completions ")
    assert {Endpoint(each, "m").base_url for each in same} == {"http://x/v1"}
    for url in ("", "localhost:8000", "ftp://x/v1", "http://me:secret@x/v1", "http://x?k=secret"):
        with pytest.raises(ValueError, match="address"):
            Endpoint(url, "m")


def test_loopback_goes_through_no_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(lambda *_: GOOD) as served:
        assert Endpoint(served.url).connect().model == "small"
        assert ask(served.url).text == "yes"


@pytest.mark.parametrize("key", ["  ", "two words", "sk-\u00e9", "sk\r\nX: y"])
def test_a_variable_without_a_key(monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(ValueError, match="environment variable JUDGE_KEY holds no API key"):
        Endpoint("http://x/v1", "m", "JUDGE_KEY")


def test_the_key_is_sent_and_never_shown(monkeypatch, caplog, capfd):
    monkeypatch.setenv("JUDGE_KEY", f"  {KEY}\n")
    caplog.set_level(logging.DEBUG)
    seen = []

    def ask_with_key(answer):
        async def run():
            async with Endpoint(served.url, "judge", "JUDGE_KEY") as there:
                return await there.chat(ASKED)

        with serving(lambda *_: answer) as served:
            try:
                seen.append(repr(asyncio.run(run())))
            except (NoReply, EndpointError) as error:
                seen.append(repr(error))
            assert {*served.keys} == {f"Bearer {KEY}"}

    ask_with_key(reply(f"you sent {KEY}", KEY, reasoning_content=KEY))
    escaped = KEY.replace("/", "\\/").encode()
    ask_with_key((200, b'{"choices": [{"message": {"content": "' + escaped + b'"}}]}'))
    for status in (200, 400, 401, 403, 404, 500):
        ask_with_key((status, f'"{KEY}"'.encode()))
    assert "[key]" in "".join(seen)
    assert KEY not in "".join([*seen, caplog.text, *capfd.readouterr()])


def collect(url, jobs, concurrency=4, work=None, on_results=None, timeout_seconds=5):
    """Job by reply text, or the NoReply, of `run_all`."""
    found = {}

    async def asking(job):
        return (await there.chat([{"role": "user", "content": str(job)}])).text

    there = Endpoint(url, "m", timeout_seconds=timeout_seconds)
    run_all.run_all(there, jobs, work or asking, on_results or found.update, concurrency)
    return found


def echo(request, number):
    text = request["messages"][0]["content"]
    return (413, b"") if text == "5" else reply(text)


def test_all_jobs_run_and_one_refusal_does_not_stop_them():
    def slow(*given):
        time.sleep(0.02)
        return echo(*given)

    with serving(slow) as served:
        found = collect(served.url, iter(range(20)), concurrency=3)
    assert {job: text for job, text in found.items() if job != 5} == {
        i: str(i) for i in range(20) if i != 5
    }
    assert found[5].refused
    assert 1 < served.most_at_once <= 3


@pytest.fixture
def signalled():
    """Signals end the program as `settings.run` has it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield lambda number: os.kill(os.getpid(), number)
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("limit", "last"), [(30, 6), (0.2, 5)])
def test_a_signal_waits_for_the_replies_under_way_but_not_for_long(signalled, capsys, limit, last):
    """A second signal ends the wait at once: tests/cli/test_eval_arena.py."""
    kept = []

    async def work(job):
        if job == 5:
            signalled(signal.SIGTERM)
            await asyncio.sleep(1 if limit > 1 else 60)
        return job

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        collect("http://127.0.0.1:9/v1", range(100), 1, work, kept.extend, timeout_seconds=limit)
    assert kept == [(i, i) for i in range(last)]
    assert time.monotonic() - began < 20
    assert "replies under way, which may be paid for" in capsys.readouterr().err


def test_an_error_waits_for_the_replies_under_way():
    kept = []

    def answer(request, number):
        if number == 3:
            return 401, b"key expired"
        time.sleep(0.3)
        return GOOD

    with serving(answer) as served, pytest.raises(EndpointError, match="key expired"):
        collect(served.url, range(20), 3, on_results=kept.extend)
    assert [text for _, text in kept] == ["yes", "yes"]
    assert len(served.requests) == 3
