"""Claim: judging takes little more than the ideal time; kills and faults cost next to nothing.

    python research/benchmarks/arena_judging.py                     # 1,500 games
    python research/benchmarks/arena_judging.py --questions 400     # 800 games: half a minute

A stub judge, a real HTTP server in its own process, answers every game after 200 ms. The program is
`openrlhf-js eval arena judge` as users start it, with 64 games at a time. It is compared to the
ideal: no program can be faster than games / 64 * 0.2 s.

Then the same with faults: a share of the requests fails (429, 500, 502, cut connections, HTML with
status 200), and the program is killed (SIGKILL) and restarted several times. The stub counts the
paid requests. A game should be paid for once; one in progress at a kill may be paid for again.
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

HELPERS = Path(__file__).parents[2] / "eval" / "tests"
sys.path.insert(0, str(HELPERS))
from judged_bench import BASELINE, read_lines, write_bench  # noqa: E402

CONCURRENCY = 64
ANSWER_SECONDS = 0.2
ANSWER_CHARACTERS = 4000
SHARE_OF_ERRORS = 0.1  # of the requests
KILLS = 3
CLIENT = httpx.Client(trust_env=False)


@contextlib.contextmanager
def stub_judge(errors: float = 0) -> Iterator[str]:
    """Runs a stub judge with this share of faults during the block; yields its address."""
    arguments = [ANSWER_SECONDS, errors, 0]
    command = [sys.executable, str(HELPERS / "stub_judge.py"), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def counts_of(url: str) -> dict[str, Any]:
    """What the stub judge has counted so far."""
    return CLIENT.get(f"{url}/counts").json()


def start_judging(bench: Path, url: str) -> subprocess.Popen:
    """Starts the program on a bench, with the judge at `url`."""
    settings = bench / "judge.yaml"
    settings.write_text(f"judge_model: stub\nconcurrency: {CONCURRENCY}\n")
    flags = {
        "data": bench.parent,
        "bench": bench.name,
        "baseline": BASELINE,
        "models": "m",
        "settings": settings,
        "url": f"{url}/v1",
    }
    command = [sys.executable, "-m", "openrlhf_js.cli.main", "eval", "arena", "judge"]
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_undisturbed(questions: int, bench: Path) -> None:
    """One run without faults: its time against the ideal, and its memory."""
    games = 2 * questions
    ideal_seconds = games / CONCURRENCY * ANSWER_SECONDS
    most_memory_mib = 0.0
    with stub_judge() as url:
        began = time.time()
        process = start_judging(bench, url)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory_bytes = psutil.Process(process.pid).memory_info().rss
                most_memory_mib = max(most_memory_mib, memory_bytes / 2**20)
            time.sleep(0.2)
        ended = time.time()
        counts = counts_of(url)
    assert process.returncode == 0

    judging_seconds = ended - counts["first"]
    whole_seconds = ended - began
    judging_ratio = judging_seconds / ideal_seconds
    whole_ratio = whole_seconds / ideal_seconds
    print(f"{games} games, {CONCURRENCY} at once (most seen: {counts['most_at_once']})")
    print(f"ideal {ideal_seconds:.2f} s; from the first request on {judging_seconds:.2f} s,")
    print(f"{judging_ratio:.2f} times that;")
    print(f"with start and reading {whole_seconds:.2f} s, {whole_ratio:.2f} times")
    print(f"most memory {most_memory_mib:.0f} MiB\n")


def run_until_killed(bench: Path, url: str, games_at_kills: list[int]) -> int:
    """Starts the program once and returns its exit status.

    It is killed once the first number of `games_at_kills` has been paid for.
    """
    process = start_judging(bench, url)
    while process.poll() is None:
        paid_games = sum(counts_of(url)["paid"].values())
        if games_at_kills and paid_games >= games_at_kills[0]:
            games_at_kills.pop(0)
            process.kill()
            process.wait()
        time.sleep(0.02)
    return process.returncode


def run_disturbed(questions: int, bench: Path) -> None:
    """Runs with faults and kills until all games are judged."""
    games = 2 * questions
    games_at_kills = [games * number // (KILLS + 1) for number in range(1, KILLS + 1)]
    starts = 0
    print(f"{SHARE_OF_ERRORS:.0%} errors, {KILLS} kills")
    with stub_judge(errors=SHARE_OF_ERRORS) as url:
        began = time.monotonic()
        status = 1
        while status:
            status = run_until_killed(bench, url, games_at_kills)
            starts += 1
        seconds = time.monotonic() - began
        counts = counts_of(url)

    rows = read_lines(bench / "model_judgment" / "stub" / "m.jsonl")
    assert sorted(row["uid"] for row in rows) == sorted(f"q{n}" for n in range(questions))
    assert all(game["score"] for row in rows for game in row["games"])
    paid = Counter(counts["paid"])
    paid_again = paid.total() - games
    most_under_way = KILLS * CONCURRENCY
    assert len(paid) == games
    assert paid_again <= most_under_way
    print(f"{starts} calls, {seconds:.1f} s;")
    print(f"{counts['requests']} requests, {counts['errors']} errors; every game judged once;")
    print(f"paid for again {paid_again}, at most {most_under_way} were under way")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=750)
    questions = parser.parse_args().questions
    for run in (run_undisturbed, run_disturbed):
        with tempfile.TemporaryDirectory() as data:
            bench = write_bench(Path(data), questions, characters=ANSWER_CHARACTERS)
            run(questions, bench)


if __name__ == "__main__":
    main()
