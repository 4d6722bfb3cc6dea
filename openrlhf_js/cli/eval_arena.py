"""`openrlhf-js eval arena PROGRAM ...`: Arena-Hard, from its questions to a score."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from openrlhf_js.common.settings import Field, Settings, choose, parse, run
from openrlhf_js.sampling.settings import EngineSettings

if TYPE_CHECKING:  # pandas, scipy, statsmodels and matplotlib: not for --help
    from openrlhf_js.evaluation.arena.data import Bench, Folder
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings
    from openrlhf_js.evaluation.arena.score import Board, Pool

PROG = "openrlhf-js eval arena"
PROGRAMS = {
    name: (f"openrlhf_js.cli.eval_arena:{name}", said)
    for name, said in (
        ("fetch", "get questions, baseline answers and the judge's texts"),
        ("generate", "have a model answer the questions"),
        ("judge", "have the answers compared with the baseline's"),
        ("score", "win rates with intervals, style control, comparisons"),
        ("show", "the page with every question, answer and verdict"),
    )
}
Names = tuple[str, ...]
MANY_COMPARISONS = 5


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
    The judge's texts are in the clone alone. What is in the folder already is never overwritten.

    exit status: 0 all is there, 1 something is missing, 2 bad input, 130 stopped
    """

    source: Path | None = Field(None, description="a clone, or a download of the data set")
    texts: Path | None = Field(None, description="a clone of the repository, for the judge's texts")
    models: Names = Field((), description="get these models' answers too")
    judgments: Names = Field((), description="get these judges' judgments of them, or of all")
    baseline: str = Field("", description="of a bench of your own")


def fetch(argv: list[str]) -> int:
    """`eval arena fetch`."""
    settings = parse(FetchSettings, f"{PROG} fetch", argv)
    return run(f"{PROG} fetch", lambda: _fetch(settings), resumes=True)


def _fetch(settings: FetchSettings) -> int:
    from openrlhf_js.common.console import say
    from openrlhf_js.evaluation.arena import data
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings, digest, fetch_texts, prompt_of

    bench, folder = data.bench_of(settings.bench, settings.baseline), settings.folder
    source = settings.source or _downloaded(settings, bench)
    missing = data.fetch(folder, bench, source, settings.models, settings.judgments)
    for clone in filter(None, (settings.texts, source)):
        if fetch_texts(folder, bench, clone):
            break
    categories = {each.category for each in data.read_questions(folder).values()}
    for name in sorted(categories):
        prompt = prompt_of(folder, name, JudgeSettings.model_validate({"judge_model": "any"}))
        same = digest(prompt.system) == bench.category(name).system_sha256
        if bench.judges and not (same and digest(prompt.template) == data.TEMPLATE):
            missing.append(
                f"the official judge's texts for {name}: judging takes our own wording (give a "
                "clone of the official repository with --texts)"
            )
    say(f"{folder.root}: {', '.join(sorted(categories))}")
    for line in missing:
        say(f"missing: {line}")
    return int(bool(missing))


def _downloaded(settings: FetchSettings, bench: Bench) -> Path:
    from huggingface_hub import snapshot_download

    from openrlhf_js.evaluation.arena.data import HUB, file_name

    baselines = {each.baseline for each in bench.categories.values()} or {bench.baseline}
    wanted = ["question.jsonl"]
    wanted += [f"model_answer/{file_name(name)}.jsonl" for name in {*baselines, *settings.models}]
    wanted += [
        f"model_judgment/{file_name(judge)}/{file_name(model) if model else '*'}.jsonl"
        for judge in settings.judgments
        for model in settings.models or ("",)
    ]
    try:
        patterns = [f"data/{bench.name}/{name}" for name in wanted]
        return Path(snapshot_download(HUB, repo_type="dataset", allow_patterns=patterns))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the hub does not give {HUB} ({str(error).partition(chr(10))[0]:.200}): download it "
            "elsewhere, and give its folder with --source"
        ) from None


