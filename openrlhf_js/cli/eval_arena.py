"""`openrlhf-js eval arena PROGRAM ...`: Arena-Hard, from its questions to a score."""

from __future__ import annotations

import json
import multiprocessing
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from openrlhf_js.common.console import say, table
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.settings import Field, Settings, choose, parse, run
from openrlhf_js.sampling.settings import PromptForm, ServerSettings

if TYPE_CHECKING:  # pandas, scipy, statsmodels and altair: not for --help
    from openrlhf_js.evaluation.arena.data import Folder
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings
    from openrlhf_js.evaluation.arena.score import Board, Pool

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


def main(argv: list[str]) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose(PROG, PROGRAMS, argv)


def _run(name: str, kind: type[Settings], work: Callable[[Any], int], argv: list[str]) -> int:
    settings = parse(kind, f"{PROG} {name}", argv)
    return run(f"{PROG} {name}", lambda: work(settings), resumes=name not in ("score", "show"))


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
    if clone := settings.texts or settings.source:
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
    from openrlhf_js.evaluation.arena import data, style
    from openrlhf_js.evaluation.arena.generate import generate as answer
    from openrlhf_js.sampling.sampler import Parameters

    questions = data.read_questions(settings.folder)
    wanted = data.select(dict(list(questions.items())[: settings.questions]), settings.category)
    count_tokens = None
    try:
        count_tokens = style.load_tokenizer(settings.bench)
    except (OSError, multiprocessing.TimeoutError):
        why = "tiktoken cannot download its tokenizer; the same command counts it later"
        say(f"style is not counted: {why}", error=True)
    sampler = settings.sampler(settings.model, settings.prompt_form)
    name = settings.name or sampler.name.rpartition("#")[2]
    records, open_questions = answer(
        *(settings.folder, name, sampler, questions, wanted),
        Parameters(settings.temperature, settings.top_p, settings.max_new_tokens, settings.seed),
        *(count_tokens, settings.system, settings.retry_failed),
    )
    failed = {each["uid"]: each["failed"] for each in records if "failed" in each}
    said = [each for each in records if each["uid"] not in failed]
    cut_off = sum(each["finish_reason"] == "length" for each in said)
    say(
        f"{settings.folder.answers(name)}: answers to {len(said)} of {len(wanted)} questions; "
        f"{cut_off} were cut off at {settings.max_new_tokens} tokens"
    )
    for problems, kind in ((failed, "failed"), (open_questions, "are open")):
        if problems:
            uid, why = next(iter(problems.items()))
            say(f"{len(problems)} questions {kind}, such as {uid}: {why}", error=True)
    return 3 if len(records) < len(wanted) else 0


