"""What `score` and `show` have in common: the files of a bench, read and scored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.saying import say

if TYPE_CHECKING:  # numpy, scipy and matplotlib: not for --help
    from openrlhf_js.evaluation.arena.compare import Comparison
    from openrlhf_js.evaluation.arena.files import Folder
    from openrlhf_js.evaluation.arena.leaderboard import Board
    from openrlhf_js.evaluation.arena.pool import Pool


class Scored(NamedTuple):
    """All that was asked for."""

    folder: Folder
    judges: list[str]
    pools: list[Pool]
    boards: list[Board]
    """By category, then judge (each, then all pooled), then style control."""
    compared: list[str]
    """Sentences."""


def scored(args: argparse.Namespace, errors: Console) -> Scored:
    """Reads the files and scores them.

    Args:
        args: with the flags of `eval_arena_score_flags.add_pool`.
        errors: for progress, and for what is wrong with the files.

    Raises:
        ValueError: what was given cannot be scored. OSError: a file cannot be read.
    """
    from openrlhf_js.evaluation.arena.files import Folder
    from openrlhf_js.evaluation.arena.leaderboard import Plan, board
    from openrlhf_js.evaluation.arena.pool import judgment_files, load
    from openrlhf_js.evaluation.arena.records import file_name
    from openrlhf_js.evaluation.arena.standing import standing
    from openrlhf_js.evaluation.arena.style import load_tokenizer

    folder = Folder(args.data, args.bench)
    judges = [file_name(name) for name in args.judge] or _only_judge(folder)
    files = sum(map(len, judgment_files(folder, judges).values()))
    count_tokens = None
    if args.count_style is not None:
        count_tokens = load_tokenizer(args.bench, args.count_style or None)
    with reading(2 * files, errors) as progress:
        pools = load(
            folder,
            judges,
            warn=lambda line: say(errors, f"note: {line}"),
            categories=args.category,
            baseline=args.baseline,
            count_tokens=count_tokens,
            progress=progress,
        )
    models = [file_name(name) for name in args.models]
    _check_models(models, pools)
    boards: list[Board] = []
    empty: list[str] = []
    tests = _Tests([(file_name(a), file_name(b)) for a, b in args.compare])
    for pool in pools:
        for names in _judges_of(pool, judges):
            judged = pool.judged.of_judges(names)
            there = (*judged.judged_models(), pool.judged.baseline)
            shown = [name for name in models if name in there]
            if models and not shown:
                say(errors, f"note: {' + '.join(names)} judged none of them in {pool.category}")
                continue
            if not judged.complete.any():
                empty.append(f"no judgment of {pool.category} by {' + '.join(names)} is complete")
                continue
            own = [name for name in shown or judged.judged_models() if name in judged.models]
            protocol = standing(folder, pool.bench, pool.category, names, own)
            for control in args.style_control:
                plan = Plan(args.ci, control, args.seed, args.rounds)
                boards.append(board(pool, names, plan, models=shown, protocol=protocol))
                tests.on(boards[-1], pool)
    if empty and not boards:
        raise ValueError(f"{empty[0]}: judge again (openrlhf-js eval arena judge)")
    for line in empty:
        say(errors, f"note: {line}, so there is no table of it")
    return Scored(folder, judges, pools, boards, tests.told(errors))


def _check_models(models: Sequence[str], pools: Sequence[Pool]) -> None:
    there = sorted({name for pool in pools for name in (*pool.judged.models, pool.judged.baseline)})
    if strange := [name for name in models if name not in there]:
        raise ValueError(
            f"nothing of {strange[0]!r} was judged; judged were {', '.join(there[:20])}"
        )


@contextmanager
def reading(files: int, errors: Console) -> Iterator[Callable[[int], None]]:
    """Shows how many files have been read."""
    with Bar("reading", files, errors, "files") as bar:
        yield lambda done: bar.update(done, done)


def _only_judge(folder: Folder) -> list[str]:
    there = folder.judges()
    if len(there) != 1:
        raise ValueError(
            f"--judge says whose judgments to score; in {folder.root / 'model_judgment'} are those "
            f"of {', '.join(there) or 'nobody: judge first (openrlhf-js eval arena judge)'}"
        )
    return there


def _judges_of(pool: Pool, judges: Sequence[str]) -> list[list[str]]:
    """Each judge of a category by itself, then all of them pooled."""
    there = [name for name in judges if name in pool.judged.judges]
    return [[name] for name in there] + ([there] if len(there) > 1 else [])


class _Tests:
    """Paired comparisons, board by board."""

    def __init__(self, pairs: Sequence[tuple[str, str]]):
        self.pairs = pairs
        self.sentences: list[str] = []
        self.done: set[tuple[str, str]] = set()
        self.count = 0
        self.failed: dict[tuple[str, str], list[str]] = {pair: [] for pair in pairs}

    def on(self, board: Board, pool: Pool) -> None:
        """Compares all pairs that the board's judges have judged."""
        from openrlhf_js.report import arena

        for pair in self.pairs:
            try:
                found = _compared(board, pool, *pair)
            except ValueError as error:  # another category may have both
                self.failed[pair].append(f"{arena.title(board)}: {error}")
                continue
            self.done.add(pair)
            self.count += 1
            self.sentences += arena.compared(found, arena.title(board))

    def told(self, errors: Console) -> list[str]:
        """What was found; says which boards could not compare a pair.

        Raises:
            ValueError: no board could.
        """
        from openrlhf_js.report import arena

        for pair, problems in self.failed.items():
            if problems and pair not in self.done:
                raise ValueError(f"--compare {' '.join(pair)}: {problems[0]}")
            for problem in problems:
                say(errors, f"note: not compared, {problem}")
        return [*self.sentences, *arena.by_chance(self.count)]


def _compared(board: Board, pool: Pool, a: str, b: str) -> Comparison:
    from openrlhf_js.evaluation.arena.compare import compare, compare_controlled
    from openrlhf_js.evaluation.arena.rows import rows
    from openrlhf_js.evaluation.arena.style_control import ROUNDS, features_of

    judged = pool.judged.of_judges(board.judges)
    counted = rows(judged, much_weight=pool.bench.weight)
    plan = board.plan
    if plan.control == "none":
        return compare(counted, judged, a, b)
    return compare_controlled(
        counted,
        judged,
        pool.styles,
        features_of(plan.control),
        a,
        b,
        seed=plan.seed,
        rounds=plan.rounds or ROUNDS,
    )


def write_page(found: Scored, path: Path, errors: Console) -> list[str]:
    """Writes the page with every question; returns what is to be said of it.

    Raises:
        OSError: a file cannot be read or written.
    """
    from openrlhf_js.evaluation.arena.browse import files_of, questions_of
    from openrlhf_js.report.arena_page import page
    from openrlhf_js.whole_file import whole_file

    baselines = {pool.judged.baseline for pool in found.pools}
    shown = dict.fromkeys(line.model for board in found.boards for line in board.lines)
    names = [name for name in shown if name not in baselines]
    with reading(files_of(found.folder, found.pools, found.judges, len(names)), errors) as progress:
        data = questions_of(found.folder, found.pools, found.judges, names, progress)
    heading = f"{found.folder.bench}, judged by {', '.join(found.judges)}"
    written = page(heading, found.boards, data, found.compared)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(written.html.encode())
    return written.notes
