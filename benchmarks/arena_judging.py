"""How near does judging come to the ideal time, and what do kills and faults cost?

A stub judge, a real HTTP server in a process of its own, answers every game after 200 ms. The
program is `openrlhf-js eval arena judge` as its users start it, with 1,500 games at concurrency 64:
no program can be faster than 1,500 / 64 * 0.2 s.

Then the same with faults: a share of the requests fails (429, 500, 502, cut connections, HTML with
status 200), a share of the replies has no verdict, and the program is killed (SIGKILL) and started
again several times. The stub counts what it was paid for. A game should be paid for once; what was
under way at a kill may be paid for again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

HELPERS = Path(__file__).parents[1] / "tests" / "evaluation"
sys.path.insert(0, str(HELPERS))
from judged_bench import BASELINE, read_lines, write_bench  # noqa: E402

CONCURRENCY, SECONDS, ANSWER_CHARACTERS = 64, 0.2, 4000
ERRORS, GARBAGE, KILLS = 0.1, 0.05, 3  # shares of requests and of replies, number
CLIENT = httpx.Client(trust_env=False)


@contextlib.contextmanager
def stub(*arguments: float) -> Iterator[str]:
    """A stub judge until the end of the block; its address."""
    command = [sys.executable, str(HELPERS / "stub_judge.py"), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def counts(url: str) -> dict[str, Any]:
    return CLIENT.get(f"{url}/counts").json()


def start(folder: Path, url: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "openrlhf_js.cli.main", "eval", "arena", "judge"]
    command += ["--data", str(folder.parent), "--bench", folder.name, "--baseline", BASELINE]
    command += ["--models", "m", "--judge", "stub", "--url", f"{url}/v1", "--tries", "4"]
    command += ["--concurrency", str(CONCURRENCY)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def timed(questions: int, folder: Path) -> None:
    """One undisturbed run, and its memory."""
    games = 2 * questions
    ideal, memory = games / CONCURRENCY * SECONDS, 0.0
    with stub(SECONDS, 0, 0, 0) as url:
        began = time.time()
        process = start(folder, url)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory = max(memory, psutil.Process(process.pid).memory_info().rss / 2**20)
            time.sleep(0.2)
        ended, found = time.time(), counts(url)
    assert process.returncode == 0
    judging, whole = ended - found["first"], ended - began
    print(f"{games} games, {CONCURRENCY} at once (most seen: {found['most_at_once']})")
    print(f"ideal {ideal:.2f} s; from the first request on {judging:.2f} s, {judging / ideal:.2f}")
    print(f"times that; with start and reading {whole:.2f} s, {whole / ideal:.2f} times")
    print(f"most memory {memory:.0f} MiB\n")


def disturbed(questions: int, folder: Path) -> None:
    """Runs with faults and kills, until all is judged."""
    games = 2 * questions
    kills = [games * (i + 1) // (KILLS + 1) for i in range(KILLS)]
    print(f"{ERRORS:.0%} errors, {GARBAGE:.0%} without verdict, {KILLS} kills")
    with stub(SECONDS, ERRORS, GARBAGE, 0) as url:
        began, calls, status = time.monotonic(), 0, 1
        while status:
            calls += 1
            process = start(folder, url)
            while process.poll() is None:
                if kills and sum(counts(url)["paid"].values()) >= kills[0]:
                    kills.pop(0)
                    process.kill()
                    process.wait()
                time.sleep(0.02)
            status = process.returncode
        seconds, found = time.monotonic() - began, counts(url)
    paid = Counter(found["paid"])
    rows = read_lines(folder / "model_judgment" / "stub" / "m.jsonl")
    assert sorted(row["uid"] for row in rows) == sorted(f"q{n}" for n in range(questions))
    assert all(game["score"] for row in rows for game in row["games"])
    assert len(paid) == games and paid.total() - games <= KILLS * CONCURRENCY
    print(
        f"{calls} calls, {seconds:.1f} s; {found['requests']} requests, {found['errors']} errors,"
    )
    print(f"{sum(found['garbage'].values())} replies without a verdict; every game judged once;")
    print(f"paid for again {paid.total() - games}, at most {KILLS * CONCURRENCY} were under way")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=750)
    questions = parser.parse_args().questions
    for part in (timed, disturbed):
        with tempfile.TemporaryDirectory() as place:
            part(questions, write_bench(Path(place), questions, characters=ANSWER_CHARACTERS))


if __name__ == "__main__":
    main()
