"""What a run shows: a progress bar and our own lines. Everything it prints goes to a file.

The screen is a separate program that reads the file: a run forks itself, and a drawing thread
would not survive that.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from answer_graders.programs.console import progress, say
from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.trainers.openrlhf.flags import Flat

LOG = "train.log"
POLL_SECONDS = 0.2
TAIL_LINES = 12
# a line of ours; Ray puts the actor before it
OURS = re.compile(r"(?:\x1b\[\d+m)?(?:\(\w+ [^)]*\))?(?:\x1b\[0m)? ?openrlhf_js: (.*)")
ROLLOUT = re.compile(r"rollout ([\d,]+)(?: of ([\d,]+))?: (.*)")  # as the trainer prints it


def log_of(flat: Flat) -> Path:
    """The file that a run's output goes to, in the folder of its curves or of its model."""
    if flat["logger.tensorboard_dir"]:
        return Path(flat["logger.tensorboard_dir"], flat["logger.wandb.run_name"], LOG)
    return Path(flat["ckpt.output_dir"], LOG)


@contextlib.contextmanager
def shown(flat: Flat) -> Iterator[None]:
    """Sends the output of this process and its children to the log, and shows our own lines.

    With --js.verbose everything is printed as it comes.
    """
    if flat["js.verbose"]:
        yield
        return
    log = log_of(flat)
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"openrlhf_js: everything that the run prints goes to {log} (--verbose: here)")
    environment = {name: value for name, value in os.environ.items() if name != RUN_ID}
    with log.open("ab") as output:
        command = [sys.executable, "-m", __name__, str(log), str(output.tell())]
        screen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=environment,  # so that `end_run` spares it
            start_new_session=True,  # so that a Ctrl-C does, too
        )
        terminal = _printing_to(output.fileno(), output.fileno())
    try:
        yield
    except Exception:
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        raise
    finally:
        for descriptor in (*_printing_to(*terminal), *terminal):
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            screen.communicate(b"the end")


def _printing_to(output: int, errors: int) -> tuple[int, int]:
    """Redirects stdout and stderr to these descriptors; returns copies of the previous ones."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    before = (os.dup(1), os.dup(2))
    os.dup2(output, 1)
    os.dup2(errors, 2)
    return before


def say_tail(error: BaseException, flat: Flat) -> None:
    """Prints the end of a failed run's error, whose traceback is in the log."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    tail = "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
    say(f"openrlhf_js: the run failed:\n{tail}", error=True)
    say(f"openrlhf_js: the whole log: {log_of(flat)}", error=True)


def follow(log: Path, offset: int) -> None:
    """Shows what is added to a log, until something arrives on stdin or the parent has exited."""
    parent = os.getppid()
    ended = False
    note = "starting Ray, vLLM and DeepSpeed"
    with progress("training", unit="rollouts") as bar, log.open("rb") as file:
        bar.show(note)
        file.seek(offset)
        rest = b""
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], POLL_SECONDS)[0])
            ended = ended or os.getppid() != parent
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                found = OURS.match(line.decode(errors="replace").rstrip("\r"))
                if found is None:
                    continue
                rollout = ROLLOUT.fullmatch(found[1])
                if rollout is None:
                    say(f"openrlhf_js: {found[1]}", error=True)
                    continue
                done, total, note = rollout.groups()
                bar.total = _number(total) if total else None
                bar.done = _number(done)
            bar.update(bar.done, note)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


if __name__ == "__main__":
    follow(Path(sys.argv[1]), int(sys.argv[2]))
