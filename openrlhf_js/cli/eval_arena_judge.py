"""`openrlhf-js eval arena judge`: has a judge compare models' answers with the baseline's."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from openrlhf_js.cli.eval_arena_judge_flags import PROGRAM, parse
from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say

if TYPE_CHECKING:
    from openrlhf_js.evaluation.arena.games import Plan
    from openrlhf_js.evaluation.arena.job import Job, Wanted
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.evaluation.arena.ledger import Ledger
    from openrlhf_js.evaluation.arena.settings import JudgeSettings
    from openrlhf_js.evaluation.endpoint import Chat, Endpoint

GOES_ON = "what was judged is kept, and the same call goes on from here"


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 all games have their verdict, 1 some have not, 2 what was given cannot
        be used, 130 stopped. Wrong flags exit with 2.
    """
    args = parse(argv)
    errors = Console(stderr=True)

    def judged() -> int:
        try:
            return work(args, Console(), errors)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return guarded(PROGRAM, judged, GOES_ON)


def work(args: argparse.Namespace, console: Console, errors: Console) -> int:
    """Finds what has no verdict yet, and has it judged or says what that would cost."""
    from openrlhf_js.evaluation.arena import judge_report
    from openrlhf_js.evaluation.arena.games import plan
    from openrlhf_js.evaluation.arena.job import job_of
    from openrlhf_js.evaluation.arena.settings import read_settings
    from openrlhf_js.evaluation.arena.ways import check_same_way, record
    from openrlhf_js.evaluation.endpoint import Chat

    def warn(line: str) -> None:
        say(errors, f"note: {line}")

    settings = read_settings(args.settings, warn) if args.settings else None
    wanted, endpoints = _asked(args, settings, warn)
    job = job_of(wanted, settings, warn)
    if args.budget is not None and job.price is None:
        raise ValueError(
            f"--budget needs the price of {job.judge.model}: put it under 'prices' in the "
            f"settings, such as 'prices: {{{job.judge.model}: {{input: 2, output: 8}}}}', in "
            "dollars for a million tokens"
        )
    check_same_way(job.folder, job.run, job.judge.prompts)
    chat = None if args.dry_run else Chat(endpoints, job.limits)
    with job.ledger(warn, write=not args.dry_run) as ledger:  # from here on it is ours alone
        todo = plan(job.folder, job.bench, job.judge, job.questions, job.wanted, job.models, warn)
        _say(errors, judge_report.before(job, todo))
        if chat is None:
            _say(console, judge_report.expected(job, todo, ledger))
            return 0
        if todo.pairs:  # else the judgments that are there were perhaps made in another way
            record(job.folder, job.run, job.models)
        return _judge(args, job, todo, ledger, chat, console, errors)


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        say(console, line)


def _asked(
    args: argparse.Namespace, settings: JudgeSettings | None, warn: Callable[[str], None]
) -> tuple[Wanted, Sequence[Endpoint]]:
    """What the flags ask for, and the judge's endpoints."""
    from openrlhf_js.evaluation.arena.api_config import read_api_model
    from openrlhf_js.evaluation.arena.job import Wanted
    from openrlhf_js.evaluation.endpoint import Endpoint

    judge = args.judge or (settings.judge_model if settings else "")
    name, concurrency = args.judge_name, args.concurrency
    tokens_name = args.max_tokens_name
    endpoints: Sequence[Endpoint] = [Endpoint(url, judge, args.key_env) for url in args.url]
    if args.endpoints:  # knows the judge by its name, and what the endpoint calls it
        api = read_api_model(args.endpoints, judge, warn)
        endpoints = api.endpoints
        name, judge = name or judge, endpoints[0].model
        concurrency = concurrency or api.parallel
        if api.thinking:
            _check_without_temperature(args, settings)
            tokens_name = tokens_name or "max_completion_tokens"
    wanted = Wanted(
        data=args.data,
        bench=args.bench,
        models=args.models or (),
        categories=args.category,
        baseline=args.baseline,
        judge=judge,
        judge_name=name,
        temperature=args.temperature,
        max_tokens=args.max_tokens,
        max_tokens_name=tokens_name,
        seed=args.seed,
        concurrency=concurrency,
        timeout_seconds=args.timeout,
    )
    return wanted, endpoints


def _check_without_temperature(args: argparse.Namespace, settings: JudgeSettings | None) -> None:
    """Raises ValueError if a judge that takes no temperature would be sent one."""
    if args.temperature is None and settings and settings.temperature is None:
        return
    raise ValueError(
        f"{args.endpoints} says that this judge is a thinking model of OpenAI's, which takes no "
        "temperature: give --settings FILE without 'temperature', and no --temperature"
    )


def _judge(
    args: argparse.Namespace,
    job: Job,
    todo: Plan,
    ledger: Ledger,
    chat: Chat,
    console: Console,
    errors: Console,
) -> int:
    """Judges, says what became of it, and returns the exit status."""
    from openrlhf_js.evaluation.arena import judge_report
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.evaluation.arena.prices import Budget

    at_first = ledger.paid(job.models)
    games = sum(len(ask.games) for ask in todo.asks.values())
    with Bar("judging", games, errors, "games") as bar:

        def progress(done: int) -> None:
            spent = (ledger.paid(job.models) - at_first).dollars(job.price)
            more = "" if spent is None else f", {judge_report.money(spent)}"
            bar.update(done, done, more)

        def waiting(games: int) -> None:
            say(
                errors,
                f"{PROGRAM}: waiting for {games:,} games that are under way and paid for; Ctrl-C "
                "drops them",
            )

        budget = Budget(
            math.inf if args.budget is None else args.budget,
            lambda: ledger.paid_at_worst(job.models).dollars(job.price) or 0.0,
        )
        judging = Judging(
            todo,
            job.judge,
            job.folder,
            ledger,
            chat,
            budget,
            job.worst,
            workers=job.limits.concurrency,
            tries=args.tries,
            progress=progress,
            waiting=waiting,
        )
        try:
            stopped = asyncio.run(_run(chat, judging))
        finally:
            paid = ledger.paid(job.models) - at_first
            _say(
                console,
                judge_report.after(job, todo, judging.outcome, paid, ledger, chat.retries),
            )
    if stopped:
        raise KeyboardInterrupt
    if budget.used_up:
        say(
            errors,
            f"{PROGRAM}: the budget of ${args.budget:g} does not allow another game for sure; to "
            "go on, give the same call a larger one",
        )
    return int(judging.outcome.games < games or todo.missing > 0)


async def _run(chat: Chat, judging: Judging) -> bool:
    """Judges to the end, or until a signal comes; says whether one came."""
    stop = asyncio.Event()
    async with chat:
        with _signals(stop) as came:
            await judging.run(stop)
    return came.is_set()


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[asyncio.Event]:
    """Sets both events at the first signal to end; where judging ends already, drops everything."""
    loop, task, came = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task

    def heard() -> None:
        if stop.is_set():
            task.cancel()
            return
        came.set()
        stop.set()

    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup sets it
    ]
    for number in numbers:
        loop.add_signal_handler(number, heard)
    try:
        yield came
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


if __name__ == "__main__":
    sys.exit(main())
