"""The client of chat endpoints, against a real HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import time
from pathlib import Path

import pytest

from openrlhf_js.evaluation import endpoint, rates, servers
from openrlhf_js.evaluation.endpoint import (
    Chat,
    Endpoint,
    EndpointRefused,
    EndpointUnavailable,
    Limits,
    Reply,
    ReplyLost,
    RequestRefused,
)

sys.path.insert(0, str(Path(__file__).parent))
from stub_judge import HTML, Answer, completion, serving

KEY = "sk-very-secret-0123456789/abc"
ASKED = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "A or B?"}]
GOOD = Answer(body=completion("[[A>B]]"))


def deep(levels):
    return b'[{"text":' * levels + b'"x"' + b"}]" * levels


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(rates, "FIRST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr(servers, "FIRST_REST_SECONDS", 0.01)


def ask(*urls, messages=ASKED, parameters=None, times=1, key_name=None, **settings):
    """The replies, or errors, of that many requests at the same time, and the retries."""

    async def run():
        limits = Limits(**{"timeout_seconds": 5, "attempts": 4, **settings})
        async with Chat([Endpoint(url, "judge", key_name) for url in urls], limits) as chat:
            given = {"temperature": 0.0, "seed": None, **(parameters or {})}
            asked = (chat.ask(messages, given) for _ in range(times))
            return await asyncio.gather(*asked, return_exceptions=True), chat.retries

    return asyncio.run(run())


def one(answer, **settings):
    """The reply to one request; a list of answers is given one after the other."""
    answers = answer if isinstance(answer, list) else [answer]
    with serving(lambda request: answers[min(request.number, len(answers)) - 1]) as stub:
        (found,), _ = ask(stub.url, **settings)
        found_requests.append(stub.number)
    if isinstance(found, BaseException):
        raise found
    return found


found_requests: list[int] = []


def test_what_is_sent_and_what_comes():
    with serving(lambda request: GOOD) as stub:
        (reply,), retries = ask(stub.url)
    assert reply == Reply("[[A>B]]", "", "stop", 100, 10)
    assert retries == 0
    (request,) = stub.requests
    assert request.body == {"model": "judge", "messages": ASKED, "temperature": 0.0}
    assert "authorization" not in request.headers
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (completion("x", None), Reply("x", "", "stop", None, None)),
        (completion("x", (-1, True)), Reply("x", "", "stop", None, None)),
        (completion("x", ("9", 2.5)), Reply("x", "", "stop", None, None)),
        (completion("x", (10**10, 10**300)), Reply("x", "", "stop", None, None)),
        (completion(None, finish="content_filter"), Reply("", "", "content_filter", 100, 10)),
        (completion(None, finish="length"), Reply("", "", "length", 100, 10)),
        (completion("x", finish=None), Reply("x", "", "", 100, 10)),
        (completion(17), Reply("", "", "stop", 100, 10)),
        (completion("x", reasoning_content="hm"), Reply("x", "hm", "stop", 100, 10)),
        (completion("x", reasoning="hm"), Reply("x", "hm", "stop", 100, 10)),
        (completion("x", reasoning_content=None), Reply("x", "", "stop", 100, 10)),
        (
            completion(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "x"},
                    {"type": "text", "text": "y"},
                    "odd",
                ]
            ),
            Reply("xy", "hm", "stop", 100, 10),
        ),
        (completion("lone \ud800 half"), Reply("lone ? half", "", "stop", 100, 10)),
        (completion("a\u2028b\0c"), Reply("a\u2028b\0c", "", "stop", 100, 10)),
    ],
)
def test_replies_of_all_forms(body, expected):
    assert one(Answer(body=body)) == expected


def test_thinking_that_only_the_total_counts():
    """As Gemini's endpoint has it: 21 + 5, and 60 of thinking."""
    found = json.loads(completion("x"))
    for usage, counts in (
        ({"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 86}, (21, 65)),
        ({"prompt_tokens": 21, "total_tokens": 86}, (21, 65)),
        ({"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 20}, (21, 5)),
        ({"completion_tokens": 5, "total_tokens": 26}, (None, 5)),
    ):
        reply = one(Answer(body=json.dumps({**found, "usage": usage}).encode()))
        assert (reply.prompt_tokens, reply.completion_tokens) == counts


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(500, b"oops"), "answered 500: 'oops'"),
        (Answer(502, HTML), "answered 502: '<html>"),
        (Answer(429, b"{}"), "answered 429"),
        (Answer(408, b""), "answered 408: nothing"),
        (Answer(500, b"oo", cut=True), "cannot be reached: RemoteProtocolError"),
    ],
)
def test_what_may_pass_is_tried_again_and_then_given_up(answer, said):
    with pytest.raises(EndpointUnavailable, match="no reply after 4 attempts; the last: ") as error:
        one(answer)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert found_requests[-1] == 4
    assert one([answer, answer, answer, GOOD]).text == "[[A>B]]"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body=completion("?").replace(b'"?"', deep(450))), "no JSON"),
        (Answer(body=HTML), "no JSON: '<html>"),
        (Answer(body=b""), "no JSON: nothing"),
        (Answer(body=b"[" * 100_000), "no JSON"),
        (Answer(body=b'"text"'), "JSON without choices"),
        (Answer(body=b'{"error": {"message": "overloaded"}}'), "overloaded"),
        (Answer(body=b'{"choices": []}'), "answered 200 with an empty list of choices"),
        (Answer(body=b'{"choices": [1]}'), "a choice without a message"),
        (Answer(body=b'{"choices": [{"message": null}]}'), "a choice without a message"),
        (Answer(200, b'{"choi', cut=True), "answered 200, and was cut off"),
        (GOOD._replace(seconds=9), "did not answer in 0.3 s"),
    ],
)
def test_what_may_be_charged_for_is_tried_twice_at_most(answer, said):
    limit = 0.3 if answer.seconds else 5
    with pytest.raises(ReplyLost, match="a reply is lost, and may be charged for; http") as error:
        one([Answer(500), answer, Answer(500), answer, GOOD], timeout_seconds=limit, attempts=9)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert found_requests[-1] == 4
    assert one([answer, GOOD], timeout_seconds=limit).text == "[[A>B]]"


