"""One call of judging: who judges what, and how, from settings and what is asked for besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench, bench_of
from openrlhf_js.evaluation.arena.benches import Judge as OfficialJudge
from openrlhf_js.evaluation.arena.files import Folder, read_questions
from openrlhf_js.evaluation.arena.games import Ask, Judge, select
from openrlhf_js.evaluation.arena.judge_prompts import Prompt, prompts
from openrlhf_js.evaluation.arena.ledger import Ledger
from openrlhf_js.evaluation.arena.lines import Warn
from openrlhf_js.evaluation.arena.prices import Worst, dollars
from openrlhf_js.evaluation.arena.protocol import Run, run_of
from openrlhf_js.evaluation.arena.records import Question, file_name
from openrlhf_js.evaluation.arena.settings import JudgeSettings, Price
from openrlhf_js.evaluation.arena.thinking import part
from openrlhf_js.evaluation.arena.verdict import PATTERNS, parse_verdict
from openrlhf_js.evaluation.rates import Limits

BENCH = "arena-hard-v2.0"  # where nothing else is said
TOKENS_AROUND = 100  # of a prompt besides its texts, at most: roles, ends of messages
LEDGERS = "judge_ledger"  # beside model_judgment, where other programs look for judgments only
UNKNOWN_JUDGE = OfficialJudge("", 0.0, 16000)  # what a judge gets that nothing is said about


class Wanted(NamedTuple):
    """What a caller asks for; None and empty leave it to the settings, or to the bench.

    Attributes:
        judge: the endpoint's name of it.
        judge_name: of its folder of judgments.
    """

    data: Path
    bench: str | None = None
    models: Sequence[str] = ()
    categories: Sequence[str] = ()
    baseline: str = ""
    judge: str | None = None
    judge_name: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_tokens_name: str | None = None
    seed: int | None = None
    concurrency: int | None = None
    timeout_seconds: float | None = None


class Job(NamedTuple):
    """What is to be judged, and how.

    Attributes:
        run: for the record.
        questions: all of the bench, by uid.
        wanted: those of the categories that are judged.
        models: as their files are called.
        patterns: that find a verdict.
        price: None where nobody knows it.
    """

    folder: Folder
    bench: Bench
    judge: Judge
    run: Run
    questions: Mapping[str, Question]
    wanted: Mapping[str, Question]
    models: Sequence[str]
    patterns: Sequence[str]
    price: Price | None
    limits: Limits

    def ledger(self, warn: Warn, *, write: bool) -> Ledger:
        """The judge's ledger; to be closed."""

        def verdict_of(text: str) -> str | None:
            try:
                return parse_verdict(part(text).text, self.patterns)  # thoughts are no verdict
            except ValueError as error:  # a pattern takes too long: that game stays open
                warn(str(error))
                return None

        path = self.folder.root / LEDGERS / f"{file_name(self.judge.name)}.jsonl"
        return Ledger(path, verdict_of, warn, write=write)

    def worst(self, ask: Ask) -> Worst:
        """The most that one reply can cost; a token of a text has at least a byte."""
        prompt, said = ask.prompt_bytes + TOKENS_AROUND, self.judge.parameters["max_tokens"]
        return Worst(prompt, said, dollars(self.price, prompt, said) if self.price else 0.0)


def job_of(wanted: Wanted, settings: JudgeSettings | None, warn: Warn) -> Job:
    """The job that these ask for together.

    Args:
        wanted: comes before the settings.
        settings: None: the judge is asked as it is officially, if it is an official one.
        warn: told of what is wrong with the questions' file.

    Raises:
        ValueError: something is not said, or not there; says what to do.
        OSError: a file cannot be read.
    """
    bench_name = wanted.bench or (settings.bench_name if settings else "") or BENCH
    bench = bench_of(bench_name, wanted.baseline or (settings.baselines if settings else ""))
    settings = _with(wanted, settings or _official(bench, wanted.judge or ""))
    models = [file_name(name) for name in wanted.models or settings.model_list]
    if not models:
        raise ValueError("--models says whose answers to judge; or name them in the settings")
    folder = Folder(wanted.data, bench_name)
    questions = _questions(folder, warn)
    selected = select(questions, wanted.categories)
    categories = dict.fromkeys(each.category for each in selected.values())
    told = prompts(folder, bench, categories, settings)
    model, name = settings.judge_model, file_name(wanted.judge_name or settings.judge_model)
    parameters: dict[str, Any] = {
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "seed": wanted.seed,
    }
    return Job(
        folder=folder,
        bench=bench,
        judge=Judge(name, model, _given(parameters), told, settings.max_tokens_name),
        run=_run(bench, name, settings, told),
        questions=questions,
        wanted=selected,
        models=models,
        patterns=settings.regex_patterns,
        price=settings.prices.get(model) or settings.prices.get(name),
        limits=settings.limits,
    )


def _run(bench: Bench, name: str, settings: JudgeSettings, told: Mapping[str, Prompt]) -> Run:
    found = run_of(
        bench, name, settings.judge_model, settings.temperature, settings.max_tokens, told
    )
    other = [pattern for pattern in settings.regex_patterns if pattern not in PATTERNS]
    said = (f"verdicts are found by other patterns: {', '.join(other)}",) if other else ()
    return found._replace(deviations=(*found.deviations, *said))


def _official(bench: Bench, judge: str) -> JudgeSettings:
    """The settings of a judge where there are none: the official ones, if it is official."""
    same = [each for each in bench.judges if each.name == file_name(judge)]
    found = same[0] if same else UNKNOWN_JUDGE
    return JudgeSettings(judge, max_tokens=found.max_tokens, temperature=found.temperature)


def _with(wanted: Wanted, settings: JudgeSettings) -> JudgeSettings:
    """The settings, but for what the caller asks for."""
    limits = {name: getattr(wanted, name) for name in ("concurrency", "timeout_seconds")}
    own = {
        "judge_model": wanted.judge,
        "temperature": wanted.temperature,
        "max_tokens": wanted.max_tokens,
        "max_tokens_name": wanted.max_tokens_name,
        "limits": replace(settings.limits, **_given(limits)),
    }
    return replace(settings, **_given(own))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _questions(folder: Folder, warn: Warn) -> dict[str, Question]:
    if not folder.questions.is_file():
        raise ValueError(
            f"{folder.questions}: no such file; `openrlhf-js eval arena fetch` gets the questions "
            "of the official benches, and --data and --bench name the folder that has them"
        )
    return read_questions(folder.questions, warn)
