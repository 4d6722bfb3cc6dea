"""`openrlhf-js eval arena PROGRAM ...`: Arena-Hard, from its questions to a score."""

from __future__ import annotations

import json
import multiprocessing
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from openrlhf_js.common.console import say, table
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.settings import Field, Settings, choose, program
from openrlhf_js.sampling.settings import PromptForm, ServerSettings

if TYPE_CHECKING:  # pandas, scipy, statsmodels and altair: not for --help
    from openrlhf_js.evaluation.arena.board import Board
    from openrlhf_js.evaluation.arena.data import Bench, Folder
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.evaluation.arena.pool import Pool
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings
    from openrlhf_js.evaluation.arena.style import CountTokens

PROG = "openrlhf-js eval arena"
MODULE = "openrlhf_js.cli.eval_arena"
PROGRAMS = {
    "fetch": (f"{MODULE}:fetch", "get questions, baseline answers and the judge's texts"),
    "generate": (f"{MODULE}:generate", "have a model answer the questions"),
    "judge": (f"{MODULE}:judge", "have the answers compared with the baseline's"),
    "score": (f"{MODULE}:score", "win rates with intervals, style control, comparisons"),
    "show": (f"{MODULE}:show", "the page with every question, answer and verdict"),
}
Names = tuple[str, ...]
EMPTY_SHARE = 0.05  # of a model's answers: beyond it they are judged only if the user says so
EMPTY_REASON = "most often cut off while thinking (generate: --max_new_tokens)"


def main(argv: list[str]) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose(PROG, PROGRAMS, argv)


class BenchSettings(Settings):
    """Which bench, and where it is."""

    data: Path = Field(Path("data"), description="folder of the benches")
    bench: str = Field("arena-hard-v2.0", description="or arena-hard-v0.1, or one of your own")

    @property
    def folder(self) -> Folder:
        """Where its files are."""
        from openrlhf_js.evaluation.arena.data import Folder

        return Folder(self.data, self.bench)


class FetchSettings(BenchSettings):
    """Get a bench's questions, the baselines' answers and the official judge's texts.

    From the Hugging Face hub, or from a clone of github.com/lmarena/arena-hard-auto with its data.
    Only a clone has the judge's texts. What is in the folder already is never overwritten. The exit
    status is 1 where something is missing.
    """

    source: Path | None = Field(None, description="a clone, or a download of the data set")
    texts: Path | None = Field(None, description="a clone, for the judge's texts alone")
    models: Names = Field((), description="get these models' answers too")
    judgments: Names = Field((), description="get these judges' judgments of them, or of all")
    baseline: str = Field("", description="of a bench of your own")


def _fetch(settings: FetchSettings) -> int:
    from openrlhf_js.evaluation.arena import data, protocol

    bench, folder = data.bench_of(settings.bench, settings.baseline), settings.folder
    missing = data.fetch(folder, bench, settings.source, settings.models, settings.judgments)
    clone = settings.texts or settings.source
    if clone:
        protocol.fetch_texts(folder, bench, clone)
    if bench.judges and not (folder.root / protocol.PROMPTS_FILE).exists():
        missing.append("the official judge's texts (--texts CLONE); ours are taken")
    say(f"{folder.root}: {'complete' if not missing else 'incomplete'}")
    for line in missing:
        say(f"missing: {line}")
    return int(bool(missing))


class GenerateSettings(BenchSettings, ServerSettings):
    """Have a model answer the questions of a bench that was fetched.

    Thinking before an answer is kept apart from what the judge sees. The same command resumes, and
    asks nothing twice. It leaves model_answer/NAME.jsonl in data/BENCH. Prompts that do not fit
    into the model's context are recorded as failed. The exit status is 3 while questions are open.
    """

    model: str = Field(description="folder, hub id, or address such as http://host:8000/v1#NAME")
    name: str = Field("", description="of the model in the results; default: its own")
    category: Names = Field((), description="only these; default: all")
    questions: int | None = Field(None, ge=1, description="only the first N, for a trial")
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False, description="0: greedy")
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(4096, ge=1, description="of an answer, thinking included")
    system: str = Field("", description="system message")
    prompt_form: PromptForm = Field("chat", description="text: without a chat template")
    retry_failed: bool = Field(False, description="ask again what failed, such as long prompts")


