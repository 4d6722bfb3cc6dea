"""Rewards over HTTP: answers that are not trusted, and a client that retries."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import pickle
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import free_port, upstream_args

from openrlhf_js.trainers.openrlhf import rewards as rewards_module
from openrlhf_js.trainers.openrlhf.rewards import (
    RewardServers,
    UnusableAnswer,
    client_of,
    read_answer,
)
from openrlhf_js.trainers.openrlhf.upstream import BadReward

Answer = Callable[[dict[str, Any]], "web.Response | Awaitable[web.Response]"]


def reward(value: Any, **more: Any) -> web.Response:
    """What a reward server says about one response."""
    return web.json_response({"rewards": [value], "scores": [value], "extra_logs": {}, **more})


class Server:
    """A real server, to be started and stopped: it keeps all queries and the last headers."""

    def __init__(self, answer: Answer | None):
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
        assert self.answer
        made = self.answer(content)
        return await made if asyncio.iscoroutine(made) else made


PATIENT = 30.0
QUERIES = ["x" * i for i in range(1, 41)]
EXPECTED = [len(query) / 10 for query in QUERIES]


def length(content):
    """The model behind the servers: its reward for a query is the query's length."""
    return reward(len(content["query"][0]) / 10)


def page(text: str, status: int = 200, **headers: str) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


def flaky(first: web.Response):
    """Answers with this once, then properly."""
    left = [first]
    return lambda content: left.pop() if left else length(content)


async def hang(_):
    await asyncio.sleep(PATIENT)


def ask(
    servers: Sequence[Server], queries: Sequence[str] = ("four",), **options: Any
) -> list[dict[str, Any]]:
    """The grades of the queries. Servers without an answer are not started."""

    async def run() -> list[dict[str, Any]]:
        urls = [server.url for server in servers]
        rewards = RewardServers(urls, **{"timeout_seconds": PATIENT, **options})
        async with AsyncExitStack() as stack:
            for server in servers:
                if server.answer:
                    await stack.enter_async_context(server)
            stack.push_async_callback(rewards.close)
            jobs = (rewards.grade(query, "the prompt", "the label") for query in queries)
            return await asyncio.gather(*jobs)

    return asyncio.run(run())


def values(*args: Any, **kwargs: Any) -> list[float]:
    return [grade["rewards"] for grade in ask(*args, **kwargs)]


@pytest.fixture
def short_rests(monkeypatch):
    monkeypatch.setattr(rewards_module, "RETRY_SECONDS", 0.2)


def test_the_request_is_upstreams_and_carries_the_token():
    seen = {}

    def answer(content):
        seen.update(content)
        return reward(0.5, scores=[0.25], extra_logs={"dummy": [3.0]})

    server = Server(answer)
    (grade,) = ask([server], token="secret")
    assert seen == {"query": ["four"], "prompts": ["the prompt"], "labels": ["the label"]}
    assert grade == {"rewards": 0.5, "scores": 0.25, "extra_logs": {"dummy": 3.0}}
    assert server.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "bad", [None, lambda _: page("<html>"), hang], ids=["down", "html", "hung"]
)
def test_the_other_server_makes_up_for_a_bad_one(bad, short_rests, caplog):
    with caplog.at_level(logging.WARNING, rewards_module.__name__):
        options = {"timeout_seconds": 5.0} if bad is hang else {}
        assert values([Server(bad), Server(length)], QUERIES, **options) == EXPECTED
    assert len(caplog.messages) <= 1  # logged once, if at all


def test_the_time_is_up_however_many_servers_hang():
    servers = [Server(hang) for _ in range(12)]
    with pytest.raises(BadReward, match="no reward within 1 s"):
        ask(servers, timeout_seconds=1)
    assert sum(len(server.queries) for server in servers) <= 6  # each takes a fifth of it


