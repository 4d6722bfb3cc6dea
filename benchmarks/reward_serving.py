"""How many requests for a reward does the server answer, beside OpenRLHF's own server?

Both serve the same tiny reward model, in bfloat16 and with the same number of threads, as processes
of their own. As many clients as asked for, in a third process, send one query after the other, each
on its own connection: the next when the answer is there. The servers take turns, each round in the
other order. With `--new_connections`, every request comes on a new connection, as OpenRLHF's client
sends it.

The tiny model costs next to nothing, so that what is measured is the server: HTTP, queueing,
batching, tokenizing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UPSTREAM = """
import runpy, sys
from openrlhf_js.plugin import cpu
cpu.install_flash_attn()  # OpenRLHF imports it, and uses it on GPUs only
sys.argv[0] = "serve_rm"
runpy.run_module("openrlhf.cli.serve_rm", run_name="__main__")
"""
MAX_LEN = "32"
START_SECONDS = 120
WARM_UP_SECONDS = 1.0


class Round(NamedTuple):
    """What one server did in one round."""

    requests_per_second: float
    p50: float  # seconds
    p99: float


def queries(count: int) -> list[str]:
    """Prompts and responses of the tiny task."""
    draws = random.Random(0)
    made = []
    for _ in range(count):
        digits = [draws.choice("0123456789") for _ in range(draws.randint(2, 6))]
        made.append(f"sort({''.join(digits)})={''.join(sorted(digits))}<eos>")
    return made


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
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


async def _client(
    port: int, requests: list[bytes], start: float, stop: float, new: bool, times: list[float]
) -> None:
    """Sends one request after the other until `stop`; adds the seconds of those from `start` on."""
    connection = None
    while time.perf_counter() < stop:
        request = random.choice(requests)
        began = time.perf_counter()
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not an answer: {head!r}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if began >= start:
            times.append(time.perf_counter() - began)
        if len(json.loads(answer)["rewards"]) != 1:
            raise SystemExit(f"not one reward: {answer!r}")
        if new:
            writer.close()
            connection = None


async def _load(port: int, clients: int, seconds: float, new_connections: bool) -> list[float]:
    requests = []
    for query in queries(256):
        body = json.dumps({"query": [query], "prompts": [""], "labels": [""]}).encode()
        head = (
            "POST /get_reward HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    times: list[float] = []
    start = time.perf_counter() + WARM_UP_SECONDS  # the first connections and requests are slow
    run = (port, requests, start, start + seconds, new_connections, times)
    await asyncio.gather(*(_client(*run) for _ in range(clients)))
    return times


def measure(port: int, clients: int, seconds: float, new_connections: bool) -> Round:
    """One round, in a process of its own."""
    command = [sys.executable, __file__, "--load", str(port), "--clients", str(clients)]
    command += ["--seconds", str(seconds), *(["--new_connections"] if new_connections else [])]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stdout + run.stderr)
    return Round(*json.loads(run.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--clients", type=int, default=64, help="default: %(default)s")
    add("--rounds", type=int, default=6, help="of each server (default: %(default)s)")
    add("--seconds", type=float, default=8.0, help="of a round (default: %(default)s)")
    add("--new_connections", action="store_true", help="one for every request")
    add("--max_wait_ms", default="3", help="of our server (default: %(default)s)")
    add("--load", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        times = asyncio.run(
            _load(options.load, options.clients, options.seconds, options.new_connections)
        )
        times.sort()
        print(
            json.dumps(
                [
                    len(times) / options.seconds,
                    times[len(times) // 2],
                    times[int(len(times) * 0.99)],
                ]
            )
        )
        return
    from openrlhf_js.tiny.preferences import write_reward_model
    from openrlhf_js.tiny.tasks import sort

    rounds: dict[str, list[Round]] = {"OpenRLHF": [], "openrlhf_js": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reward_model(folder / "model", task=sort)
        model = ["--reward.model_name_or_path", str(folder / "model"), "--data.max_len", MAX_LEN]
        with (
            socket.create_server(("127.0.0.1", 0)) as first,
            contextlib.closing(socket.create_server(("127.0.0.1", 0))) as second,
        ):
            ports = {
                "OpenRLHF": first.getsockname()[1],
                "openrlhf_js": second.getsockname()[1],
            }
        theirs = [sys.executable, "-c", UPSTREAM, *model, "--ds.attn_implementation", "sdpa"]
        theirs += ["--host", "127.0.0.1", "--port", str(ports["OpenRLHF"])]
        ours = [sys.executable, "-m", "openrlhf_js.cli.rm", "serve", *model, "--device", "cpu"]
        ours += ["--port", str(ports["openrlhf_js"]), "--max_wait_ms", options.max_wait_ms]
        with (
            serving(theirs, ports["OpenRLHF"], folder / "theirs.log"),
            serving(ours, ports["openrlhf_js"], folder / "ours.log"),
        ):
            for server in rounds:  # the first requests are slow
                measure(ports[server], options.clients, 1, options.new_connections)
            for number in range(options.rounds):
                order = list(rounds) if number % 2 == 0 else list(rounds)[::-1]
                for server in order:
                    done = measure(
                        ports[server], options.clients, options.seconds, options.new_connections
                    )
                    rounds[server].append(done)
    print("| round | server | requests/s | p50, ms | p99, ms |\n|---|---|---:|---:|---:|")
    for number in range(options.rounds):
        for server, done in rounds.items():
            rate, p50, p99 = done[number]
            print(f"| {number + 1} | {server} | {rate:.0f} | {p50 * 1e3:.1f} | {p99 * 1e3:.1f} |")
    pairs = list(zip(rounds["openrlhf_js"], rounds["OpenRLHF"], strict=True))
    rates = [ours.requests_per_second / theirs.requests_per_second for ours, theirs in pairs]
    tails = [ours.p99 / theirs.p99 for ours, theirs in pairs]
    for what, ratios in (("requests/s", rates), ("p99", tails)):
        print(
            f"{what}, ours to theirs: median {statistics.median(ratios):.2f}, "
            f"{min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} rounds"
        )


if __name__ == "__main__":
    main()
