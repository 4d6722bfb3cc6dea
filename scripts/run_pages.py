"""Run the commands of the pages as they are printed, each page in its order.

    .venv/bin/python scripts/run_pages.py                     all pages: some hours
    .venv/bin/python scripts/run_pages.py docs/studies.md     one
    .venv/bin/python scripts/run_pages.py --list              what would run, and what not

It runs in the repository, and leaves there what the commands write: take a fresh clone. A command
that takes longer than `--limit` seconds is interrupted as with Ctrl-C, and fails only if it does
not end then. `CANNOT_RUN` has what is left out, with the reason: a GPU, a cluster, a hub, a key.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "*/README.md", "docs/*.md")
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
# What later lines of a block need.
STATE = re.compile(r'(export )?\w+=("[^"]*"|\$\(.*\)|[^ ]*)$|cd |source ')

CANNOT_RUN = {
    r"URL_OF_THIS_REPOSITORY|\$repository|github\.com": "the internet",
    r"Qwen/|math500|recipes/gsm8k_table\.sh": "a hub",
    r"arena (fetch|judge|score)|arena_hard\.sh (?!--)|API_KEY": "a hub or a key",
    r" \.\.\.$|[A-Z]{4,}(\.jsonl)?( |$)|\bmine\b|run\.yaml": "to fill in",
    r"sbatch|ray start|docker|setup\.sh gpu|nvidia-smi|nvcc": "a GPU or a cluster",
    r"recipes/[\w$]+\.sh(?! --(dry_run|tiny|print))": "a GPU or a cluster",
    r"runs/(js|rloo|base|eval|gsm8k|lab|\$name)\b|gsm8k_table\.py|step20|ckpt/": "a finished run",
    r"tensorboard": "a server, which does not end",
    r"--source|alone/skyrl": "another project's clone",
    r"run_pages": "this program",
}


def commands(page: Path) -> list[tuple[str, str]]:
    """(what its block has set until there, command) of a page."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        state = ""
        command = ""
        for line in block.splitlines():
            command += line + "\n"
            if not _is_whole(command):
                continue
            stripped = re.sub(r"(^|\s+)#.*", "", command, flags=re.MULTILINE).strip()
            if STATE.match(stripped) and "\n" not in stripped:
                state += stripped + "\n"
            elif stripped:
                found.append((state, stripped))
            command = ""
    return found


def _is_whole(command: str) -> bool:
    checked = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True)
    return checked.returncode == 0 and not checked.stderr and not command.endswith("\\\n")


def reason_not_to_run(command: str) -> str | None:
    for pattern, reason in CANNOT_RUN.items():
        if re.search(pattern, command, re.MULTILINE):
            return reason
    return None


def run(command: str, limit: float) -> tuple[str, str]:
    """How a command ended, and the last lines that it printed."""
    paths = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        process = subprocess.Popen(
            ["bash", "-ec", command],
            cwd=ROOT,
            env={**os.environ, "PATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=limit)
            ended = "done" if status == 0 else f"FAILED with {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            ended = _after_interrupt(process)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        printed.seek(0)
        last = "".join(printed.readlines()[-8:])
    return f"{ended} after {time.monotonic() - began:.0f} s", last


def _after_interrupt(process: subprocess.Popen) -> str:
    try:
        process.wait(timeout=60)
        return "interrupted"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "FAILED: does not end with Ctrl-C"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", help="pages; all, if none is named")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each command")
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args()
    # A program that starts in the background ignores Ctrl-C, and its commands would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pages = [Path(page) for page in options.pages]
    if not pages:
        pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    missing = [str(page) for page in pages if not page.is_file()]
    if missing:
        parser.error(f"no such page: {', '.join(missing)}")
    failed = 0
    for page in pages:
        for state, command in commands(page):
            reason = reason_not_to_run(command)
            if reason is not None:
                ended, last = f"not run: {reason}", ""
            elif options.list:
                ended, last = "would run", ""
            else:
                ended, last = run(state + command, options.limit)
            name = os.path.relpath(page, ROOT)
            print(f"{ended:<36} {name}  {command.splitlines()[0]}", flush=True)
            if "FAILED" in ended:
                failed += 1
                print(last, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
