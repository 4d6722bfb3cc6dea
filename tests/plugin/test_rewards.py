"""Rewards over HTTP: addresses, answers that are not trusted, and a client that retries."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import pickle
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.plugin import rewards as rewards_module
from openrlhf_js.plugin.rewards import (
    RemoteRewards,
    RewardSource,
    UnusableAnswer,
    client_of,
    parse,
    read_answer,
)
from openrlhf_js.plugin.upstream import BadInput, BadReward

Answer = Callable[[dict[str, Any]], "web.Response | Awaitable[web.Response]"]


def reward(value: Any, **more: Any) -> web.Response:
    """What a reward server says about one response."""
    return web.json_response({"rewards": [value], "scores": [value], "extra_logs": {}, **more})


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


class Server:
    """A real server, to be started and stopped: it keeps all queries and the last headers."""

    def __init__(self, answer: Answer):
        self.answer = answer
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/get_reward"
        self.queries: list[str] = []
        self.headers: dict[str, str] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> Server:
        app = web.Application()
        app.router.add_post("/get_reward", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _handle(self, request: web.Request) -> web.Response:
        content = await request.json()
        self.queries += content["query"]
        self.headers = dict(request.headers)
        made = self.answer(content)
        return await made if asyncio.iscoroutine(made) else made


PATIENT = 30.0


def length(content):
    """The model behind the servers: its reward for a query is the query's length."""
    return reward(len(content["query"][0]) / 10)


def client(*servers: Server, timeout_seconds: float = PATIENT, **more) -> RemoteRewards:
    urls = tuple(server.url for server in servers)
    return RemoteRewards([RewardSource("", 1.0, urls)], timeout_seconds, **more)


async def grades(rewards: RemoteRewards, queries: list[str]) -> list[float]:
    try:
        return [
            grade["rewards"]
            for grade in await asyncio.gather(*(rewards.grade(q, q, None) for q in queries))
        ]
    finally:
        await rewards.close()


QUERIES = ["x" * i for i in range(1, 41)]
EXPECTED = [len(query) / 10 for query in QUERIES]


def test_the_request_is_upstreams_and_bears_the_token():
    seen = {}

    def answer(content):
        seen.update(content)
        return reward(0.5, scores=[0.25], extra_logs={"dummy": [3.0]})

    async def run():
        async with Server(answer) as server:
            rewards = client(server, token="secret")
            grade = await rewards.grade("the query", "the prompt", "the label")
            await rewards.close()
            return grade, server.headers

    grade, headers = asyncio.run(run())
    assert seen == {"query": ["the query"], "prompts": ["the prompt"], "labels": ["the label"]}
    assert grade == {"rewards": 0.5, "scores": 0.25, "extra_logs": {"dummy": 3.0}}
    assert headers["Authorization"] == "Bearer secret"


def test_queries_are_split_over_the_servers():
    async def run():
        async with Server(length) as one, Server(length) as two:
            assert await grades(client(one, two), QUERIES) == EXPECTED
            return one.queries, two.queries

    one, two = asyncio.run(run())
    assert sorted(one + two) == sorted(QUERIES)  # each once
    assert min(len(one), len(two)) >= 10


@pytest.fixture
def short_rests(monkeypatch):
    monkeypatch.setattr(rewards_module, "FIRST_REST_SECONDS", 0.1)
    monkeypatch.setattr(rewards_module, "LOOK_SECONDS", 0.1)


def test_one_of_two_servers_stays_down_and_that_is_said_once(caplog, short_rests):
    async def run():
        gone = Server(length)
        async with Server(length) as one:
            rewards = client(one, gone)
            for _ in range(5):
                done = asyncio.gather(*(rewards.grade(q, q, None) for q in QUERIES))
                assert [grade["rewards"] for grade in await done] == EXPECTED
                await asyncio.sleep(0.25)  # a rest is over
            await rewards.close()

    with caplog.at_level(logging.WARNING, rewards_module.__name__):
        asyncio.run(run())
    (said,) = caplog.messages
    assert "does not answer (ClientConnectorError" in said


def flaky(*first: web.Response):
    """Answers with these once each, then properly."""
    left = list(first)
    return lambda content: left.pop(0) if left else length(content)


def page(text: str, status: int = 200, **headers: str) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


