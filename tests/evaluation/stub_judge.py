"""An OpenAI-compatible server in a thread of this process."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "eval"))
from scripted_server import Answer, Request, Served, reply, running

VERDICTS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")


def by_seed(request: Request, number: int = 0) -> Answer:
    """1, 2 or 3, by the seed."""
    return reply(rf"It is \boxed{{{request['seed'] % 3 + 1}}}.")


def verdict_of(request: Request) -> str:
    """What a judge says to these messages: always the same."""
    return VERDICTS[hashlib.sha256(json.dumps(request["messages"]).encode()).digest()[0] % 5]


def by_hash(request: Request, number: int = 0) -> Answer:
    return reply(f"[[{verdict_of(request)}]]", tokens=10, asked=100)


def user(request: Request) -> str:
    return request["messages"][-1]["content"]


@contextmanager
def serving(
    answer: Callable[[Request, int], Any] = by_seed, models: tuple[str, ...] = ("small",)
) -> Iterator[Served]:
    """Serves while the block lasts; `answer` gets a request and its number from 1."""
    stub = Served(answer, models)
    with running(stub):
        yield stub
