"""`openrlhf-js eval arena PROGRAM ...`: Arena-Hard, from its questions to a score."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from answer_graders.marks import name_marks
from answer_graders.programs.console import say, table
from answer_graders.programs.files import atomic_write
from answer_graders.programs.settings import Field, Settings, choose, parse, program, run
from paired_eval.sampling.settings import (
    PromptForm,
    ServerSettings,
    ThinkingSettings,
    memory_failures,
)

if TYPE_CHECKING:  # pandas, scipy, statsmodels and altair: not for --help
    from paired_eval.arena.board import Boards
    from paired_eval.arena.data import Folder
    from paired_eval.arena.pool import Pool
    from paired_eval.arena.protocol import JudgeSettings

PROG = "openrlhf-js eval arena"
MODULE = "paired_eval.cli.arena"
PROGRAMS = {
    "fetch": (f"{MODULE}:fetch", "get questions, baseline answers and the judge's texts"),
    "generate": (f"{MODULE}:generate", "have a model answer the questions"),
    "judge": (f"{MODULE}:judge", "have the answers compared with the baseline's"),
    "score": (f"{MODULE}:score", "win rates with intervals, style control, comparisons"),
}
Names = tuple[str, ...]
DEFAULT_BENCH = "arena-hard-v2.0"


def main(argv: list[str]) -> int:
    """Runs the program that the first argument names, and returns its exit status."""
    return choose(PROG, PROGRAMS, argv)


class BenchSettings(Settings):
    """Which bench, and where it is."""

    data: Path = Field(Path("data"), description="folder of the benches")
    bench: str = Field(
        DEFAULT_BENCH,
        description="bench to use: arena-hard-v2.0, arena-hard-v0.1, or one of your own",
    )

    @property
    def folder(self) -> Folder:
        """Where its files are."""
        from paired_eval.arena.data import Folder

        return Folder(self.data, self.bench)


class FetchSettings(BenchSettings):
    """Get a bench's questions, the baselines' answers and the official judge's texts.

    From the Hugging Face hub, or from a clone of github.com/lmarena/arena-hard-auto with its data.
    Only a clone has the judge's texts. Files in the folder are never overwritten. The exit status
    is 1 if something is missing.
    """

    source: Path | None = Field(
        None, description="folder of a clone, or of a download of the data set, instead of the hub"
    )
    texts: Path | None = Field(
        None, description="folder of a clone, to take the judge's texts alone from"
    )
    models: Names = Field((), description="models whose answers to get, too")
    judgments: Names = Field(
        (), description="judges whose judgments of these models to get, or of all models"
    )
    baseline: str = Field(
        "", description="model that answers are compared with, in a bench of your own"
    )


def _fetch(settings: FetchSettings) -> int:
    from paired_eval.arena import data, protocol

    bench, folder = data.bench_of(settings.bench, settings.baseline), settings.folder
    missing = data.fetch(folder, bench, settings.source, settings.models, settings.judgments)
    clone = settings.texts or settings.source
    if clone:
        protocol.fetch_texts(folder, bench, clone)
    if bench.judges and not (folder.root / protocol.PROMPTS_FILE).exists():
        missing.append("the official judge's texts (--texts CLONE); ours are used instead")
    say(f"{folder.root}: {'complete' if not missing else 'incomplete'}")
    for line in missing:
        say(f"missing: {line}")
    return int(bool(missing))


class GenerateSettings(BenchSettings, ServerSettings, ThinkingSettings):
    """Have a model answer the questions of a bench that was fetched.

    Thinking before an answer is kept apart from what the judge sees. The same command resumes, and
    asks nothing twice. It leaves model_answer/NAME.jsonl in data/BENCH. Prompts that do not fit
    into the model's context are recorded as failed. The exit status is 3 while questions are open.
    """

    model: str = Field(
        description="model: folder, hub id, or address such as http://host:8000/v1#NAME"
    )
    name: str = Field("", description="name of the model in the results (default: its own)")
    category: Names = Field((), description="categories of questions (default: all)")
    questions: int | None = Field(
        None, ge=1, description="ask only the first N questions, for a trial"
    )
    temperature: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="sampling temperature; 0: greedy"
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="probability mass that is sampled from (top-p), up to 1"
    )
    max_new_tokens: int = Field(
        4096, ge=1, description="tokens of an answer at most, thinking included"
    )
    system: str = Field("", description="system message before each question")
    prompt_form: PromptForm = Field(
        "chat", description="form of the prompts: with the chat template, or text, without one"
    )
    retry_failed: bool = Field(False, description="ask again what failed, such as long prompts")


def _generate(settings: GenerateSettings) -> int:
    from paired_eval.arena import data, style
    from paired_eval.arena.generate import generate as answer
    from paired_eval.sampling.sampler import Parameters, sampler_of

    name_marks(settings.thinking_mark)
    questions = data.read_questions(settings.folder)
    of_category = data.select(questions, settings.category)
    wanted = dict(list(of_category.items())[: settings.questions])
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
        count_tokens=style.load_tokenizer(settings.bench),
        system=settings.system,
        retry_failed=settings.retry_failed,
    )
    path = settings.folder.answers(name)
    say(f"{path}: answers to {len(generated.answers)} of {len(wanted)} questions")
    for problem in generated.problems():
        say(problem, error=True)
    answered_or_failed = len(generated.answers) + len(generated.failed)
    return 3 if answered_or_failed < len(wanted) else 0


class JudgeFlags(BenchSettings, ThinkingSettings):
    """Have a judge compare models' answers with the baseline's, in two games for each question.

    Every reply is written to judge_ledger/ with its cost, and judgments to model_judgment/. The
    same command resumes, also after a kill, and pays for nothing twice. Ctrl-C and SIGTERM wait for
    the replies under way. A game that has no verdict after two replies, or is refused, is recorded
    as such, and asked again only with --retry_failed. --dry_run says what is left and what it may
    cost, at 4 bytes per token and, before the first reply, 900 tokens per reply. The exit status is
    1 while games are open.
    """

    bench: str = Field("", description="bench (default: that of the settings, or arena-hard-v2.0)")
    models: Names = Field(min_length=1, description="models whose answers to judge")
    category: Names = Field((), description="categories of questions (default: all)")
    baseline: str = Field(
        "", description="model that answers are compared with, instead of the bench's"
    )
    settings: Path | None = Field(
        None, description="YAML file of judging: the official one, or one as in eval/"
    )
    judge: str = Field(
        "", description="judge, by its name at the endpoint (default: that of the settings)"
    )
    judge_name: str = Field("", description="name of the judge in the results (default: its own)")
    url: str = Field(
        "https://api.openai.com/v1", description="address of an OpenAI-compatible endpoint"
    )
    key_env: str | None = Field(None, description="environment variable that holds the API key")
    retry_failed: bool = Field(False, description="ask games again that were given up or refused")
    judge_empty: bool = Field(
        False, description="judge empty answers, too, each of which is a loss"
    )
    budget: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="dollars that judging these models may cost, over all runs",
    )
    dry_run: bool = Field(
        False, description="say what is left and what it may cost, and judge nothing"
    )


def _judge_settings(flags: JudgeFlags) -> JudgeSettings:
    """The settings file's, or the official parameters; --judge overrides the model."""
    from paired_eval.arena.data import BENCHES, file_name
    from paired_eval.arena.protocol import JudgeSettings, read_settings

    if flags.settings:
        settings = read_settings(flags.settings)
        return settings.model_copy(update={"judge_model": flags.judge or settings.judge_model})
    if not flags.judge:
        raise ValueError("--judge names the judge, or --settings a file that does")
    bench = BENCHES.get(flags.bench or DEFAULT_BENCH)
    official = bench.judges.get(file_name(flags.judge), {}) if bench else {}
    fields: dict[str, Any] = {"temperature": 0.0, "parameters": dict(official)}
    return JudgeSettings(judge_model=flags.judge, **fields)