def test_a_server_that_stops_and_returns_gives_every_reward_once(short_rests, caplog):
    async def run():
        server = await Server(length).start()
        rewards = RewardServers([server.url], timeout_seconds=14)
        asking = asyncio.gather(*(rewards.grade(query, "", "") for query in QUERIES))
        await server.stop()
        await asyncio.sleep(0.3)
        await server.start()
        found = [grade["rewards"] for grade in await asking]
        await rewards.close()
        await server.stop()
        return found

    assert asyncio.run(run()) == EXPECTED
    assert "does not answer" in caplog.text
    assert "answers again" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"rewards": [1.0, 2.0]}),
        page("<h1>502</h1>", 502),
        page("", 302, Location="http://127.0.0.1:9/"),
        page("x" * (1 << 20)),
    ],
    ids=["two rewards", "502", "moved", "too long"],
)
def test_what_is_no_answer_is_retried_and_never_becomes_a_reward(answer, short_rests):
    server = Server(flaky(answer))
    assert values([server]) == [0.4]
    assert len(server.queries) == 2


GIVEN_UP = {  # an answer -> how often it is asked for, and what is said
    (401, "who are you?"): (3, "REWARD_TOKEN.*who are you"),
    (200, '{"rewards": [NaN]}'): (1, "the reward is nan"),
    (200, '{"rewards": [null]}'): (1, "the reward is None"),
}


@pytest.mark.parametrize(("answer", "given_up"), GIVEN_UP.items())
def test_a_server_with_no_usable_answer_is_given_up_soon(answer, given_up, short_rests):
    status, text = answer
    times, said = given_up
    server = Server(lambda _: page(text, status))
    with pytest.raises(BadReward, match=said):
        ask([server])
    assert len(server.queries) == times


def test_only_addresses_need_a_client_which_takes_the_token_with_it(monkeypatch):
    def made(addresses: list[str] | None, agent: str | None = None):
        return client_of(upstream_args(reward__remote_url=addresses, train__agent_func_path=agent))

    assert made(None) is None
    assert made(["reward.py"]) is None
    assert made(["agent"], agent="agent.py") is None
    monkeypatch.setenv("OPENRLHF_JS_REWARD_TOKEN", "secret")
    sent = pickle.dumps(made(["http://a/r"]))
    monkeypatch.delenv("OPENRLHF_JS_REWARD_TOKEN")
    assert pickle.loads(sent)._headers["Authorization"] == "Bearer secret"


# --- answers ---------------------------------------------------------------------------------


def body(**content) -> bytes:
    return json.dumps(content).encode()


def test_anything_else_is_no_answer():
    cut = b'{"rewards": [1.0]'
    deep = b"[" * 100_000
    long = b"9" * 10_000
    rewards = [10**400], [], [1.0, 2.0], ["1.0"], [True], [[1.0]]
    answers = [b"", b"<html>", b"\xff\xfe\x00", cut, b"[1.0]", b"null", body(), deep, long]
    answers += [body(rewards=each) for each in rewards]
    answers += [body(rewards=[1.0], scores=each) for each in (["good"], False)]
    for came in answers:
        with pytest.raises(UnusableAnswer) as caught:
            pytest.fail(f"{came!r:.50} is {read_answer(came)}")
        assert len(str(caught.value)) < 300
        assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(rewards=JSON, scores=JSON, logs=JSON)
def test_only_finite_numbers_ever_come_out(rewards, scores, logs):
    try:
        answer = read_answer(body(rewards=rewards, scores=scores, extra_logs=logs))
    except (UnusableAnswer, BadReward):
        return
    assert all(map(math.isfinite, [answer.reward, answer.score, *answer.logs.values()]))
    (value,) = rewards if isinstance(rewards, list) else [rewards]
    assert answer.reward == float(value)
    assert not isinstance(value, bool)


# --- before a run ----------------------------------------------------------------------------


def test_a_server_must_be_there_unless_it_starts_beside_a_restart():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/get_reward"
    (problem,) = rewards_module.address_problems([address], may_start_later=False)
    assert "no server there" in problem
    assert list(rewards_module.address_problems([address], may_start_later=True)) == []
    (problem,) = rewards_module.address_problems(["ftp://x/r"], may_start_later=True)
    assert "neither" in problem
