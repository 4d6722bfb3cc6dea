import asyncio
import base64
import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from openrlhf_js.evaluation.endpoint import Chat, EndpointRefused, EndpointUnavailable, Limits
from openrlhf_js.evaluation.passk.definitions import Drawing
from openrlhf_js.evaluation.passk.items import item_of
from openrlhf_js.evaluation.passk.remote import endpoint_of, messages_of, sample_remote
from openrlhf_js.evaluation.passk.samples import SampleFile

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import items, lines
from passk_server import by_seed, say, serving

DRAWING = Drawing(samples=4, temperature=0.7, top_p=0.9, max_new_tokens=50)
ITEMS = items(5)


def sampled(folder, url, concurrency=8, attempts=2, drawing=DRAWING, refused=None):
    """The file's path, after sampling what is missing; `refused` gets what the server refuses."""

    async def work(file):
        limits = Limits(concurrency=concurrency, attempts=attempts, timeout_seconds=10)
        async with Chat([endpoint_of(url, None)], limits) as chat:
            told = []
            gone = await sample_remote(file, ITEMS, drawing, chat, concurrency, 3, told.append)
            if refused is None:
                assert gone == {}
            else:
                refused.update(gone)
            return told

    with SampleFile(folder, "toy", {}, ITEMS) as file:
        told = asyncio.run(work(file))
        assert told == list(range(1, len(told) + 1))
        return file.path


def in_order(path):
    return sorted(lines(path), key=lambda row: (row["item"], row["draw"]))


def test_every_sample_is_asked_for_once_and_kept(tmp_path):
    with serving() as served:
        path = sampled(tmp_path, served.url)
    found = in_order(path)
    assert [(row["item"], row["draw"]) for row in found] == [
        (i, j) for i in range(5) for j in range(4)
    ]
    assert len(served.requests) == len({row["seed"] for row in found}) == 20
    asked = served.requests[0]
    assert (asked["model"], asked["temperature"], asked["top_p"], asked["max_tokens"]) == (
        "small",
        0.7,
        0.9,
        50,
    )
    asked = Counter(request["messages"][0]["content"] for request in served.requests)
    assert asked == {f"{letter}a": 4 for letter in "abcde"}
    for row in found:
        assert 0 <= row["seed"] < 2**31
        answer = str(row["seed"] % 3 + 1)
        assert row["answer"] == answer
        right = answer == ITEMS[row["item"]].label
        assert row["status"] == ("correct" if right else "wrong")
        assert (row["tokens"], row["finish_reason"]) == (3, "stop")
    assert len({row["status"] for row in found}) == 2


def test_the_number_of_requests_at_once_does_not_matter(tmp_path):
    with serving() as served:
        first, second = (sampled(tmp_path / str(n), served.url, n) for n in (1, 16))
    assert in_order(first) == in_order(second)


def test_the_times_add_up_to_the_whole(tmp_path):
    def slow(request, number):
        time.sleep(0.05)
        return by_seed(request, number)

    with serving(slow) as served:
        began = time.perf_counter()
        path = sampled(tmp_path, served.url)
        whole = time.perf_counter() - began
    with path.open("rb") as file:
        seconds = sum(json.loads(line)["seconds"] for line in list(file)[1:])
    assert 3 * 0.05 <= seconds <= whole  # 20 requests, 8 at once


def test_it_goes_on_after_a_failure(tmp_path):
    def failing(request, number):
        return (400, {"error": {"message": "too long"}}) if number > 7 else by_seed(request, number)

    with serving(failing) as served, pytest.raises(EndpointRefused, match="too long"):
        sampled(tmp_path, served.url, concurrency=1)
    with serving() as served:
        path = sampled(tmp_path, served.url)
        assert len(served.requests) == 20 - 7
    assert Counter((row["item"], row["draw"]) for row in lines(path)).most_common(1)[0][1] == 1
    with serving() as served:
        assert len(lines(sampled(tmp_path, served.url))) == 20
        assert served.requests == []