def test_a_caller_may_want_to_hear_of_the_first_lost_reply():
    async def run():
        async with Chat([Endpoint(stub.url, "judge")], Limits()) as chat:
            await chat.ask(ASKED, {}, most_lost=1)

    with serving(lambda request: Answer(body=HTML)) as stub, pytest.raises(ReplyLost):
        asyncio.run(run())
    assert stub.number == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "mend the parameters"),
        (402, "no credit left"),
        (401, "it wants a key"),
        (403, "a call without a key may not use the model 'judge'"),
        (404, "no model 'judge', or the url is not its base"),
        (307, "sends its callers elsewhere"),
        (422, "mend the parameters"),
    ],
)
def test_what_cannot_be_mended_stops_at_once(status, said):
    body = b'{"error": {"message": "no  such\\nthing"}}'
    with pytest.raises(EndpointRefused, match=said) as error:
        one(Answer(status, body))
    assert found_requests[-1] == 1
    assert type(error.value) is EndpointRefused
    assert f"answered {status}: " in str(error.value)
    assert "no such" in str(error.value)


def test_a_model_that_wants_max_completion_tokens():
    body = b"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with pytest.raises(EndpointRefused, match="--max_tokens_name max_completion_tokens") as error:
        one(Answer(400, body))
    assert type(error.value) is EndpointRefused


