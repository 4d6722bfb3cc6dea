"""Functions that the tests of the grading pool have graded answers with: kind, slow and hostile."""

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

from answer_graders.record import Score, scored

_kept: list[bytearray] = []


def compare(answer: str, label: str) -> Score:
    return scored("correct" if answer == label else "wrong", str(len(answer)))


def plain_number(answer: str, label: str) -> float:
    """Not what a grader returns."""
    return 1.0


def digest(answer: str, label: str) -> Score:
    return scored("correct", hashlib.md5(answer.encode("utf8", "surrogatepass")).hexdigest())


def nap(answer: str, label: str) -> Score:
    """Takes as many seconds as the label says, and tells its process and the time."""
    time.sleep(float(label))
    return scored("correct", f"{os.getpid()} {time.monotonic_ns()}")


def keep(answer: str, label: str) -> Score:
    """Leaves as many bytes behind as the label says, and tells its process."""
    _kept.append(bytearray(int(label)))
    return scored("correct", str(os.getpid()))


def environment(answer: str, label: str) -> Score:
    descriptors = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
    return scored("correct", " ".join([*descriptors, str(os.getsid(0)), str(hash("a"))]))


def hostile(answer: str, label: str) -> Score:
    """Does what the answer names, at a place that the label names."""
    _DEEDS[answer](label)
    return scored("correct", "survived")


def _for_ever(deed) -> None:
    while True:
        deed()


def _in_c_without_alarm(_: str) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    9**9**9


def _recurse(place: str) -> None:
    _recurse(place)


_DEEDS = {
    "loop": lambda _: _for_ever(int),
    "in C": lambda _: 9**9**9,  # one instruction, which holds the interpreter for hours
    "in C, alarm off": _in_c_without_alarm,
    "sleep": lambda _: time.sleep(1000),
    "stop": lambda _: signal.raise_signal(signal.SIGSTOP),
    "one block": lambda _: bytearray(1 << 40),
    "pieces": lambda _: _for_ever(lambda: _kept.append(bytearray(1 << 24))),
    "recurse": _recurse,
    "leave": lambda _: os._exit(0),
    "abort": lambda _: os.abort(),
    "exit": lambda _: exit(1),
    "fail": lambda _: {}["a\n" * 1000],
    "write": lambda place: Path(place).write_text("x"),
    "touch": lambda place: os.close(os.open(place, os.O_CREAT)),
    "mkdir": lambda place: os.mkdir(place),
    "system": lambda place: os.system(f"touch {place}"),
    "spawn": lambda place: subprocess.run(["touch", place], check=True),
    "fork": lambda place: os.fork(),
    "remove": lambda place: os.remove(__file__ + "x"),
}