class JudgeFlags(BenchSettings):
    """Have a judge compare models' answers with the baseline's, in two games for each question.

    Every reply is written to judge_ledger/ with its cost, and judgments to model_judgment/. The
    same command resumes, also after a kill, and pays for nothing twice but what was under way. A
    game that has no verdict after --tries replies, or is refused, is recorded so and not asked
    again without --retry_failed. --dry_run says what is left and what it may cost, at 4 bytes for
    a token, and 900 tokens for a reply before there is any. Status 1: games are open.
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
    if flags.settings:
        base = read_settings(flags.settings).model_dump()
    elif bench := BENCHES.get(flags.bench or "arena-hard-v2.0"):
        base |= bench.judges.get(file_name(flags.judge), {})
    try:
        more = base.get("parameters", {}) | dict(json.loads(flags.parameters))
    except (ValueError, TypeError):
        raise ValueError(f"--parameters {flags.parameters!r:.80} is no JSON object") from None
    taken = {"temperature", "max_tokens", "concurrency", "games"}
    own = flags.model_dump(include=taken, exclude_none=True) | {"parameters": more}
    return JudgeSettings(**{**base, **own, "judge_model": flags.judge or base["judge_model"]})


def _judge(flags: JudgeFlags) -> int:
    from openrlhf_js.evaluation.arena import data, protocol
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.sampling.endpoint import Endpoint

    settings = _judge_settings(flags)
    name = data.file_name(flags.judge_name or settings.judge_model)
    bench_name = flags.bench or settings.bench_name or "arena-hard-v2.0"
    bench = data.bench_of(bench_name, flags.baseline or settings.baseline)
    models = list(dict.fromkeys(map(data.file_name, flags.models or settings.model_list)))
    if not models:
        raise ValueError("--models says whose answers to judge")
    if flags.budget is not None and settings.price(name) is None:
        raise ValueError(
            f"--budget needs the price of {settings.judge_model}: put it under 'prices' in the "
            "settings, in dollars for a million tokens, such as {input: 2, output: 8}"
        )
    how = (flags.tries, flags.retry_failed, flags.batch)
    endpoint = Endpoint(flags.url, settings.judge_model, flags.key_env, settings.timeout_seconds)
    if flags.check:
        say(f"a server answers at {endpoint.connect().base_url}")
        return 0
    folder = data.Folder(flags.data, bench.name)
    wanted = data.select(data.read_questions(folder), flags.category)
    with Judging(folder, bench, name, settings, wanted, models, *how) as judging:
        for category, ledger in judging.ledgers.items():
            recorded = {name: ledger.store.identity}
            if said := protocol.deviations(bench, category, [name], recorded):
                say(f"{category}: not the official protocol: {'; '.join(said)}", error=True)
        say(judging.expected())
        if flags.dry_run:
            return 0
        try:
            if judging.open_games() or judging.under_way:
                endpoint.connect()
            judging.run(endpoint, settings.concurrency, flags.budget)
        finally:
            for line in judging.outcome():
                say(line)
        return int(judging.still_open > 0 or judging.missing > 0)


class PoolSettings(BenchSettings):
    """What is scored, and how."""

    judge: Names = Field((), description="whose judgments; default: the only one there")
    models: Names = Field((), description="show only these; default: all")
    category: Names = Field((), description="only these; default: all judged")
    baseline: str = Field("", description="instead of the bench's")
    ci: Literal["clustered", "official"] = Field(
        "clustered", description="95 %, by question; or by row, as the bench's own script has it"
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
    from openrlhf_js.evaluation.arena import score
    from openrlhf_js.evaluation.arena.data import file_name

    folder = settings.folder
    judges = [file_name(name) for name in settings.judge] or folder.judges()
    if not settings.judge and len(judges) != 1:
        raise ValueError(f"--judge says whose judgments; {folder.root} has {judges or 'none'}")
    pools = score.load(folder, judges, settings.category, settings.baseline)
    models = [file_name(name) for name in settings.models]
    boards, sentences, problems = [], [], []
    judged = {model for pool in pools for model in (*pool.judged.model, pool.baseline)}
    if unknown := [name for name in models if name not in judged]:
        problems.append(f"not judged: {', '.join(unknown)}; judged: {', '.join(sorted(judged))}")
    for pool in pools:
        alone = [[name] for name in judges if name in pool.judges]
        for names in [*alone, pool.judges] if len(alone) > 1 else alone:
            try:
                for control in settings.style_control:
                    plan = score.Plan(settings.ci, control, settings.much_weight)
                    boards.append(score.board(pool, names, plan, models))
                for pair in settings.compare:
                    _, said = score.compare(pool, names, plan, *map(file_name, pair))
                    sentences.append(f"{pool.category}, judged by {' + '.join(names)}: {said}")
            except ValueError as error:  # another category may have it
                problems.append(str(error))
    if not boards or (settings.compare and not sentences):
        raise ValueError("\n".join(problems))
    for problem in problems:
        say(f"note: {problem}", error=True)
    return pools, boards, sentences


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


fetch = partial(_run, "fetch", FetchSettings, _fetch)
generate = partial(_run, "generate", GenerateSettings, _generate)
judge = partial(_run, "judge", JudgeFlags, _judge)
score = partial(_run, "score", ScoreSettings, _score)
show = partial(_run, "show", PageSettings, _show)