TOO_LARGE = "'max_tokens' or 'max_completion_tokens' is too large: 9000. "


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
        "max_tokens=9000 cannot be greater than max_model_len=max_total_tokens=8192.",
        "max_completion_tokens=9000 cannot be greater than max_model_len=8192.",
        f"{TOO_LARGE}This model's maximum context length is 8,192 tokens and your request has 50 "
        "input tokens (9000 > 8192 - 50).",
        "This model's maximum context length is 9000 tokens. However, you requested 9050 tokens "
        "(50 in the messages, 9000 in the completion).",
    ],
)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_more_tokens_than_the_model_can_take_at_all(said, name):
    with pytest.raises(EndpointRefused, match="leaves the model no room for any messages") as error:
        one(Answer(400, said.encode()), parameters={name: 9000})
    assert type(error.value) is EndpointRefused


def test_more_tokens_than_the_model_can_take_with_these_messages():
    said = f"{TOO_LARGE}This model's maximum context length is 9,216 tokens and your request has "
    with pytest.raises(RequestRefused, match="these messages, with max_tokens for the reply"):
        one(Answer(400, f"{said}800 input tokens".encode()), parameters={"max_tokens": 9000})


@pytest.mark.parametrize("place", ["path:x", "http://xn--/", "http://[::1", "//["])
def test_a_redirect_to_no_address(place):
    with pytest.raises((EndpointRefused, EndpointUnavailable), match=r"elsewhere|Invalid URL"):
        one(Answer(307, b"", (("Location", place),)))


def test_no_credit_is_not_a_429_that_passes():
    body = b'{"error": {"code": "insufficient_quota", "message": "You exceeded"}}'
    with pytest.raises(EndpointRefused, match="no credit left"):
        one(Answer(429, body))
    assert found_requests[-1] == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(400, b'{"error": {"code": "content_filter"}}'),
        Answer(400, b'{"message": "This model\'s maximum context length is 4096 tokens."}'),
        Answer(413, b"too large"),
    ],
)
def test_a_refusal_of_these_messages_alone(answer):
    with pytest.raises(RequestRefused, match="these messages"):
        one(answer)


def test_retry_after_is_honoured_by_all_requests():
    """The first 429 says 0.5 s: in that time nothing else is sent to the endpoint."""
    wait = 0.5

    def answer(request):
        if request.number == 1:
            return Answer(429, b"", (("Retry-After", str(wait)),))
        return GOOD

    with serving(answer) as stub:

        async def run():
            async with Chat([Endpoint(stub.url, "judge")], Limits(timeout_seconds=5)) as chat:
                first = asyncio.create_task(chat.ask(ASKED, {}))
                while stub.number < 1:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                await asyncio.gather(first, *(chat.ask(ASKED, {}) for _ in range(5)))

        asyncio.run(run())
    times = [request.time for request in stub.requests]
    assert len(times) == 7
    assert times[1] - times[0] >= wait


def test_after_a_rest_the_pace_is_kept():
    def answer(request):
        return Answer(429, b"", (("Retry-After", "0.5"),)) if request.number == 1 else GOOD

    with serving(answer) as stub:
        ask(stub.url, times=6, requests_per_minute=1200)
    times = sorted(request.time for request in stub.requests)
    assert len(times) == 7
    assert times[-1] - times[1] >= 5 * 60 / 1200 * 0.8


def test_an_endpoint_that_wants_to_be_left_alone_for_a_day():
    answer = Answer(429, b"", (("Retry-After", "86400"),))
    with pytest.raises(EndpointUnavailable, match="left alone for 86,400 s"):
        one(answer)
    assert found_requests[-1] == 1


def test_concurrency_is_bounded_and_used():
    with serving(lambda request: GOOD._replace(seconds=0.05)) as stub:
        replies, _ = ask(stub.url, times=20, concurrency=5)
    assert all(reply.text for reply in replies)
    assert stub.most_at_once == 5


def test_requests_per_minute():
    with serving(lambda request: GOOD) as stub:
        ask(stub.url, times=6, requests_per_minute=1200)
    times = [request.time for request in stub.requests]
    assert times[-1] - times[0] >= 5 * 60 / 1200 * 0.9


