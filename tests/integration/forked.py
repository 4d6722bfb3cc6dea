"""A run of the stack as a fork of a process that has imported all that it needs."""

import multiprocessing
import os
import sys
from pathlib import Path

from openrlhf_js.cli import train


class Forked:
    """To be used as a `Popen` of `openrlhf-js train`."""

    def __init__(
        self, folder: Path, log: Path, arguments: list[str], environment: dict[str, str]
    ) -> None:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(["imported"])
        self._process = forks.Process(target=_train, args=(folder, log, arguments, environment))
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the server finds it
        self._process.start()
        del os.environ["PYTHONPATH"]
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_seconds: float) -> int:
        self._process.join(timeout_seconds)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode


def _train(folder: Path, log: Path, arguments: list[str], environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    del os.environ["PYTHONPATH"]
    os.environ.update(environment)
    with log.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.exit(train.main(arguments))