TEMPORARY = {
    "an error page": page("<html>starting</html>"),
    "wrong length": web.json_response({"rewards": [1.0, 2.0]}),
    "bad gateway": page("<h1>502</h1>", 502),
    "broken once": page("Internal Server Error", 500),
    "moved": page("", 302, Location="http://127.0.0.1:9/"),
    "too long": page("x" * (1 << 20)),
    "busy": page("", 503, **{"Retry-After": "0"}),
    "a date": page("", 429, **{"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}),
}


@pytest.mark.parametrize("answer", TEMPORARY.values(), ids=TEMPORARY)
def test_what_is_no_answer_is_asked_again_and_never_becomes_a_reward(answer):
    async def run():
        async with Server(flaky(answer)) as server:
            return await grades(client(server), ["four"]), len(server.queries)

    assert asyncio.run(run()) == ([0.4], 2)


def test_retry_after_is_heeded():
    async def run():
        async with Server(flaky(page("", 429, **{"Retry-After": "1"}))) as server:
            began = time.monotonic()
            assert await grades(client(server), ["four"]) == [0.4]
            return time.monotonic() - began

    assert asyncio.run(run()) >= 1 > rewards_module.FIRST_REST_SECONDS


PERMANENT = {
    "no token": page("who are you?", 401),
    "poison": page("Internal Server Error", 500),
}


@pytest.mark.parametrize("answer", PERMANENT.values(), ids=PERMANENT)
def test_a_server_that_only_talks_nonsense_is_given_up_soon(answer):
    async def run():
        def same(_):
            return page(answer.text, answer.status)

        async with Server(same) as server:
            with pytest.raises(BadReward, match="3 answers were unusable") as caught:
                await grades(client(server), ["four"])
            return str(caught.value), len(server.queries)

    said, asked = asyncio.run(run())
    assert answer.text in said and asked == 3
    assert ("OPENRLHF_JS_REWARD_TOKEN" in said) == (answer.status == 401)


def test_the_other_server_makes_up_for_one_that_talks_nonsense():
    async def run():
        async with Server(lambda _: page("<html>")) as bad, Server(length) as good:
            return await grades(client(bad, good), QUERIES)

    assert asyncio.run(run()) == EXPECTED


@pytest.mark.parametrize("value", ["NaN", "null", "Infinity"])
def test_a_model_without_a_reward_is_not_asked_again(value):
    text = f'{{"rewards": [{value}]}}'

    async def run():
        async with Server(lambda _: web.Response(text=text)) as server:
            with pytest.raises(BadReward, match=r"the reward is .* from http"):
                await grades(client(server), ["four"])
            return len(server.queries)

    assert asyncio.run(run()) == 1


def test_when_the_time_is_up_there_is_no_reward():
    async def run():
        began = time.monotonic()
        with pytest.raises(BadReward, match=r"no reward within 1 s .*Connect") as caught:
            await grades(client(Server(length), timeout_seconds=1.0), ["four"])
        return time.monotonic() - began, str(caught.value)

    seconds, said = asyncio.run(run())
    assert 1 <= seconds < 20
    assert "--js.reward_timeout_seconds" in said


def test_a_server_that_hangs_is_left_for_the_other():
    async def run():
        async def hang(_):
            await asyncio.sleep(PATIENT)

        async with Server(hang) as stuck, Server(length) as good:
            return await grades(client(stuck, good, timeout_seconds=10), QUERIES)

    assert asyncio.run(run()) == EXPECTED


def test_several_models_are_added_up_with_their_weights():
    async def run():
        def harmful(_):
            return reward(5.0, scores=[7.0], extra_logs={"seen": 1.0})

        async with Server(length) as one, Server(length) as two, Server(harmful) as three:
            sources = [
                RewardSource("help", 2.0, (one.url, two.url)),
                RewardSource("harm", -0.5, (three.url,)),
            ]
            rewards = RemoteRewards(sources, PATIENT)
            grade = await rewards.grade("four", "f", "l")
            await rewards.close()
            return grade, len(one.queries) + len(two.queries), len(three.queries)

    grade, helped, harmed = asyncio.run(run())
    assert grade["rewards"] == pytest.approx(2 * 0.4 - 0.5 * 5)
    assert grade["scores"] == pytest.approx(2 * 0.4 - 0.5 * 7)
    assert grade["extra_logs"] == {"reward/help": 0.4, "reward/harm": 5.0, "harm/seen": 1.0}
    assert (helped, harmed) == (1, 1)


def test_without_one_of_several_models_the_others_are_not_asked_on():
    async def run():
        async with Server(lambda _: reward(None)) as one:
            sources = [
                RewardSource("a", 1.0, (one.url,)),
                RewardSource("b", 1.0, (Server(length).url,)),  # nobody is there
            ]
            rewards = RemoteRewards(sources, PATIENT)
            with pytest.raises(BadReward, match="null"):
                await rewards.grade("four", "f", "l")
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            await rewards.close()
            return [task.get_coro().__qualname__ for task in left]

    assert "RewardServers.ask" not in asyncio.run(run())


def test_no_more_queries_than_agreed_are_under_way(monkeypatch):
    monkeypatch.setattr(rewards_module, "AT_ONCE", 5)
    now = Counter()

    async def slowly(content):
        now["busy"] += 1
        now["most"] = max(now["most"], now["busy"])
        await asyncio.sleep(0.01)
        now["busy"] -= 1
        return length(content)

    async def run():
        async with Server(slowly) as server:
            return await grades(client(server), QUERIES)

    assert asyncio.run(run()) == EXPECTED
    assert now["most"] == 5


def test_a_compressed_answer_is_not_unpacked():
    import gzip

    packed = gzip.compress(json.dumps({"rewards": [1.0]}).encode())

    async def run():
        def answer(_):
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

        async with Server(answer) as server:
            with pytest.raises(BadReward, match="not JSON"):
                await grades(client(server), ["four"])

    asyncio.run(run())


def arguments(addresses: list[str] | None, agent: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        reward=SimpleNamespace(remote_url=addresses),
        train=SimpleNamespace(agent_func_path=agent),
        js=SimpleNamespace(reward_weights=None, reward_timeout_seconds=PATIENT),
    )


def test_only_addresses_need_a_client():
    assert client_of(arguments(None)) is None
    assert client_of(arguments(["reward.py"])) is None
    assert client_of(arguments(["agent"], agent="agent.py")) is None


def test_the_token_goes_with_the_client_to_another_process(monkeypatch):
    async def run(made):
        async with server:
            rewards = made()
            await rewards.grade("four", "f", "l")
            await rewards.close()

    server = Server(length)
    monkeypatch.setenv("OPENRLHF_JS_REWARD_TOKEN", "secret")
    made = pickle.loads(pickle.dumps(client_of(arguments([server.url]))))
    monkeypatch.delenv("OPENRLHF_JS_REWARD_TOKEN")
    asyncio.run(run(made))
    assert server.headers["Authorization"] == "Bearer secret"


# --- answers ---------------------------------------------------------------------------------


def body(**content) -> bytes:
    return json.dumps(content).encode()


def test_a_reward_with_its_score_and_figures():
    answer = read_answer(body(rewards=[0.5], scores=[2], extra_logs={"a": [1.5], "b": 3}))
    assert answer == (0.5, 2.0, {"a": 1.5, "b": 3.0})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"rewards": [-7]}, (-7.0, -7.0, {})),
        ({"rewards": 0.25, "scores": None}, (0.25, 0.25, {})),
        ({"rewards": [1e30], "scores": [0], "extra_logs": None}, (1e30, 0.0, {})),
        ({"rewards": [1], "extra_logs": {"a": "x", "b": [1, 2], "c": math.nan}}, (1.0, 1.0, {})),
        ({"rewards": [1], "extra_logs": {str(i): i for i in range(1000)}}, None),
    ],
)
def test_what_upstream_takes_is_taken(content, expected):
    answer = read_answer(body(**content))
    assert answer == expected if expected else len(answer.logs) == 64


