"""`openrlhf-js quickstart`: make a tiny model and train it, on any machine, in minutes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openrlhf_js.common.console import say, table
from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import parse, run
from openrlhf_js.tiny.quickstart import MODEL, Quickstart, QuickstartSettings, prepare_libraries
from openrlhf_js.tiny.supervise import ProgramFailed, explained

if TYPE_CHECKING:
    from openrlhf_js.report.runs import Scalars

PROG = "openrlhf-js quickstart"


def main(argv: Sequence[str]) -> int:
    """Runs the quickstart; the exit status is 0 done, 1 failed, 2 wrong flags, 130 interrupted."""
    return run(
        PROG,
        lambda: work(parse(QuickstartSettings, PROG, argv)),
        failures={ProgramFailed: explained},
    )


def work(settings: QuickstartSettings) -> None:
    """All stages, one after the other."""
    folder = (settings.out or Path("runs", f"quickstart-{datetime.now():%Y%m%d-%H%M%S}")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"--out {folder} is not empty; name a new folder")
    began, stack = time.monotonic(), Quickstart(settings, folder)
    names = ", ".join(settings.estimators)
    say(f"quickstart: {settings.task} with {names}, seed {settings.seed}, in {folder}")
    with stack.stage("load libraries"):
        from openrlhf_js.lab.results import versions
        from openrlhf_js.report import quickstart as report
        from openrlhf_js.report.runs import Scalars

        prepare_libraries()
    split = stack.make_data()
    stack.warm_start(split)
    before = stack.measure(
        "evaluate before", split, folder / "warm_start", folder / "evaluation_before.json"
    )
    for name, own in settings.folders(folder).items():
        own.mkdir(exist_ok=True)
        logged = Scalars(folder / "tensorboard" / name)
        stack.train(name, own, partial(watch, logged, settings.task, before))
        stack.measure(f"evaluate {name}", split, own / "model", own / "evaluation_after.json")
    result = {
        "settings": {**settings.manifest(), "estimators": settings.estimators},
        "warm_start": {"slip": stack.task.slip, "steps": stack.task.warm_start_steps},
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "cpu_count": os.cpu_count(),
        **report.summarise(folder, settings.task, settings.folders(folder)),
        "seconds": {**stack.seconds, "all": round(time.monotonic() - began, 1)},
    }
    write_json(folder / "summary.json", result)  # the picture takes intervals from it
    batch = f"{settings.prompts_per_step} prompts x {settings.responses_per_prompt} responses"
    what = f"{settings.task}, {MODEL}, {batch} a step, seed {settings.seed}"
    report.draw(folder, settings.estimators, folder / "curves.png", what)
    show(settings, folder, result)


def watch(logged: Scalars, task: str, before: float) -> tuple[int, str]:
    """The steps that TensorBoard knows of, with the last reward and held-out pass@1."""
    from openrlhf_js.report import runs

    logged.reload()
    reward = logged[runs.REWARD]
    if not reward.steps:
        return 0, ""
    held_out = [before, *logged[runs.HELD_OUT.format(task)].values][-1]
    return reward.steps[-1], f"reward {reward.values[-1]:.2f}, held-out pass@1 {held_out:.0%}"


def show(settings: QuickstartSettings, folder: Path, summary: dict[str, Any]) -> None:
    """Prints what was gained, and where the files are."""
    from openrlhf_js.report import quickstart as report

    say("")
    if len(settings.estimators) > 1:
        table(report.table(summary))
    for sentence in report.in_words(summary):
        say(sentence)
    models = [str(own / "model") for own in settings.folders(folder).values()]
    tensorboard = Path(sys.executable).parent / "tensorboard"
    say(
        f"\npicture      {folder / 'curves.png'}\n"
        f"numbers      {folder / 'summary.json'}\n"
        f"models       {', '.join(models)}\n"
        f"all metrics  {tensorboard} --logdir {folder / 'tensorboard'}\n"
        f"one page     {Path(sys.executable).parent / 'openrlhf-js'} report {folder}"
    )
