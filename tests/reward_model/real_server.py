"""`openrlhf-js rm serve` as a process of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    process: subprocess.Popen
    port: int
    said: str  # before it began to serve

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/get_reward"


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    """Serves until the end of the block, and must then end with status 0."""
    command = [sys.executable, "-m", "openrlhf_js.cli.rm", "serve", "--port=0", "--device=cpu"]
    command += ["--reward.model_name_or_path", str(folder), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = folder.parent / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    assert process.stdout
    try:
        said = ""
        while not (found := re.search(r"serving on http://127.0.0.1:(\d+)/get_reward\n", said)):
            line = process.stdout.readline()
            assert line, f"no server: {said}{log.read_text()}"
            said += line
        yield Server(process, int(found[1]), said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