class GenerateSettings(BenchSettings, EngineSettings):
    """Have a model answer the questions of a bench that was fetched.

    Thinking before an answer is kept apart from what the judge sees. The same command resumes, and
    asks nothing twice. It leaves model_answer/NAME.jsonl and NAME.generation.json in data/BENCH.

    exit status: 0 done, 1 questions are open or failed, 2 bad input, 130 stopped
    """

    model: str = Field(description="folder, hub id, or address such as http://host:8000/v1#NAME")
    name: str = Field("", description="of the model in the results; default: its own")
    category: Names = Field((), description="only these; default: all")
    questions: int | None = Field(None, ge=1, description="only the first N, for a trial")
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False, description="0: greedy")
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(4096, ge=1, description="of an answer, thinking included")
    system: str = Field("", description="system message")
    batch_size: int | None = Field(None, ge=1, description="answers sampled and saved together")
    key_env: str | None = Field(None, description="environment variable of the endpoint's API key")
    concurrency: int = Field(64, ge=1, description="requests at the same time")
    timeout: float = Field(600.0, gt=0, description="seconds for a reply")
    default_sampling: bool = Field(
        False, description="send no temperature, top_p or max_tokens but max_completion_tokens"
    )
    retry_failed: bool = Field(False, description="ask again what can hardly be answered")


def generate(argv: list[str]) -> int:
    """`eval arena generate`."""
    settings = parse(GenerateSettings, f"{PROG} generate", argv)
    return run(f"{PROG} generate", lambda: _generate(settings), resumes=True)


def _generate(settings: GenerateSettings) -> int:
    from openrlhf_js.common.console import say
    from openrlhf_js.evaluation.arena import data, style
    from openrlhf_js.evaluation.arena.generate import generate as generated
    from openrlhf_js.sampling.endpoint import Endpoint
    from openrlhf_js.sampling.sampler import LocalSampler, Parameters, Sampler, ServedSampler

    questions = data.read_questions(settings.folder)
    first = dict(list(questions.items())[: settings.questions])
    wanted = data.select(first, settings.category)
    count_tokens = style.load_tokenizer(settings.bench)
    temperature = None if settings.default_sampling else settings.temperature
    top_p = None if settings.default_sampling else settings.top_p
    sampler: Sampler
    if settings.model.startswith(("http://", "https://")):
        endpoint = Endpoint(settings.model, "", settings.key_env, settings.timeout).connect()
        tokens = "max_completion_tokens" if settings.default_sampling else "max_tokens"
        sampler, name = ServedSampler(endpoint, settings.concurrency, tokens), endpoint.model
    else:
        sampler, name = LocalSampler(settings, settings.model, "chat"), settings.model
    found = generated(
        settings.folder,
        settings.name or name,
        sampler,
        questions,
        wanted,
        Parameters(temperature, top_p, settings.max_new_tokens, settings.seed),
        count_tokens,
        settings.system,
        settings.retry_failed,
    )
    path = settings.folder.answers(settings.name or name)
    say(f"{path}: answers to {found.answered} of {len(wanted)} questions")
    for count, said in (
        (found.cut_off, "were cut off (--max_new_tokens, and another --name)"),
        (found.empty, "are empty: nothing was said, or the thinking did not end"),
    ):
        if count:
            say(f"{count} of them {said}")
    for problems, said in ((found.failed, "failed"), (found.open, "still open")):
        if problems:
            uid, why = next(iter(problems.items()))
            say(f"{len(problems)} questions {said}, such as {uid}: {why}", error=True)
    return int(found.answered < len(wanted))


