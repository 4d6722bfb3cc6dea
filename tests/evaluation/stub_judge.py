"""An OpenAI-compatible server in a thread of this process, or a faulty judge in its own.

`python stub_judge.py SECONDS ERRORS SEED` serves on a free port, which it prints, until it is told
to end: of all requests the share ERRORS fails in one of several ways. `GET /counts` says what was
paid for.
"""

import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


def faulty(served: Served, seconds: float, errors: float, seed: float) -> Any:
    """Answers that fail as often as asked for; what is paid for is counted by its messages."""
    chance = random.Random(int(seed))
    lock = threading.Lock()
    paid: Counter[str] = Counter()
    served.counts = {"paid": paid, "errors": 0, "requests": 0, "first": 0.0}
    html = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    failures = (
        (429, b'{"error": {"message": "slow down"}}', {"Retry-After": "0.1"}),
        (500, b'{"error": {"message": "oops"}}'),
        (200, b'{"choices": ['),
        (200, html, {"Content-Type": "text/html"}),
        (502, html, {"Content-Type": "text/html"}),
    )

    def answer(request: Request, number: int) -> Any:
        with lock:
            served.counts["requests"] += 1
            served.counts["first"] = served.counts["first"] or time.time()
            served.counts["most_at_once"] = served.most_at_once
            fails = chance.random() < errors
            served.counts["errors"] += fails
            key = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()
            if not fails:
                paid[key] += 1
        time.sleep(seconds / 4 if fails else seconds)
        if fails:
            return chance.choice(failures)
        said = f"Both are answers.\u2028My verdict is [[{verdict_of(request)}]]"
        return reply(said, tokens=10, asked=100)

    return answer


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), serving() as stub:
        stub.answer = faulty(stub, *map(float, sys.argv[1:]))
        print(stub.url.split(":")[2].removesuffix("/v1"), flush=True)
        threading.Event().wait()