@pytest.mark.parametrize("value", [None, [None], math.nan, [math.inf], [-math.inf], 10**400])
@pytest.mark.parametrize("key", ["rewards", "scores"])
def test_a_reward_that_the_model_did_not_get_is_none(key, value):
    if key == "scores" and value is None:
        return  # no score of its own
    with pytest.raises(BadReward):
        read_answer(body(**{"rewards": [1.0], key: value}))


BAD = [
    b"",
    b"<html><body>502 Bad Gateway</body></html>",
    b"\xff\xfe\x00",
    b'{"rewards": [1.0]',
    b"[" * 100_000,
    b"9" * 10_000,
    b"[1.0]",
    b"null",
    body(),
    body(rewards=[]),
    body(rewards=[1.0, 2.0]),
    body(rewards=["1.0"]),
    body(rewards=[True]),
    body(rewards=[[1.0]]),
    body(rewards=[1.0], scores=["good"]),
    body(rewards=[1.0], scores=False),
]


@pytest.mark.parametrize("came", BAD, ids=lambda came: repr(came[:30]))
def test_anything_else_is_no_answer(came):
    with pytest.raises(UnusableAnswer) as caught:
        read_answer(came)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(rewards=JSON, scores=JSON, logs=JSON)
def test_only_finite_numbers_ever_come_out(rewards, scores, logs):
    try:
        answer = read_answer(body(rewards=rewards, scores=scores, extra_logs=logs))
    except (UnusableAnswer, BadReward):
        return
    assert all(map(math.isfinite, [answer.reward, answer.score, *answer.logs.values()]))
    (value,) = rewards if isinstance(rewards, list) else [rewards]
    assert answer.reward == value and not isinstance(value, bool)