class JudgeFlags(BenchSettings):
    """Have a judge compare models' answers with the baseline's, in two games for each question.

    Every reply is written to judge_ledger/ with its cost, and judgments to model_judgment/. The
    same command resumes, also after a kill, and pays for nothing twice but what was under way. A
    game that has no verdict after --tries replies, or is refused, is recorded so and not asked
    again without --retry_failed. --dry_run says what is left and what it may cost: tokens are bytes
    / 4 and 900 for a reply, or what the ledger has.

    exit status: 0 no game is open (or --dry_run), 1 some are, or answers are missing, 2 bad input,
    130 stopped
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
        "{}",
        description='more of a request as JSON, such as {"reasoning_effort": "high"}; '
        "null leaves temperature or max_tokens out",
    )
    concurrency: int | None = Field(None, ge=1, description="games at the same time")
    timeout: float | None = Field(None, gt=0, description="seconds for a reply")
    tries: int = Field(2, ge=1, description="replies without a verdict before a game is given up")
    retry_failed: bool = Field(False, description="ask games again that were given up or refused")
    budget: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="dollars for all that these models ever cost"
    )
    dry_run: bool = Field(False, description="only say what is left, and what it may cost")


def judge(argv: list[str]) -> int:
    """`eval arena judge`."""
    flags = parse(JudgeFlags, f"{PROG} judge", argv)
    return run(f"{PROG} judge", lambda: _judge(flags), resumes=True)


def _judge_settings(flags: JudgeFlags) -> JudgeSettings:
    """The settings file, or the official parameters, and the flags over them."""
    from openrlhf_js.evaluation.arena.data import BENCHES, file_name
    from openrlhf_js.evaluation.arena.protocol import JudgeSettings, read_settings

    if not flags.settings and not flags.judge:
        raise ValueError("--judge names the judge, or --settings a file that does")
    bench = BENCHES.get(flags.bench or "arena-hard-v2.0")
    official = (
        [each for each in bench.judges if each.name == file_name(flags.judge)] if bench else []
    )
    base: dict[str, Any] = {"temperature": 0.0, **(official[0]._asdict() if official else {})}
    base.pop("name", None)
    if flags.settings:
        base = read_settings(flags.settings).model_dump()
    try:
        more = dict(json.loads(flags.parameters))
    except (ValueError, TypeError):
        raise ValueError(f"--parameters {flags.parameters!r:.80} is no JSON object") from None
    own = {
        "judge_model": flags.judge,
        "temperature": flags.temperature,
        "max_tokens": flags.max_tokens,
        "concurrency": flags.concurrency,
        "timeout_seconds": flags.timeout,
        "parameters": base.get("parameters", {}) | more,
    }
    return JudgeSettings(**base | {k: v for k, v in own.items() if v not in (None, "")})


def _judge(flags: JudgeFlags) -> int:
    from openrlhf_js.common.console import say
    from openrlhf_js.evaluation.arena.data import (
        Folder,
        bench_of,
        file_name,
        read_questions,
        select,
    )
    from openrlhf_js.evaluation.arena.judge import Judging
    from openrlhf_js.evaluation.arena.protocol import deviations
    from openrlhf_js.sampling.endpoint import Endpoint

    settings = _judge_settings(flags)
    name = file_name(flags.judge_name or settings.judge_model)
    bench = bench_of(
        flags.bench or settings.bench_name or "arena-hard-v2.0",
        flags.baseline or settings.baselines or "",
    )
    models = [file_name(each) for each in flags.models or settings.model_list]
    if not models:
        raise ValueError("--models says whose answers to judge")
    if flags.budget is not None and settings.price(name) is None:
        raise ValueError(
            f"--budget needs the price of {settings.judge_model}: put it under 'prices' in the "
            "settings, in dollars for a million tokens, such as {input: 2, output: 8}"
        )
    folder = Folder(flags.data, bench.name)
    wanted = select(read_questions(folder), flags.category)
    judging = Judging(
        folder, bench, name, settings, wanted, models, flags.tries, flags.retry_failed
    )
    endpoint = None
    if not flags.dry_run:
        endpoint = Endpoint(
            flags.url, settings.judge_model, flags.key_env, settings.timeout_seconds
        )
    with judging:
        for category, ledger in judging.ledgers.items():
            recorded = {name: ledger.store.identity}
            if said := deviations(bench, category, [name], recorded):
                say(f"not the official protocol: {'; '.join(said)}", error=True)
        _tell_open(judging)
        if endpoint is None:
            return 0
        try:
            judging.run(endpoint, settings.concurrency, flags.budget)
        finally:
            still_open = _tell_done(judging)
    return int(still_open > 0 or judging.missing > 0)


def _tell_open(judging: Judging) -> None:
    from openrlhf_js.common.console import say

    asks, tokens_in, tokens_out, dollars = judging.estimate()
    say(
        f"{judging.complete:,} judgments are there, {len(judging.pairs):,} are not: {asks:,} games "
        f"to ask, about {tokens_in:,.0f} tokens in and {tokens_out:,.0f} out"
    )
    if judging.price:
        paid = judging.bill.dollars(judging.price)
        say(f"about ${dollars:,.2f}; ${paid:,.2f} paid so far")
    else:
        say("no price of the judge is known ('prices' in the settings)")


def _tell_done(judging: Judging) -> int:
    from openrlhf_js.common.console import say

    still_open, bill = judging.write(), judging.bill
    cost = f", ${bill.dollars(judging.price):,.2f}" if judging.price else ""
    say(
        f"paid for these models in all: {bill.replies:,} replies, {bill.prompt_tokens:,} tokens in "
        f"and {bill.completion_tokens:,} out{cost}"
    )
    if judging.lost:
        say(f"{len(judging.lost):,} games have no reply: {next(iter(judging.lost.values()))}")
    if given_up := judging.without_verdict():
        say(f"{given_up:,} games are recorded without a verdict (--retry_failed asks them again)")
    if judging.out_of_money:
        say("the budget allows no more games; the same command with a larger one resumes")
    if still_open:
        say(f"{still_open:,} judgments are open; the same command resumes")
    return still_open


class PoolSettings(BenchSettings):
    """What is scored, and how."""

    bench: str = Field(description="what was judged, a folder in --data")
    judge: Names = Field((), description="whose judgments; default: the only one there")
    models: Names = Field((), description="show only these; default: all")
    category: Names = Field((), description="only these; default: all judged")
    baseline: str = Field("", description="instead of the bench's")
    ci: Literal["clustered", "official"] = Field(
        "clustered", description="95 %, by question; or by row, as the bench's own script has it"
    )
    style_control: Names = Field(
        ("none",),
        description="all, length, markdown, header, list, bold, or sums such as length+bold; each "
        "gives a table, fitted over all models that were judged",
    )
    count_style: bool = Field(False, description="count the style of answers without counts")
    compare: Annotated[tuple[tuple[str, str], ...], tyro.conf.UseAppendAction] = Field(
        (), description="a test of A against B, paired by question; may be repeated"
    )
    much_weight: float = Field(
        3.0, gt=0, allow_inf_nan=False, description="rows of a verdict of much better; official: 3"
    )
    seed: int = Field(0, ge=0, description="of the bootstrap of --ci official")
    rounds: int = Field(100, ge=2, description="of the same bootstrap")


def _flag(name: str) -> Any:
    return tyro.conf.arg(name=name)


class ScoreSettings(PoolSettings):
    """Score what judges have judged: the share of weighted rows that each model won.

    Several judges are shown apart and pooled. A paired comparison sees much smaller differences
    than two intervals side by side.

    exit status: 0 done, 1 a file cannot be written, 2 bad input, 130 stopped
    """

    json_file: Annotated[Path | None, _flag("json")] = Field(None, description="all figures")
    csv: Path | None = Field(None, description="the same as a table")
    markdown: Path | None = Field(None, description="the tables and what to know of them")
    figure: Path | None = Field(None, description="scores with intervals, as PNG")
    html: Path | None = Field(None, description="the page of `show`")


class ShowSettings(PoolSettings):
    """Open a page with the leaderboards, and every question with its answers and verdicts.

    exit status: 0 done, 1 a file cannot be written, 2 bad input, 130 stopped
    """

    page: tyro.conf.Positional[Path | None] = Field(None, description="of score --html")
    bench: str = Field("", description="or make a page of this bench")
    html: Path | None = Field(None, description="where; default: arena.html in the bench's folder")


def score(argv: list[str]) -> int:
    """`eval arena score`."""
    settings = parse(ScoreSettings, f"{PROG} score", argv)
    return run(f"{PROG} score", lambda: _score(settings))


def _score(settings: ScoreSettings) -> int:
    from openrlhf_js.common.console import say, table
    from openrlhf_js.common.files import atomic_write
    from openrlhf_js.evaluation.arena import page

    pools, boards, compared = _boards(settings)
    for board in boards:
        say(board.title, style="bold")
        table(page.cells(board))
        for line in (f"Intervals: {board.interval}.", *board.notes, ""):
            say(line)
    for sentence in compared:
        say(sentence)
    texts: dict[Path | None, Callable[[], bytes]] = {
        settings.json_file: lambda: page.as_json(boards).encode(),
        settings.csv: lambda: page.as_csv(boards).encode(),
        settings.markdown: lambda: page.as_markdown(boards, compared).encode(),
        settings.figure: lambda: page.image(boards, "png"),
        settings.html: lambda: page.page_of(pools, boards, compared).encode(),
    }
    for path, made in texts.items():
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                file.write(made())
            say(f"wrote {path}", error=True)
    return 0


def _boards(settings: PoolSettings) -> tuple[list[Pool], list[Board], list[str]]:
    """What was judged, leaderboards of each judge and of all pooled, and comparisons."""
    from openrlhf_js.common.console import say
    from openrlhf_js.evaluation.arena import score, style
    from openrlhf_js.evaluation.arena.data import file_name

    folder = settings.folder
    judges = [file_name(name) for name in settings.judge] or folder.judges()
    if not settings.judge and len(judges) != 1:
        raise ValueError(f"--judge says whose judgments; {folder.root} has {judges or 'none'}")
    count_tokens = style.load_tokenizer(settings.bench) if settings.count_style else None
    pools = score.load(folder, judges, settings.category, settings.baseline, count_tokens)
    models = [file_name(name) for name in settings.models]
    boards, sentences, problems = [], [], []
    for pool in pools:
        alone = [[name] for name in judges if name in pool.judges]
        for names in [*alone, pool.judges] if len(alone) > 1 else alone:
            for control in settings.style_control:
                how = ("ci", "much_weight", "seed", "rounds")
                given = {name: getattr(settings, name) for name in how}
                plan = score.Plan(**given, style_control=control)
                try:
                    boards.append(score.board(pool, names, plan, models))
                    for a, b in settings.compare:
                        found = score.compare(pool, names, plan, file_name(a), file_name(b))
                        sentences.append(found.sentence(boards[-1].title))
                except ValueError as error:  # another category may have it
                    problems.append(str(error))
    if problems and (not boards or (settings.compare and not sentences)):
        raise ValueError(problems[0])
    for problem in problems:
        say(f"note: {problem}", error=True)
    if len(sentences) >= MANY_COMPARISONS:
        sentences.append(
            f"Of these {len(sentences)} comparisons about {0.05 * len(sentences):.2g} would have "
            f"p < 0.05 by chance: ask for p < {0.05 / len(sentences):.2g}."
        )
    return pools, boards, sentences


def show(argv: list[str]) -> int:
    """`eval arena show`."""
    settings = parse(ShowSettings, f"{PROG} show", argv)
    return run(f"{PROG} show", lambda: _show(settings))


def _show(settings: ShowSettings) -> int:
    from openrlhf_js.common.console import say
    from openrlhf_js.common.files import atomic_write
    from openrlhf_js.evaluation.arena.page import page_of

    if (settings.page is None) == (not settings.bench):
        raise ValueError("name a PAGE, or a --bench to make one of")
    path = settings.page or settings.html or settings.folder.root / "arena.html"
    if settings.bench:
        text = page_of(*_boards(settings))
        with atomic_write(path) as file:
            file.write(text.encode())
    path.stat()  # before a browser says in its own way that it is not there
    say(f"page: {path}", error=True)
    if not webbrowser.open(path.resolve().as_uri()):
        say("no browser was found: open the page by hand", error=True)
    return 0
