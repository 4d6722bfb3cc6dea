"""The parent side of the grading processes: one `Template`, and the `Worker`s forked from it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.grading_worker import LONGEST_MESSAGE, pack, unpack

START_SECONDS = 120.0  # for importing what grading needs, which is no answer's fault
SLOW_AFTER_SECONDS = 0.2  # of processor time; few answers that end take longer
STARVED_SHARE = 0.5  # of its time limit, on a processor: with less, an answer was kept waiting
_LOOK_SECONDS = 0.02
_END_SECONDS = 2.0
_LEAST_SECONDS = 0.001  # no time at all would mean to a socket that it must not wait
_LAST_WORDS_BYTES = 2000
_CHILD = (
    "import sys; sys.path[:] = sys.argv[4:]; from openrlhf_js.tasks.grading_worker import main; "
    "main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))"
)


class CannotLoad(RuntimeError):
    """There is no such grading function, or importing it failed."""


class TimedOut(Exception):
    """An answer's time was up.

    Attributes:
        starved: the machine was too busy to tell whether the answer is slow.
    """

    def __init__(self, starved: bool):
        super().__init__(starved)
        self.starved = starved


class Template:
    """The parent's view of the process that workers are forked from."""

    def __init__(self, timeout_seconds: float, memory_bytes: int):
        self._telling = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        arguments = [theirs.fileno(), timeout_seconds, memory_bytes, *_module_path()]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd="/",
                # equal answers get equal scores in every run; and a thread would make fork unsafe
                env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # out of reach of the terminal's Ctrl-C
            )

    def fork(self, function: str) -> Worker:
        """A new worker; one thread at a time.

        Raises:
            CannotLoad: the fault is the function's.
            EOFError, ConnectionError, TimeoutError: the template is gone, or does not get ready.
        """
        self.tell("fork", function)
        message, descriptors, _, _ = socket.recv_fds(
            self._control, LONGEST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC
        )
        if not message:
            raise EOFError("it ended")
        pid, reason = unpack(message)
        if not pid:
            raise CannotLoad(f"cannot load the grading function {function!r}:\n{reason}")
        return Worker(self, pid, socket.socket(fileno=descriptors[0]))

    def tell(self, command: str, subject: str | int) -> None:
        with self._telling, contextlib.suppress(OSError):  # if it is gone, so are its workers
            self._control.sendall(pack(command, subject))

    def end(self) -> str:
        """Ends it and its workers; returns the last of what it has printed, which is errors."""
        with self._telling:
            self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._errors as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()

    def forget(self) -> None:
        self._control.close()
        self._errors.close()
        self._process.returncode = 0  # not ours to wait for


class Worker:
    """The parent's view of a worker: `reusable` for another answer, or to be ended."""

    def __init__(self, template: Template, pid: int, connection: socket.socket):
        self._template, self._connection = template, connection
        self.pid = pid
        self.reusable = True

    def ask(self, request: bytes, seconds: float, give_up_the_slot: Callable[[], bool]) -> Score:
        """What the worker says of an answer.

        Processor time tells a slow answer from one on a busy machine, which keeps its slot: more
        answers at a time would only make it busier.

        Raises:
            TimedOut: it has not said it in so many seconds.
            EOFError, ConnectionError: it died.
        """
        self.reusable = False
        deadline = time.monotonic() + seconds
        self._connection.settimeout(max(seconds, _LEAST_SECONDS))
        _, used_before = _activity(self.pid)
        aside = lowered = False
        try:
            self._connection.sendall(request)
            while (reply := self._reply_until(deadline)) is None:
                runs, used = _activity(self.pid)
                slow = used - used_before > SLOW_AFTER_SECONDS
                aside = aside or ((slow or not runs) and give_up_the_slot())
                if slow and aside and not lowered:
                    self._template.tell("lower", self.pid)
                    lowered = True
        except TimeoutError:
            runs, used = _activity(self.pid)
            starved = runs and used - used_before < STARVED_SHARE * seconds
            raise TimedOut(starved) from None
        status, detail, last = unpack(reply)
        self.reusable = not (last or aside)
        return scored(status, detail)

    def _reply_until(self, deadline: float) -> bytes | None:
        """The reply, or None if a look at the worker is due first."""
        left_seconds = deadline - time.monotonic()
        self._connection.settimeout(min(max(left_seconds, _LEAST_SECONDS), _LOOK_SECONDS))
        try:
            reply = self._connection.recv(LONGEST_MESSAGE)
        except TimeoutError:
            if left_seconds <= _LOOK_SECONDS:
                raise
            return None
        if not reply.endswith(b"\n"):  # a reply is short and written at once
            raise EOFError
        return reply

    def end(self) -> None:
        self._connection.close()
        self._template.tell("end", self.pid)

    def forget(self) -> None:
        self._connection.close()


def _activity(pid: int) -> tuple[bool, float]:
    """Whether a process runs or could, and the processor seconds that it has used."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False, 0.0
    return fields[0] == b"R", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _module_path() -> list[str]:
    """`sys.path` for another folder; the current one comes last, lest its files hide a module."""
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    if "" in sys.path:
        with contextlib.suppress(FileNotFoundError):  # a folder that was deleted
            path.append(os.getcwd())
    return path