def _judge(flags: JudgeFlags) -> int:
    from paired_eval.arena import data
    from paired_eval.arena.judge import Assignment, Judging
    from paired_eval.sampling.endpoint import Endpoint

    name_marks(flags.thinking_mark)
    settings = _judge_settings(flags)
    name = data.file_name(flags.judge_name or settings.judge_model)
    if flags.budget is not None and settings.price(name) is None:
        raise ValueError(
            f"--budget needs the price of {settings.judge_model}: put it under 'prices' in the "
            "settings, in dollars for a million tokens, such as {input: 2, output: 8}"
        )
    bench = data.bench_of(flags.bench or settings.bench_name or DEFAULT_BENCH, flags.baseline)
    folder = data.Folder(flags.data, bench.name)
    assignment = Assignment(
        folder=folder,
        bench=bench,
        judge=name,
        settings=settings,
        questions=data.select(data.read_questions(folder), flags.category),
        models=data.file_names(flags.models),
        retry_failed=flags.retry_failed,
        judge_empty=flags.judge_empty,
    )
    with Judging(assignment, flags.budget) as judging:
        say(judging.expected())
        if flags.dry_run:
            return 0
        endpoint = Endpoint(
            base_url=flags.url,
            model=settings.judge_model,
            api_key_env=flags.key_env,
            timeout_seconds=settings.timeout_seconds,
        )
        try:
            if judging.open_games:
                endpoint.connect()
            judging.run(endpoint)
        finally:
            for line in judging.outcome():
                say(line)
        return int(bool(judging.open_pairs))


