"""Claim: our reward server answers about three times as many requests as OpenRLHF's own.

    python research/benchmarks/reward_serving.py                # three minutes

Both serve the same tiny reward model, in bfloat16 and with the same number of threads, in separate
processes. Clients in a third process each send one query after another on their own connection. The
servers take turns, in reversed order every other round. The tiny model costs next to nothing, so
this measures the server: HTTP, queueing, batching, tokenizing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from baseline_research.markdown_table import print_table

UPSTREAM = """
import runpy, sys
from openrlhf_js.trainers.openrlhf import flash_attn
flash_attn.install()  # OpenRLHF imports it, and uses it on GPUs only
sys.argv[0] = "serve_rm"
runpy.run_module("openrlhf.cli.serve_rm", run_name="__main__")
"""
COMMANDS = {
    "OpenRLHF": ["-c", UPSTREAM, "--ds.attn_implementation", "sdpa"],
    "openrlhf_js": ["-m", "openrlhf_js.cli.rm", "serve", "--device", "cpu"],
}
CLIENTS = 64
ROUNDS = 6
SECONDS = 8.0  # per round
WARM_UP_SECONDS = 1.0
START_SECONDS = 120
QUERIES = 256


class Round(NamedTuple):
    """What one server answered in one round."""

    requests_per_second: float
    median_seconds: float
    p99_seconds: float


@contextlib.contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Runs a server until the end of the block."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command}: no server\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def http_requests() -> list[bytes]:
    """Requests for the reward of one text each."""
    generator = random.Random(0)
    requests = []
    for _ in range(QUERIES):
        digits = generator.choices("0123456789", k=generator.randint(2, 6))
        query = f"sort({''.join(digits)})={''.join(sorted(digits))}<eos>"
        body = json.dumps({"query": [query], "prompts": [""], "labels": [""]}).encode()
        head = (
            "POST /get_reward HTTP/1.1\r\n"
            "host: x\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


async def request_seconds(port: int) -> list[float]:
    """The seconds of each request of one round, after the warm-up."""
    requests = http_requests()
    seconds = []
    start = time.perf_counter() + WARM_UP_SECONDS

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.perf_counter()
        while began < start + SECONDS:
            writer.write(random.choice(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            if began >= start:
                seconds.append(time.perf_counter() - began)
            assert head.startswith(b"HTTP/1.1 200"), (head, answer)
            assert len(answer["rewards"]) == 1, (head, answer)
            began = time.perf_counter()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return seconds


def measure(port: int) -> Round:
    """One round of all clients."""
    seconds = asyncio.run(request_seconds(port))
    return Round(
        requests_per_second=len(seconds) / SECONDS,
        median_seconds=median(seconds),
        p99_seconds=quantiles(seconds, n=100)[98],
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def all_rounds() -> dict[str, list[Round]]:
    """The rounds of both servers."""
    from baseline_research.tiny.preferences import write_reward_model  # loads torch
    from baseline_research.tiny.tasks import sort

    rounds: dict[str, list[Round]] = {server: [] for server in COMMANDS}
    ports = {server: free_port() for server in COMMANDS}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        write_reward_model(folder / "model", tokens=sort.tokens)
        for server, program in COMMANDS.items():
            flags = {
                "host": "127.0.0.1",
                "port": ports[server],
                "data.max_len": 32,
                "reward.model_name_or_path": folder / "model",
            }
            command = [sys.executable, *program]
            for flag, value in flags.items():
                command += [f"--{flag}", str(value)]
            stack.enter_context(serving(command, ports[server], folder / f"{server}.log"))
        clients = stack.enter_context(get_context("spawn").Pool(1))
        for server in COMMANDS:  # the first requests are slow
            clients.apply(measure, (ports[server],))
        for number in range(ROUNDS):
            in_turn = list(COMMANDS) if number % 2 else list(reversed(COMMANDS))
            for server in in_turn:
                rounds[server].append(clients.apply(measure, (ports[server],)))
    return rounds


def compared(title: str, ours: list[float], theirs: list[float]) -> str:
    """The ratio of ours to theirs over the rounds."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} rounds"
    return f"{title}, ours to theirs: median {median(ratios):.2f}, {spread}"


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rounds = all_rounds()
    rows = []
    for server, of_server in rounds.items():
        for number, measured in enumerate(of_server, start=1):
            rows.append(
                (
                    server,
                    number,
                    f"{measured.requests_per_second:.0f}",
                    f"{measured.median_seconds * 1e3:.1f}",
                    f"{measured.p99_seconds * 1e3:.1f}",
                )
            )
    print_table(columns=["server", "round", "requests/s", "p50, ms", "p99, ms"], rows=rows)
    ours = rounds["openrlhf_js"]
    theirs = rounds["OpenRLHF"]
    print(
        compared(
            "requests/s",
            ours=[measured.requests_per_second for measured in ours],
            theirs=[measured.requests_per_second for measured in theirs],
        )
    )
    print(
        compared(
            "p99",
            ours=[measured.p99_seconds for measured in ours],
            theirs=[measured.p99_seconds for measured in theirs],
        )
    )


if __name__ == "__main__":
    main()