def test_tokens_per_minute_go_by_what_the_endpoint_counted():
    """A hundred tokens a reply, where the prompt's characters say 4: the pace follows the count."""
    messages = [{"role": "user", "content": "x" * 16}]
    with serving(lambda request: Answer(body=completion("x", (90, 10)))) as stub:
        ask(stub.url, messages=messages, times=4, concurrency=1, tokens_per_minute=60_000)
    times = [request.time for request in stub.requests]
    # The first is sent at once; of the others each waits for the 100 tokens before it.
    assert times[-1] - times[0] >= 2 * 100 / 60_000 * 60 * 0.9


def test_a_slow_answer_is_not_waited_for():
    with pytest.raises(EndpointUnavailable, match=r"did not answer in 0\.5 s"):
        one(GOOD._replace(seconds=2), timeout_seconds=0.5, attempts=2)
    assert found_requests[-1] == 2


def test_an_answer_that_never_ends(monkeypatch):
    monkeypatch.setattr(endpoint, "REPLY_BYTES", 10_000)
    with pytest.raises(EndpointUnavailable, match="more than 10,000 bytes"):
        one(Answer(body=completion("x" * 20_000)))
    assert found_requests[-1] == 1


def nobody():
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_nobody_there():
    for url in (nobody(), "http://no-such-host.invalid/v1"):
        (error,), _ = ask(url)
        assert isinstance(error, EndpointUnavailable)
        assert "cannot be reached: ConnectError" in str(error)


def test_endpoints_take_turns_and_one_that_is_down_is_left_aside():
    with serving(lambda request: GOOD) as first, serving(lambda request: GOOD) as second:
        replies, retries = ask(first.url, second.url, times=10, concurrency=1)
        assert [first.number, second.number, retries] == [5, 5, 0]
        replies, retries = ask(nobody(), first.url, second.url, times=40, concurrency=1, attempts=8)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert first.number + second.number == 50
    assert 1 <= retries <= 30  # without resting it would be 13 and more for every try


def test_an_endpoint_that_comes_back_is_used_again():
    def answer(request):
        return Answer(503, b"") if request.number <= 4 else GOOD

    with serving(answer) as down, serving(lambda request: GOOD._replace(seconds=0.01)) as up:
        replies, _ = ask(down.url, up.url, times=40, concurrency=2)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert down.number > 4
    assert up.number > 4