class ScoreSettings(BenchSettings, ThinkingSettings):
    """Score judgments, by judge and pooled: the share of weighted rows that each model won.

    --html makes a page with the leaderboards, and every question with its answers and verdicts.
    """

    judge: Names = Field(
        (), description="judges whose judgments to score (default: the only one there)"
    )
    models: Names = Field((), description="models to show (default: all)")
    category: Names = Field((), description="categories of questions (default: all judged)")
    baseline: str = Field(
        "", description="model that answers are compared with, instead of the bench's"
    )
    ci: Literal["clustered", "official"] = Field(
        "clustered",
        description="intervals: clustered by question, of 95 %, or official, by row as the bench's "
        "own script has them (v0.1 95 %, v2.0 90 %)",
    )
    verdict: Literal["unquoted", "official"] | None = Field(
        None,
        description="how a verdict is read; unquoted: the last label outside quotations; official: "
        "the last label anywhere (default: official with --ci official, else unquoted)",
    )
    style_control: bool = Field(
        False,
        description="show a table with length and markup at the mean of the judged models as well",
    )
    compare: Annotated[tuple[tuple[str, str], ...], tyro.conf.UseAppendAction] = Field(
        (),
        description="two models A B to test against each other, paired by question; may be "
        "repeated",
    )
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = Field(
        None, description="JSON file to write the leaderboards to"
    )
    html: Path | None = Field(None, description="HTML page to write")


def _boards(settings: ScoreSettings) -> tuple[list[Pool], Boards]:
    """The judgments, with leaderboards of each judge and of all pooled, and comparisons."""
    from paired_eval.arena.board import Interval, boards
    from paired_eval.arena.data import file_name, file_names
    from paired_eval.arena.pool import load

    judges = file_names(settings.judge) or settings.folder.judges()
    if not settings.judge and len(judges) != 1:
        root = settings.folder.root
        raise ValueError(f"--judge says whose judgments; {root} has {judges or 'none'}")
    pools = load(
        settings.folder,
        judges,
        settings.category,
        settings.baseline,
        rule=settings.verdict or ("official" if settings.ci == "official" else "unquoted"),
    )
    intervals: list[Interval] = [settings.ci]
    if settings.style_control:
        intervals.append("equal style")
    scored = boards(
        pools,
        intervals=intervals,
        models=file_names(settings.models),
        pairs=[(file_name(a), file_name(b)) for a, b in settings.compare],
    )
    for problem in scored.problems:
        say(f"note: {problem}", error=True)
    return pools, scored


def _score(settings: ScoreSettings) -> int:
    from paired_eval.pages import arena

    name_marks(settings.thinking_mark)
    pools, scored = _boards(settings)
    for board in scored.boards:
        say(board.title, style="bold")
        table(arena.cells(board))
        for line in (f"Intervals: {board.interval}.", *board.notes, ""):
            say(line)
    for sentence in scored.comparisons:
        say(sentence)
    if settings.json_file:
        rows = [row for board in scored.boards for row in board.rows]
        _write(settings.json_file, json.dumps(rows, indent=1, allow_nan=False) + "\n")
    if settings.html:
        _write(settings.html, arena.page(pools, scored))
    return 0


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content.encode())
    say(f"wrote {path}", error=True)


fetch = partial(program, f"{PROG} fetch", FetchSettings, _fetch, resumes=True)


def generate(argv: list[str]) -> int:
    """Runs `openrlhf-js eval arena generate`."""
    prog = f"{PROG} generate"
    settings = parse(GenerateSettings, prog, argv)
    return run(prog, lambda: _generate(settings), resumes=True, failures=memory_failures())


judge = partial(program, f"{PROG} judge", JudgeFlags, _judge, resumes=True)
score = partial(program, f"{PROG} score", ScoreSettings, _score)