def _generate(settings: GenerateSettings) -> int:
    from openrlhf_js.evaluation.arena import data
    from openrlhf_js.evaluation.arena.generate import generate as answer
    from openrlhf_js.sampling.sampler import Parameters, sampler_of

    questions = data.read_questions(settings.folder)
    first = dict(list(questions.items())[: settings.questions])
    wanted = data.select(first, settings.category)
    count_tokens = _token_counter(settings.bench)
    sampler = sampler_of(settings, settings.model, settings.prompt_form)
    name = settings.name or sampler.name.rpartition("#")[2]
    generated = answer(
        folder=settings.folder,
        name=name,
        sampler=sampler,
        questions=questions,
        wanted=wanted,
        parameters=Parameters(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            seed=settings.seed,
        ),
        count_tokens=count_tokens,
        system=settings.system,
        retry_failed=settings.retry_failed,
    )
    say(
        f"{settings.folder.answers(name)}: answers to {len(generated.answers)} of {len(wanted)} "
        f"questions; {generated.cut_off} were cut off at {settings.max_new_tokens} tokens"
    )
    if generated.empty:
        say(
            f"{generated.empty} answers are empty, thinking apart: {EMPTY_REASON}",
            error=True,
            style="bold red",
        )
    for problems, outcome in (
        (generated.failed, "failed (--retry_failed asks them again)"),
        (generated.still_open, "are open"),
    ):
        if problems:
            uid, reason = next(iter(problems.items()))
            say(f"{len(problems)} questions {outcome}, such as {uid}: {reason}", error=True)
    answered_or_failed = len(generated.answers) + len(generated.failed)
    return 3 if answered_or_failed < len(wanted) else 0


def _token_counter(bench: str) -> CountTokens | None:
    """Counts tokens as the official repository does; None where its tokenizer does not come."""
    from openrlhf_js.evaluation.arena import style

    try:
        return style.load_tokenizer(bench)
    except (OSError, multiprocessing.TimeoutError):
        reason = "tiktoken cannot download its tokenizer; the same command counts it later"
        say(f"style is not counted: {reason}", error=True)
        return None


class JudgeFlags(BenchSettings):
    """Have a judge compare models' answers with the baseline's, in two games for each question.

    Every reply is written to judge_ledger/ with its cost, and judgments to model_judgment/. The
    same command resumes, also after a kill, and pays for nothing twice. Ctrl-C and SIGTERM wait for
    the replies under way. A game that has no verdict after --tries replies, or is refused, is
    recorded so and not asked again without --retry_failed. --dry_run says what is left and what it
    may cost, at 4 bytes for a token, and 900 tokens for a reply before there is any. Status 1:
    games are open.
    """

    bench: str = Field("", description="default: the settings', or arena-hard-v2.0")
    models: Names = Field((), description="whose answers to judge; or the settings'")
    category: Names = Field((), description="only these; default: all")
    baseline: str = Field("", description="instead of the bench's")
    settings: Path | None = Field(None, description="YAML: the official file, or one as in eval/")
    judge: str = Field("", description="the endpoint's name of it; or the settings'")
    judge_name: str = Field("", description="of the judge in the results; default: its own")
    url: str = Field("https://api.openai.com/v1", description="OpenAI-compatible endpoint")
    key_env: str | None = Field(None, description="environment variable of the API key")
    temperature: float | None = Field(None, ge=0, description="instead of the settings'")
    max_tokens: int | None = Field(None, ge=1, description="instead of the settings'")
    parameters: str = Field(
        "{}", description="more of a request as JSON; null leaves temperature or max_tokens out"
    )
    games: Literal[1, 2] | None = Field(
        None, description="for each question; one costs half, with sides by turns (default: 2)"
    )
    concurrency: int | None = Field(None, ge=1, description="games at the same time")
    tries: int = Field(2, ge=1, description="replies without a verdict before a game is given up")
    retry_failed: bool = Field(False, description="ask games again that were given up or refused")
    budget: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="dollars for all that these models ever cost"
    )
    max_wait_seconds: float = Field(
        900.0, ge=0, description="the longest wait that the endpoint may ask for (Retry-After)"
    )
    judge_empty: bool = Field(
        False, description="judge although more than 5 % of a model's answers are empty"
    )
    batch: bool = Field(
        False, description="by the endpoint's batches, which cost less and take up to a day"
    )
    dry_run: bool = Field(False, description="only say what is left, and what it may cost")
    check: bool = Field(False, description="only see that the judge's server answers")


def _judge_settings(flags: JudgeFlags) -> JudgeSettings:
    """The settings file, or the official parameters, and the flags over them."""
    from openrlhf_js.evaluation.arena.data import BENCHES, file_name
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings, read_settings

    if not flags.settings and not flags.judge:
        raise ValueError("--judge names the judge, or --settings a file that does")
    base: dict[str, Any] = {"temperature": 0.0}
    official = BENCHES.get(flags.bench or "arena-hard-v2.0")
    if flags.settings:
        base = read_settings(flags.settings).model_dump()
    elif official:
        base |= official.judges.get(file_name(flags.judge), {})
    try:
        parameters = base.get("parameters", {}) | dict(json.loads(flags.parameters))
    except (ValueError, TypeError):
        raise ValueError(f"--parameters {flags.parameters!r:.80} is no JSON object") from None
    overrides = {"temperature", "max_tokens", "concurrency", "games"}
    base |= flags.model_dump(include=overrides, exclude_none=True)
    base |= {"parameters": parameters, "judge_model": flags.judge or base["judge_model"]}
    return JudgeSettings(**base)


