"""How many requests for a reward does the server answer, beside OpenRLHF's own server?

Both serve the same tiny reward model, in bfloat16 and with the same number of threads, as processes
of their own. Clients in a third process send one query after the other, each on its own connection.
The servers take turns, each round in the other order. The tiny model costs next to nothing, so that
what is measured is the server: HTTP, queueing, batching, tokenizing.
"""

from __future__ import annotations

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

from markdown_table import print_table

UPSTREAM = """
import runpy, sys
from openrlhf_js.plugin.cpu import install_flash_attn
install_flash_attn()  # OpenRLHF imports it, and uses it on GPUs only
sys.argv[0] = "serve_rm"
runpy.run_module("openrlhf.cli.serve_rm", run_name="__main__")
"""
COMMANDS = {
    "OpenRLHF": ["-c", UPSTREAM, "--ds.attn_implementation", "sdpa"],
    "openrlhf_js": ["-m", "openrlhf_js.cli.rm", "serve", "--device", "cpu"],
}
CLIENTS, ROUNDS, SECONDS, WARM_UP_SECONDS = 64, 6, 8.0, 1.0
START_SECONDS = 120


@contextlib.contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Runs a server until the end of the block."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command}: no server\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def requests() -> list[bytes]:
    draws, found = random.Random(0), []
    for _ in range(256):
        digits = draws.choices("0123456789", k=draws.randint(2, 6))
        query = f"sort({''.join(digits)})={''.join(sorted(digits))}<eos>"
        body = json.dumps({"query": [query], "prompts": [""], "labels": [""]}).encode()
        head = "POST /get_reward HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        found.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def load(port: int) -> list[float]:
    """The seconds of each request of one round, after the warm-up."""
    given, times = requests(), []
    start = time.perf_counter() + WARM_UP_SECONDS

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < start + SECONDS:
            writer.write(random.choice(given))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            if began >= start:
                times.append(time.perf_counter() - began)
            assert head.startswith(b"HTTP/1.1 200") and len(answer["rewards"]) == 1, (head, answer)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return times


def measure(port: int) -> tuple[float, float, float]:
    """Requests per second, and the median and 99th percentile of their seconds."""
    times = asyncio.run(load(port))
    return len(times) / SECONDS, median(times), quantiles(times, n=100)[98]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main() -> None:
    from openrlhf_js.tiny.preferences import write_reward_model  # loads torch
    from openrlhf_js.tiny.tasks import sort

    rounds: dict[str, list[tuple[float, float, float]]] = {server: [] for server in COMMANDS}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        write_reward_model(folder / "model", task=sort)
        ports = {server: free_port() for server in COMMANDS}
        for server, words in COMMANDS.items():
            command = [sys.executable, *words, "--host", "127.0.0.1", "--data.max_len", "32"]
            command += ["--reward.model_name_or_path", str(folder / "model")]
            command += ["--port", str(ports[server])]
            stack.enter_context(serving(command, ports[server], folder / f"{server}.log"))
        clients = stack.enter_context(get_context("spawn").Pool(1))
        for number in range(-1, ROUNDS):  # the first requests are slow
            for server in list(COMMANDS)[:: 1 if number % 2 else -1]:
                done = clients.apply(measure, (ports[server],))
                rounds[server] += [done] * (number >= 0)
    rows = (
        (server, number, f"{rate:.0f}", f"{p50 * 1e3:.1f}", f"{p99 * 1e3:.1f}")
        for server, found in rounds.items()
        for number, (rate, p50, p99) in enumerate(found, 1)
    )
    print_table(["server", "round", "requests/s", "p50, ms", "p99, ms"], rows)
    for what, place in (("requests/s", 0), ("p99", 2)):
        pairs = zip(rounds["openrlhf_js"], rounds["OpenRLHF"], strict=True)
        ratios = [ours[place] / theirs[place] for ours, theirs in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} rounds"
        print(f"{what}, ours to theirs: median {median(ratios):.2f}, {spread}")


if __name__ == "__main__":
    main()
