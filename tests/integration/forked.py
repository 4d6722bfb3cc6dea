"""A run of the stack as a fork of a process that has imported all that it needs."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from openrlhf_js.cli import train
from openrlhf_js.trainers.openrlhf.checks import rewards

PROGRAM = (sys.executable, "-m", "openrlhf_js.cli.train")  # by its command line
OF_A_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Forked:
    """To be used as a `Popen` of `openrlhf-js train`, or of another program's `main`.

    Graders are not loaded beforehand in a process of their own, which imports PyTorch each time.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        arguments: list[str],
        main: Callable[[list[str]], int] = train.main,
    ) -> None:
        log.touch()
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(["imported"])
        self._process = forks.Process(target=_run, args=(folder, log, arguments, main))
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the server finds it
        self._process.start()
        del os.environ["PYTHONPATH"]
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_seconds: float) -> int:
        self._process.join(timeout_seconds)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode


def _run(folder: Path, log: Path, arguments: list[str], main: Callable[[list[str]], int]) -> None:
    os.setsid()
    os.chdir(folder)
    for name in ("PYTHONPATH", *OF_A_LAUNCHER):
        os.environ.pop(name, None)
    rewards.loading = lambda *_: nullcontext(lambda _: rewards.UserFile(None))
    with log.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.exit(main(arguments))