def _judge(flags: JudgeFlags) -> int:
    from openrlhf_js.evaluation.arena import data
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.sampling.endpoint import Endpoint

    settings = _judge_settings(flags)
    name = data.file_name(flags.judge_name or settings.judge_model)
    bench_name = flags.bench or settings.bench_name or "arena-hard-v2.0"
    bench = data.bench_of(bench_name, flags.baseline or settings.baseline)
    models = data.file_names(flags.models or settings.model_list)
    if not models:
        raise ValueError("--models says whose answers to judge")
    if flags.budget is not None and settings.price(name) is None:
        raise ValueError(
            f"--budget needs the price of {settings.judge_model}: put it under 'prices' in the "
            "settings, in dollars for a million tokens, such as {input: 2, output: 8}"
        )
    endpoint = Endpoint(
        flags.url,
        settings.judge_model,
        flags.key_env,
        settings.timeout_seconds,
        flags.max_wait_seconds,
    )
    if flags.check:
        say(f"a server answers at {endpoint.connect().base_url}")
        return 0
    folder = data.Folder(flags.data, bench.name)
    judging = Judging(
        folder=folder,
        bench=bench,
        judge=name,
        settings=settings,
        wanted=data.select(data.read_questions(folder), flags.category),
        models=models,
        tries=flags.tries,
        retry_failed=flags.retry_failed,
        batch=flags.batch,
    )
    with judging:
        _say_deviations(judging, bench)
        say(judging.expected())
        too_many_empty = _say_empty_answers(judging)
        if flags.dry_run:
            return 0
        if too_many_empty and not flags.judge_empty:
            _ask_whether_to_judge_empty_answers()
        try:
            if judging.open_games() or judging.in_batches:
                endpoint.connect()
            judging.run(endpoint, settings.concurrency, flags.budget)
        finally:
            for line in judging.outcome():
                say(line)
        return int(judging.still_open > 0 or judging.missing > 0)


def _say_deviations(judging: Judging, bench: Bench) -> None:
    from openrlhf_js.evaluation.arena import protocol

    for category, ledger in judging.ledgers.items():
        recorded = {judging.judge: ledger.store.identity}
        deviations = protocol.deviations(bench, category, [judging.judge], recorded)
        if deviations:
            say(f"{category}: not the official protocol: {'; '.join(deviations)}", error=True)


def _say_empty_answers(judging: Judging) -> bool:
    """Warns of empty answers; returns whether a model has too many to pay for without asking."""
    counts = judging.empty_answers()
    for count in counts:
        say(
            f"WARNING: {count.empty:,} of {count.answers:,} answers of {count.model} that are to "
            f"be judged are empty, {EMPTY_REASON}: the judge would be paid for seeing nothing",
            error=True,
            style="bold red",
        )
    return any(count.share > EMPTY_SHARE for count in counts)


def _ask_whether_to_judge_empty_answers() -> None:
    """Asks on a terminal; ValueError where nobody answers, or the answer is no."""
    from rich.prompt import Confirm

    limit = f"more than {EMPTY_SHARE:.0%} of a model's answers are empty"
    if not sys.stdin.isatty():
        raise ValueError(f"{limit}: nothing was judged; --judge_empty judges them all the same")
    if not Confirm.ask(f"{limit}. Judge them all the same?", default=False):
        raise ValueError("nothing was judged")


class PoolSettings(BenchSettings):
    """What is scored, and how."""

    judge: Names = Field((), description="whose judgments; default: the only one there")
    models: Names = Field((), description="show only these; default: all")
    category: Names = Field((), description="only these; default: all judged")
    baseline: str = Field("", description="instead of the bench's")
    ci: Literal["clustered", "official"] = Field(
        "clustered", description="95 %, by question; or by row, as the bench's own script has it"
    )
    verdict: Literal["stated", "official"] | None = Field(
        None,
        description="the judge's last statement; or the last label of its text, as the bench's own "
        "script reads it, which --ci official takes too (default: stated)",
    )
    style_control: tuple[Literal["none", "all"], ...] = Field(
        ("none",), description="each gives a table; all: at equal length and markup"
    )
    compare: Annotated[tuple[tuple[str, str], ...], tyro.conf.UseAppendAction] = Field(
        (), description="a test of A against B, paired by question; may be repeated"
    )
    much_weight: float = Field(
        3.0, gt=0, allow_inf_nan=False, description="rows of a verdict of much better; official: 3"
    )