def test_refused_items_do_not_hold_up_the_others(tmp_path):
    def picky(request, number):
        if request["messages"][0]["content"] in ("ba", "da"):
            return 400, {"error": {"message": "maximum context length is 900", "code": "x"}}
        return by_seed(request, number)

    refused = {}
    with serving(picky) as served:
        path = sampled(tmp_path, served.url, concurrency=1, refused=refused)
        assert len(served.requests) == 3 * 4 + 2  # no more is asked of what is refused once
    assert [*refused] == [1, 3]
    assert refused[3].startswith("item 4 ('da'): ") and "length is 900" in refused[3]
    assert Counter(row["item"] for row in lines(path)) == {0: 4, 2: 4, 4: 4}
    refused.clear()
    with serving() as served:  # another time it may be answered
        path = sampled(tmp_path, served.url, refused=refused)
        assert len(served.requests) == 8
    assert refused == {}
    assert len(lines(path)) == 20


def test_a_server_that_is_down(tmp_path):
    with serving() as served:
        url = f"{served.url}#small"
    with pytest.raises(ValueError, match="no server answers at"):
        endpoint_of(url, None)


def test_a_server_that_never_has_an_answer(tmp_path):
    with (
        serving(lambda *_: (500, {})) as served,
        pytest.raises(EndpointUnavailable, match="no reply after 1 attempts"),
    ):
        sampled(tmp_path, served.url, attempts=1)


def test_thinking_and_what_was_cut_off(tmp_path):
    def thinks(request, number):
        status, body = say("so ", "length", tokens=None)
        body["choices"][0]["message"]["reasoning_content"] = r"hm \boxed{1}"
        return status, body

    with serving(thinks) as served:
        path = sampled(tmp_path, served.url, drawing=Drawing(samples=1))
    assert {
        (row["text"], row["thinking"], row["tokens"], row["finish_reason"], row["status"])
        for row in lines(path)
    } == {("so ", r"hm \boxed{1}", None, "length", "no_answer")}


def pictured(images, text="<image> How wide? <image>"):
    messages = [{"role": "system", "content": "Look."}, {"role": "user", "content": text}]
    row = {"input": messages, "label": "3", "datasource": "geometry3k", "images": images}
    return item_of(row)


def test_figures_stand_where_the_text_says(tmp_path):
    paths = [tmp_path / "a.png", tmp_path / "b.jpg"]
    for path in paths:
        path.write_bytes(path.name.encode())
    system, user = messages_of(pictured(list(map(str, paths))))
    assert system == {"role": "system", "content": "Look."}
    first, text, second = user["content"]
    assert text == {"type": "text", "text": " How wide? "}
    encoded = base64.b64encode(b"a.png").decode()
    assert first == {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{encoded}"},
    }
    assert second["image_url"]["url"].startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (["/no/a.png"], "has 1 images, and says <image> 2 times"),
        (["/no/a.png", "/no/b.png"], r"no image: /no/a\.png \(No such file"),
    ],
)
def test_figures_that_are_not_there(images, message):
    with pytest.raises(ValueError, match=message):
        messages_of(pictured(images))


def test_an_own_server_is_asked_without_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving() as served:
        assert endpoint_of(served.url, None).model == "small"


@pytest.mark.parametrize("key", ["", "two words", "schl\u00fcssel"])
def test_a_variable_without_a_key(monkeypatch, key):
    monkeypatch.setenv("SOME_KEY", key)
    with serving() as served, pytest.raises(ValueError, match="environment variable SOME_KEY"):
        endpoint_of(served.url, "SOME_KEY")


def test_an_address_with_a_name_needs_no_server():
    address = "http://127.0.0.1:9/v1#mine"
    assert endpoint_of(address, None, asks=False).model == "mine"
    with pytest.raises(ValueError, match="no server answers"):
        endpoint_of(address, None)


def test_the_model_of_an_address(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret-of-mine")
    with serving() as served:
        assert endpoint_of(served.url, "SOME_KEY").model == "small"
        assert endpoint_of(f"{served.url}/#other/name", None).model == "other/name"
        with pytest.raises(ValueError, match="holds a user, a query or a fragment"):
            endpoint_of("http://me:secret@here/v1", None)
    with pytest.raises(ValueError, match=r"no server answers at http://127.*: start it, or mend"):
        endpoint_of(served.url, None)
    with serving(models=("one", "two")) as served, pytest.raises(ValueError, match="name one, as"):
        endpoint_of(served.url, None)
    with serving() as served, pytest.raises(ValueError, match="does not say which models there"):
        served.url += "/x"
        monkeypatch.setattr("httpx.Response.json", lambda self: [])
        endpoint_of(served.url, None)