def test_endpoints_that_stay_silent_are_given_up(monkeypatch):
    monkeypatch.setattr(endpoint, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(servers, "LONGEST_REST_SECONDS", 0.05)
    with serving(lambda _: GOOD) as stub:
        gone = stub.url
    began = time.monotonic()
    replies, _ = ask(gone, times=3, concurrency=2, attempts=10_000)
    assert time.monotonic() - began < 5
    assert {type(each) for each in replies} == {endpoint.EndpointSilent}
    assert "no endpoint has given a reply for" in str(replies[0])
    assert "cannot be reached" in str(replies[0])


def test_one_endpoint_that_answers_is_enough_to_go_on(monkeypatch):
    monkeypatch.setattr(endpoint, "PATIENCE_SECONDS", 0.0)
    with serving(lambda _: Answer(500)) as down, serving(lambda _: GOOD) as up:
        replies, _ = ask(down.url, up.url, times=10, concurrency=2, attempts=50)
    assert all(isinstance(reply, Reply) for reply in replies)


def test_many_failures_at_once_are_one_reason_to_rest():
    server = servers.Server(Endpoint("http://x/v1", "m"))
    for _ in range(64):
        server.failed()
    assert server.rest_until - time.monotonic() <= servers.FIRST_REST_SECONDS


def test_the_key_is_sent_and_never_shown(monkeypatch, caplog, capfd):
    monkeypatch.setenv("JUDGE_KEY", f"  {KEY}\n")
    caplog.set_level(logging.DEBUG)
    seen = []

    def answer(request):
        said = request.headers.get("authorization", "")
        if request.number == 1:
            return Answer(500, f"your key is {said}".encode())
        return Answer(body=completion(f"you sent {said}", reasoning_content=said, finish=said))

    with serving(answer) as stub:
        (reply,), _ = ask(stub.url, key_name="JUDGE_KEY")
        seen += [repr(reply), repr(Endpoint(stub.url, "judge", "JUDGE_KEY"))]
        assert {request.headers["authorization"] for request in stub.requests} == {f"Bearer {KEY}"}
    assert reply.text == "you sent Bearer [key]"
    for status in (500, 400, 401, 403, 404):
        with serving(lambda request, status=status: Answer(status, f'"{KEY}"'.encode())) as stub:
            (error,), _ = ask(stub.url, key_name="JUDGE_KEY")
        while error:
            seen += [str(error), repr(error), repr(getattr(error, "__notes__", ""))]
            error = error.__cause__ or error.__context__
    for body in (b"x" * 180 + KEY.encode(), KEY.replace("/", "\\/").encode()):
        with serving(lambda request, body=body: Answer(200, body)) as stub:
            (error,), _ = ask(stub.url, key_name="JUDGE_KEY")
        assert KEY[:15] not in str(error)  # not even its beginning, where the excerpt ends
        assert "no JSON" in str(error)
    assert "set the environment variable JUDGE_KEY" in "".join(seen)
    assert "[key]" in "".join(seen)
    assert KEY not in "".join([*seen, caplog.text, *capfd.readouterr()])


@pytest.mark.parametrize("key", ["", "  ", "two words", "sk-\u00e9", "sk\r\nX: y"])
def test_a_variable_without_a_key(monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(ValueError, match="environment variable JUDGE_KEY") as error:
        Chat([Endpoint("http://x/v1", "m", "JUDGE_KEY")], Limits())
    assert not key.strip() or key not in str(error.value)
    assert error.value.__context__ is None
    monkeypatch.delenv("JUDGE_KEY")
    with pytest.raises(ValueError, match="JUDGE_KEY is not set"):
        Chat([Endpoint("http://x/v1", "m", "JUDGE_KEY")], Limits())


def test_a_word_that_is_sent_as_a_key_stays_in_texts(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "EMPTY")
    with serving(lambda request: Answer(body=completion("an EMPTY answer"))) as stub:
        (reply,), _ = ask(stub.url, key_name="JUDGE_KEY")
    assert reply.text == "an EMPTY answer"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://x/v1",
        "http://",
        "http:///v1",
        "https://a b/v1",
        "http://h:65536/v1",
    ],
)
def test_no_url(url):
    with pytest.raises(ValueError, match="no url of an endpoint; give one such as"):
        Endpoint(url, "m")


@pytest.mark.parametrize(
    "url", ["http://me:secret@x/v1", "http://x/v1?key=secret", "http://x#secret"]
)
def test_a_url_with_a_secret(url):
    with pytest.raises(ValueError, match="environment variable") as error:
        Endpoint(url, "m")
    assert "secret" not in str(error.value).replace("may be secret", "")


def test_urls_that_mean_the_same():
    urls = ("http://x/v1", "http://x/v1/", " http://x/v1/chat/completions ")
    assert {Endpoint(url, "m").url for url in urls} == {"http://x/v1"}


def test_no_endpoint():
    with pytest.raises(ValueError, match="at least one url"):
        Chat([], Limits())


def test_what_goes_out_is_json_whatever_the_text():
    messages = [{"role": "user", "content": "lone \ud800, \u2028, \0 and \U0001f600"}]
    with serving(lambda request: GOOD) as stub:
        ask(stub.url, messages=messages)
    assert stub.requests[0].body["messages"] == json.loads(json.dumps(messages))