class ScoreSettings(PoolSettings):
    """Score what judges have judged, apart and pooled: the weighted rows that each model won."""

    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = Field(
        None, description="all figures"
    )
    html: Path | None = Field(None, description="the page of `show`")


class PageSettings(PoolSettings):
    """Open a page with the leaderboards, and every question with its answers and verdicts."""

    html: Path | None = Field(None, description="where; default: arena.html in the bench's folder")


def _boards(settings: PoolSettings) -> tuple[list[Pool], list[Board], list[str]]:
    """What was judged, leaderboards of each judge and of all pooled, and comparisons."""
    from openrlhf_js.evaluation.arena.data import file_names
    from openrlhf_js.evaluation.arena.pool import load

    folder = settings.folder
    judges = file_names(settings.judge) or folder.judges()
    if not settings.judge and len(judges) != 1:
        raise ValueError(f"--judge says whose judgments; {folder.root} has {judges or 'none'}")
    pools = load(
        folder,
        judges,
        settings.category,
        settings.baseline,
        rule=settings.verdict or ("official" if settings.ci == "official" else "stated"),
    )
    models = file_names(settings.models)
    boards: list[Board] = []
    comparisons: list[str] = []
    problems = _unknown_models(models, pools)
    for pool in pools:
        for names in _judges_alone_and_pooled(judges, pool):
            try:
                _add_boards(settings, pool, names, models, boards, comparisons)
            except ValueError as error:  # another category may have it
                problems.append(str(error))
    if not boards or (settings.compare and not comparisons):
        raise ValueError("\n".join(problems))
    for problem in problems:
        say(f"note: {problem}", error=True)
    return pools, boards, comparisons


def _unknown_models(models: Sequence[str], pools: Sequence[Pool]) -> list[str]:
    judged = {model for pool in pools for model in (*pool.judged.model, pool.baseline)}
    unknown = [name for name in models if name not in judged]
    if not unknown:
        return []
    return [f"not judged: {', '.join(unknown)}; judged: {', '.join(sorted(judged))}"]


def _judges_alone_and_pooled(judges: Sequence[str], pool: Pool) -> list[list[str]]:
    alone = [[name] for name in judges if name in pool.judges]
    return [*alone, pool.judges] if len(alone) > 1 else alone


def _add_boards(
    settings: PoolSettings,
    pool: Pool,
    judges: Sequence[str],
    models: Sequence[str],
    boards: list[Board],
    comparisons: list[str],
) -> None:
    """Adds the leaderboards of some judges in a category, and the comparisons, in words."""
    from openrlhf_js.evaluation.arena import score
    from openrlhf_js.evaluation.arena.board import board
    from openrlhf_js.evaluation.arena.data import file_name

    for control in settings.style_control:
        plan = score.Plan(settings.ci, control, settings.much_weight)
        boards.append(board(pool, judges, plan, models))
    for a, b in settings.compare:
        plan = score.Plan(settings.ci, much_weight=settings.much_weight)
        comparison = score.compare(pool, judges, plan, file_name(a), file_name(b))
        comparisons.append(f"{pool.category}, judged by {' + '.join(judges)}: {comparison}")


def _score(settings: ScoreSettings) -> int:
    from openrlhf_js.report import arena

    pools, boards, compared = _boards(settings)
    for board in boards:
        say(board.title, style="bold")
        table(arena.cells(board))
        for line in (f"Intervals: {board.interval}.", *board.notes, ""):
            say(line)
    for sentence in compared:
        say(sentence)
    if settings.json_file:
        rows = [row for board in boards for row in board.rows]
        _write(settings.json_file, json.dumps(rows, indent=1, allow_nan=False) + "\n")
    if settings.html:
        _write(settings.html, arena.page(pools, boards, compared))
    return 0


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content.encode())
    say(f"wrote {path}", error=True)


def _show(settings: PageSettings) -> int:
    from openrlhf_js.report.arena import page

    path = settings.html or settings.folder.root / "arena.html"
    _write(path, page(*_boards(settings)))
    if not webbrowser.open(path.resolve().as_uri()):
        say(f"no browser was found: open {path} by hand", error=True)
    return 0


fetch = partial(program, f"{PROG} fetch", FetchSettings, _fetch, resumes=True)
generate = partial(program, f"{PROG} generate", GenerateSettings, _generate, resumes=True)
judge = partial(program, f"{PROG} judge", JudgeFlags, _judge, resumes=True)
score = partial(program, f"{PROG} score", ScoreSettings, _score)
show = partial(program, f"{PROG} show", PageSettings, _show)
