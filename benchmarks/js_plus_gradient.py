"""Does js_plus lower the variance of the policy gradient, against js and against rloo?

Tiny models on the quickstart's tasks, warm-started and then trained by plain REINFORCE with rloo
(`tiny_policies.py`), early (after the warm start), in the middle and late. A seed is a warm start,
a training, a pool of responses and batches of its own; intervals are over seeds (Student's t). At
every policy small batches of n prompts with m responses are drawn from a pool of fresh responses,
and every baseline sees the same batches (`pool_distances.py` says how squared distances are had
without bias). The history of js_plus is of the steps of training before the policy, all with 64
prompts: the first n prompts of each and the first m of their responses. After the warm start there
are none, and its history is empty.

A call with the same folder goes on where the last one was stopped, and measures nothing twice;
after a change of the code give another one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from js_plus_gradient_report import Policy, markdown, summarise, verdicts
from pool_distances import Size, measure
from rich.console import Console
from rlhf_runs import kept
from tiny_policies import train

from openrlhf_js.cli.progress import Bar
from openrlhf_js.tiny.quickstart import prepare_libraries
from openrlhf_js.tiny.tasks import TASKS
from openrlhf_js.whole_file import whole_file

# Seconds of one free core for a step of imitation, a step of training, a response of the pool and
# a small batch of each size: for the forecast at the start. Later, what was done tells the rest.
IMITATED, TRAINED, PROJECTED, BATCHES = 0.05, 0.6, 0.01, 0.03


@dataclass(frozen=True)
class Training:
    """One training, and what is measured of its policies.

    Attributes:
        task: its name.
        seed: of everything.
        marks: after how many steps it is measured.
        size: how much is measured.
        folder: of all trainings.
    """

    task: str
    seed: int
    marks: tuple[int, ...]
    size: Size
    folder: Path

    @property
    def trained(self) -> Path:
        """Its own folder, there once it has ended."""
        marks = ".".join(map(str, self.marks))
        return self.folder / f"{self.task}-{marks}-seed{self.seed}"

    def path(self, mark: int) -> Path:
        """Where the figures of a policy are kept."""
        what = "-".join(map(str, asdict(self.size).values()))
        return self.trained / f"measured-{what}" / f"step-{mark}.json"

    @property
    def seconds(self) -> list[tuple[Path, float]]:
        """What it leaves, and about how many seconds that takes one core."""
        steps = IMITATED * TASKS[self.task].warm_start_steps + TRAINED * max(self.marks)
        pool = PROJECTED * self.size.prompts * self.size.responses + BATCHES * self.size.batches
        return [(self.trained, steps), *((self.path(mark), pool) for mark in self.marks)]

    def work(self) -> None:
        """Trains and measures what is not there yet."""
        train(self.task, self.seed, self.marks, self.trained)
        for mark in self.marks:
            kept(
                self.path(mark),
                partial(measure, self.trained, self.task, self.seed, mark, self.size),
            )

    def policies(self) -> list[Policy]:
        """What was measured."""
        return [
            Policy(self.task, mark, self.seed, **json.loads(self.path(mark).read_bytes()))
            for mark in self.marks
        ]


def start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    prepare_libraries()


def work(trainings: list[Training], workers: int) -> None:
    """Has the trainings done by processes of one thread each; shows how far they have come."""
    console = Console(stderr=True)
    parts = [part for each in trainings for part in each.seconds if not part[0].exists()]
    total = sum(seconds for _, seconds in parts)
    if not parts:
        return
    console.print(
        f"{len(parts)} parts of {sum(len(each.seconds) for each in trainings)} are missing: about "
        f"{total / workers / 60:.0f} minutes for {workers} processes on free cores"
    )
    with (
        get_context("spawn").Pool(workers, start_worker) as pool,
        Bar("measuring", round(total), console, "parts") as bar,
    ):
        running = [pool.apply_async(each.work) for each in trainings]
        while running:
            running[0].wait(1)
            for each in [each for each in running if each.ready()]:
                each.get()  # raises what was raised there
                running.remove(each)
            done = [seconds for path, seconds in parts if path.exists()]
            bar.update(sum(done), len(done))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, size = parser.add_argument, Size()
    add("--folder", type=Path, default=Path("runs/js-plus-gradient"), help="default: %(default)s")
    add("--tasks", default="sort,countdown", help=f"of {', '.join(TASKS)} (default: %(default)s)")
    add("--seeds", default="0,1,2,3,4", help="default: %(default)s")
    add("--steps", default="0,25,100", help="of training, at each policy (default: %(default)s)")
    add("--prompts", type=int, default=size.prompts, help="of a pool (default: %(default)s)")
    add("--responses", type=int, default=size.responses, help="to each (default: %(default)s)")
    add("--batches", type=int, default=size.batches, help="of each size (default: %(default)s)")
    add("--workers", type=int, default=2, help="processes (default: %(default)s)")
    add("--markdown", action="store_true", help="print the tables for the docs")
    options = parser.parse_args()
    for name in ("seeds", "steps"):
        given = getattr(options, name)
        try:
            setattr(options, name, tuple(sorted({int(each) for each in given.split(",")})))
        except ValueError:
            parser.error(f"--{name} {given}: give numbers with commas between, such as 0,1,2")
    options.tasks = options.tasks.split(",")
    if unknown := [name for name in options.tasks if name not in TASKS]:
        parser.error(f"--tasks {unknown[0]}: choose from {', '.join(TASKS)}")
    if min(options.seeds) < 0 or min(options.steps) < 0 or max(options.steps) == 0:
        parser.error("--seeds and --steps are 0 or more, and the last step is 1 or more")
    if len(options.seeds) < 2:
        parser.error("one of --seeds has no interval: give 2 or more, such as 0,1,2,3,4")
    if options.prompts < 64 or options.responses < 10 or min(options.batches, options.workers) < 1:
        parser.error("--prompts must be 64 or more, --responses 10, --batches and --workers 1")
    return options


def main() -> None:
    options = parse()
    size = Size(options.prompts, options.responses, options.batches)
    trainings = [
        Training(task, seed, options.steps, size, options.folder)
        for seed in options.seeds
        for task in options.tasks
    ]
    options.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing may be left running
    try:
        work(trainings, options.workers)
        policies = [policy for each in trainings for policy in each.policies()]
        rows = summarise(policies)
    except KeyboardInterrupt:
        sys.exit("stopped; the same call goes on from here")
    except ValueError as error:
        sys.exit(str(error))
    result: dict[str, Any] = {
        "settings": {**vars(options), "folder": str(options.folder)},
        "seconds_of_measuring": sum(policy.seconds for policy in policies),
        "verdicts": verdicts(rows),
        "rows": [row.plain() for row in rows],
    }
    path = options.folder / "results.json"
    with whole_file(path) as file:
        file.write(f"{json.dumps(result, indent=2, allow_nan=False)}\n".encode())
    print(markdown(rows) if options.markdown else "\n".join([*verdicts(rows), str(path)]))


if __name__ == "__main__":
    main()
