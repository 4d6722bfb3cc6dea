"""The client asks until it has a reward or knows that there is none, over a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from openrlhf_js.plugin import reward_servers
from openrlhf_js.plugin.errors import BadReward
from openrlhf_js.plugin.remote_rewards import RemoteRewards, client_of
from openrlhf_js.plugin.reward_urls import RewardSource

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
    monkeypatch.setattr(reward_servers, "FIRST_REST_SECONDS", 0.1)
    monkeypatch.setattr(reward_servers, "LOOK_SECONDS", 0.1)


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

    with caplog.at_level(logging.WARNING, reward_servers.__name__):
        asyncio.run(run())
    (said,) = caplog.messages
    assert "does not answer (ClientConnectorError" in said and "1 of 2 go on" in said


def test_a_server_that_dies_and_comes_back_gives_every_reward_once(caplog):
    async def slowly(content):
        await asyncio.sleep(0.02)
        return length(content)

    async def run():
        server = await Server(slowly).start()
        asking = asyncio.create_task(grades(client(server), QUERIES * 5))
        for _ in range(3):
            await asyncio.sleep(0.05)
            await server.stop()
            await asyncio.sleep(0.3)
            await server.start()
        try:
            return await asking
        finally:
            await server.stop()

    with caplog.at_level(logging.WARNING, reward_servers.__name__):
        assert asyncio.run(run()) == EXPECTED * 5


def test_a_waiting_query_notices_soon_that_its_server_is_back(monkeypatch):
    monkeypatch.setattr(reward_servers, "FIRST_REST_SECONDS", 3.0)
    monkeypatch.setattr(reward_servers, "LONGEST_REST_SECONDS", 3.0)

    async def run():
        server = Server(length)
        asking = asyncio.create_task(grades(client(server), QUERIES))
        await asyncio.sleep(0.5)
        await server.start()
        began = time.monotonic()
        assert await asking == EXPECTED
        await server.stop()
        return time.monotonic() - began

    # one rest for the query that finds it back; the others need not rest after it
    assert asyncio.run(run()) < 3.0 + 2.5


def flaky(*first: web.Response):
    """Answers with these once each, then properly."""
    left = list(first)
    return lambda content: left.pop(0) if left else length(content)


def page(text: str, status: int = 200, **headers: str) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


TEMPORARY = {
    "an error page": page("<html>starting</html>"),
    "wrong length": web.json_response({"rewards": [1.0, 2.0]}),
    "no reward": web.json_response({"detail": "loading"}),
    "text": reward("0.9"),
    "truth": reward(True),
    "bad gateway": page("<h1>502</h1>", 502),
    "broken once": page("Internal Server Error", 500),
    "moved": page("", 302, Location="http://127.0.0.1:9/"),
    "too long": page("x" * (1 << 20)),
    "busy": page("", 503, **{"Retry-After": "0"}),
    "too many": page("", 429, **{"Retry-After": "nonsense"}),
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

    assert asyncio.run(run()) >= 1 > reward_servers.FIRST_REST_SECONDS


def test_a_full_server_is_left_alone_although_it_still_answers_what_it_took_in():
    asked: list[float] = []

    async def full_after_one(content):
        asked.append(time.monotonic())
        number = len(asked)
        if number == 1:
            await asyncio.sleep(0.5)
        return page("full", 503, **{"Retry-After": "1"}) if number == 2 else length(content)

    async def run():
        async with Server(full_after_one) as server:
            return await grades(client(server), QUERIES[:2])

    assert asyncio.run(run()) == EXPECTED[:2]
    assert len(asked) == 3 and asked[2] - asked[1] >= 1


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        (None, 0, 0),
        ("5", 5, 5),
        ("999999999999", 30, 30),
        ("-5", 0, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 30, 30),
        ("²", 0, 0),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_never_long(header, least, most):
    assert least <= reward_servers._retry_after(header) <= most


PERMANENT = {
    "no such path": page("not found", 404),
    "no token": page("who are you?", 401),
    "poison": page("Internal Server Error", 500),
    "nonsense": page("<html>welcome</html>"),
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
            with pytest.raises(BadReward, match=r"the reward is .* says http"):
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


def test_without_one_of_several_models_there_is_no_reward():
    async def run():
        async with Server(length) as one, Server(lambda _: reward(None)) as two:
            sources = [RewardSource("a", 1.0, (one.url,)), RewardSource("b", 1e-9, (two.url,))]
            rewards = RemoteRewards(sources, PATIENT)
            with pytest.raises(BadReward, match="null"):
                await rewards.grade("four", "f", "l")
            await rewards.close()

    asyncio.run(run())


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
    monkeypatch.setattr(reward_servers, "AT_ONCE", 5)
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
