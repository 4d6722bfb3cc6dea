"""Samples from an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from openrlhf_js import __version__
from openrlhf_js.evaluation.endpoint import LOOPBACK, Chat, Endpoint, RequestRefused
from openrlhf_js.evaluation.passk.definitions import Drawing
from openrlhf_js.evaluation.passk.grading import grade
from openrlhf_js.evaluation.passk.items import Item, Message
from openrlhf_js.evaluation.passk.local import Progress
from openrlhf_js.evaluation.passk.samples import Place, Sample, SampleFile
from openrlhf_js.evaluation.servers import Server
from openrlhf_js.evaluation.workers import side_by_side
from openrlhf_js.sampling.engines import key

IMAGE_TAG = "<image>"
PATIENCE_SECONDS = 30
MEND = "start it, or mend the address, which ends in /v1 as a rule"
SHOWN = 8  # names of models
SHOWN_TEXT = 60  # characters of an item
SEED_BITS = 31  # what every server takes


def endpoint_of(address: str, key_name: str | None, asks: bool = True) -> Endpoint:
    """The endpoint at an address: of the model after its `#`, or of the only one that it serves.

    Args:
        address: ends in /v1, as a rule, or in /v1#NAME.
        key_name: environment variable of the key, if the server wants one.
        asks: whether the server is needed even where the address names the model.

    Raises:
        ValueError: it is no address, or a name is needed, and the key's variable holds no key,
            there is no server, or it serves several models.
    """
    url, _, name = address.partition("#")
    found = Endpoint(url, name, key_name)
    if name and not asks:
        return found
    listing = _listing(found)  # a server that is down is told of now, and not after many attempts
    return found if name else replace(found, model=_only_model(found, listing))


def _listing(endpoint: Endpoint) -> httpx.Response:
    """What the server says of its models, whatever that is."""
    place = f"{endpoint.url}/models"
    headers = Server(endpoint).headers()
    own = {address: None for address in LOOPBACK}
    try:
        with httpx.Client(headers=headers, timeout=PATIENCE_SECONDS, mounts=own) as client:
            return client.get(place)
    except httpx.TransportError as error:
        kind = type(error).__name__
        raise ValueError(f"no server answers at {place} ({kind}): {MEND}") from None


def _only_model(endpoint: Endpoint, answer: httpx.Response) -> str:
    listing = f"{endpoint.url}/models"
    try:
        answer.raise_for_status()
        names = [str(each["id"]) for each in answer.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        hint = "give the key's variable with --key_env" if status in (401, 403) else MEND
        raise ValueError(f"{listing} answers with status {status}: {hint}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{listing} does not say which models there are: name one, as in {endpoint.url}#NAME"
        ) from None
    if len(names) != 1:
        shown = ", ".join(names[:SHOWN])
        raise ValueError(
            f"{endpoint.url} serves {len(names)} models ({shown}): name one, as in "
            f"{endpoint.url}#NAME"
        )
    return names[0]


def messages_of(item: Item) -> list[dict[str, Any]]:
    """The item as a chat; where its text says `<image>`, the figure's file stands in its place.

    Raises:
        ValueError: it has not one `<image>` for each of its images, or one of them is no file.
    """
    if not item.images:
        return list(item.messages)
    tags = sum(message["content"].count(IMAGE_TAG) for message in item.messages)
    if tags != len(item.images):
        raise ValueError(f"an item has {len(item.images)} images, and says <image> {tags} times")
    images = iter(item.images)
    return [{"role": each["role"], "content": _parts(each, images)} for each in item.messages]


def _parts(message: Message, images: Iterator[str]) -> str | list[dict[str, Any]]:
    first, *rest = message["content"].split(IMAGE_TAG)
    if not rest:
        return first
    parts: list[dict[str, Any]] = [{"type": "text", "text": first}] if first.strip() else []
    for text in rest:
        parts.append({"type": "image_url", "image_url": {"url": _data_url(Path(next(images)))}})
        if text.strip():
            parts.append({"type": "text", "text": text})
    return parts


def _data_url(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    try:
        encoded = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise ValueError(f"no image: {path} ({error.strerror or error})") from None
    return f"data:{kind};base64,{encoded}"


async def sample_remote(
    file: SampleFile,
    items: Sequence[Item],
    drawing: Drawing,
    chat: Chat,
    concurrency: int,
    seed: int,
    progress: Progress,
    tokens_name: str = "max_tokens",
) -> dict[int, str]:
    """Samples, grades and writes what is missing, as many at a time as allowed.

    An item that is refused is asked no further, and does not hold up the others.

    Args:
        file: gets them, each as it comes.
        items: of the benchmark.
        drawing: how responses are drawn.
        chat: answers.
        concurrency: requests at the same time.
        seed: of the samples; whether it is heeded is the server's matter.
        progress: is told after each sample.
        tokens_name: what the endpoint calls the number of tokens of a response at most.

    Returns:
        The numbers of the items that the endpoint refuses, and what it says.

    Raises:
        EndpointRefused: it refuses whatever it is asked. EndpointUnavailable: there is no answer.
            What came before is kept.
        ValueError: an item's images are not there.
    """
    k = drawing.samples
    places = (place for batch in file.batches(len(items), k, k) for place in batch)
    refused: dict[int, str] = {}
    done, last = 0, time.perf_counter()

    async def work() -> None:
        nonlocal done, last
        for item, draw in places:
            if item in refused:
                continue
            try:
                sample = await _ask(chat, items[item], (item, draw), drawing, seed, tokens_name)
            except RequestRefused as error:
                refused[item] = f"item {item + 1} ({items[item].text[:SHOWN_TEXT]!r}): {error}"
                continue
            now = time.perf_counter()  # the parts add up to the whole, however many at a time
            file.append([sample._replace(seconds=now - last)])
            done, last = done + 1, now
            progress(done)

    await side_by_side(work, concurrency)
    return dict(sorted(refused.items()))


async def _ask(
    chat: Chat, item: Item, place: Place, drawing: Drawing, seed: int, tokens_name: str
) -> Sample:
    own = key(seed, *place) >> (63 - SEED_BITS)
    parameters = {
        "temperature": drawing.temperature,
        "top_p": drawing.top_p,
        tokens_name: drawing.max_new_tokens,
        "seed": own,
    }
    reply = await chat.ask(messages_of(item), parameters)
    graded = await asyncio.to_thread(grade, item, reply.text)
    return Sample(
        *place,
        own,
        reply.text,
        reply.completion_tokens,
        reply.finish_reason,
        *graded,
        0.0,
        reply.thinking,
        __version__,
    )