@settings(deadline=None)
@given(st.binary())
def test_no_bytes_break_it(came):
    with pytest.raises((UnusableAnswer, BadReward)):
        read_answer(came)


# --- addresses -------------------------------------------------------------------------------


A, B, C = (f"http://{host}:5000/get_reward" for host in "abc")


def problems(addresses: list[str], weights: str | None = None) -> list[str]:
    with pytest.raises(BadInput) as caught:
        parse(addresses, weights)
    return str(caught.value).splitlines()


def test_addresses_without_names_are_servers_of_one_model():
    assert parse([A], None) == [("", 1.0, (A,))]
    assert parse([A, B], None) == [("", 1.0, (A, B))]


def test_names_tell_models_apart():
    sources = parse([f"help={A}", f"harm={C}", f"help={B}"], "help=0.8,harm=-0.2")
    assert sources == [("help", 0.8, (A, B)), ("harm", -0.2, (C,))]
    assert parse([f"help={A}", f"help={B}"], None) == [("help", 1.0, (A, B))]


def test_space_after_a_comma_is_no_part_of_an_address_or_name():
    assert parse([A, f" {B} "], None) == [("", 1.0, (A, B))]
    sources = parse([f"help={A}", f" harm={C}"], "help=0.8, harm=-0.2")
    assert sources == [("help", 0.8, (A,)), ("harm", -0.2, (C,))]


def test_an_equals_sign_in_an_address_is_no_name():
    url = "http://a/get_reward?model=b"
    assert parse([url], None) == [("", 1.0, (url,))]


@pytest.mark.parametrize(
    ("addresses", "weights", "said"),
    [
        ([A, f"help={B}"], None, "give one NAME=NUMBER for each"),
        ([f"help={A}", f"harm={B}"], None, "give one NAME=NUMBER for each"),
        ([f"help={A}", f"harm={B}"], "help=1", "give one NAME=NUMBER for each"),
        ([f"help={A}", f"harm={B}"], "help=1,harm=1,art=1", "give one NAME=NUMBER for each"),
        ([A, B], "a=1,b=1", "give one NAME=NUMBER for each"),
        ([A], "1", "must be NAME=NUMBER"),
        ([f"help={A}"], "help=0", "not 0"),
        ([f"help={A}"], "help=nan", "finite"),
        ([f"help={A}"], "help=one", "must be NAME=NUMBER"),
        ([f"help={A}"], "help=1,help=2", "each name once"),
        (["ftp://a/x"], None, "neither a Python file (.py) nor an http(s) address"),
        (["http:///get_reward"], None, "neither"),
        ([""], None, "neither"),
        (["http://a:99999/x"], None, "is no address"),
        (["http://me:secret@a/x"], None, "OPENRLHF_JS_REWARD_TOKEN"),
    ],
)
def test_what_cannot_be_meant_is_said(addresses, weights, said):
    (line,) = problems(addresses, weights)
    assert said in line


def test_all_problems_come_at_once():
    assert len(problems(["ftp://a", "http://b:x/"], "a=b")) == 3
