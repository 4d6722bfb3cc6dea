"""All that judges have judged, read from a folder and sorted by category, without the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from openrlhf_js.evaluation.arena.benches import BENCHES, Bench, bench_of
from openrlhf_js.evaluation.arena.files import Folder, read_answers, read_questions
from openrlhf_js.evaluation.arena.lines import Progress, Warn
from openrlhf_js.evaluation.arena.records import (
    Answer,
    Game,
    Judgment,
    Question,
    Style,
    file_name,
)
from openrlhf_js.evaluation.arena.rows import Table, table
from openrlhf_js.evaluation.arena.schemas import style as style_of
from openrlhf_js.evaluation.arena.stale import read_and_tell
from openrlhf_js.evaluation.arena.style import CountTokens, metadata


class Pool(NamedTuple):
    """One category: everything that some judges judged against one baseline."""

    category: str
    judged: Table
    questions: int
    """Of the category in the questions' file; 0 where there is no such file."""
    styles: Mapping[str, Mapping[str, Style]]
    """By model, the baseline included, and uid; only answers that are counted."""
    bench: Bench


def judgment_files(folder: Folder, judges: Iterable[str]) -> dict[str, list[Path]]:
    """The files of each judge.

    Raises:
        ValueError: a judge without any.
    """
    found = {}
    for judge in judges:
        found[judge] = sorted(folder.judged_by(judge).glob("*.jsonl"))
        if not found[judge]:
            there = ", ".join(folder.judges()) or "none"
            raise ValueError(
                f"no judgments by {judge} in {folder.root / 'model_judgment'}; judges there: "
                f"{there}. Name one of these, or judge first (openrlhf-js eval arena judge)"
            )
    return found


def load(
    folder: Folder,
    judges: Sequence[str],
    *,
    warn: Warn,
    categories: Sequence[str] = (),
    baseline: str = "",
    count_tokens: CountTokens | None = None,
    progress: Progress = lambda files: None,
) -> list[Pool]:
    """Read what the judges said.

    Left out, with a line each: questions that the questions' file does not have, categories that
    the bench does not have or that were judged against another baseline only, judgments against
    another baseline, those that another file has too, and those that a judge made of itself, as the
    official scripts do.

    Args:
        folder: of the bench.
        judges: at least one; their judgments stay apart in the table.
        warn: told of each problem.
        categories: those wanted; none: all that were judged.
        baseline: what all categories are compared with; "": the bench's own, and for a bench of
            one's own the one that was judged against.
        count_tokens: counts the style of answers whose file has no counts; None: they have none.
        progress: told how many files have been read.

    Raises:
        ValueError: nothing to score, or not clear against which baseline.
        OSError: a file cannot be read.
    """
    files = judgment_files(folder, judges)
    questions = read_questions(folder.questions, warn) if folder.questions.is_file() else {}
    if not questions:
        warn(f"{folder.questions}: no questions, so it is not known whether all were judged")
    read = _Reader(folder, warn, progress)
    judgments = read.judgments(files, questions)
    bench = _bench(folder.bench, baseline, judgments)
    seen = list(dict.fromkeys(each.category for each in judgments))
    if strange := [name for name in categories if name not in seen]:
        raise ValueError(
            f"no judgment in the category {strange[0]!r}; judged were {', '.join(seen) or 'none'}"
        )
    tables, elsewhere = {}, []
    for name in categories or _known(bench, seen, warn):
        own = [each for each in judgments if each.category == name]
        against = file_name(bench.category(name).baseline)
        if only_others := _only_others(against, own):
            elsewhere.append(only_others)
        else:
            tables[name] = table(_against(against, own, warn), against)
    if elsewhere and not tables:
        raise ValueError(elsewhere[0])
    for line in elsewhere:
        warn(f"no table of this: {line}")
    if not tables:
        raise ValueError(f"the files of {', '.join(judges)} hold no judgment that can be used")
    models = {name for judged in tables.values() for name in (judged.baseline, *judged.models)}
    styles = {model: read.styles(model, count_tokens) for model in sorted(models)}
    counts = Counter(each.category for each in questions.values())
    return [Pool(name, judged, counts[name], styles, bench) for name, judged in tables.items()]


class _Reader:
    """Reads files, and counts them."""

    def __init__(self, folder: Folder, warn: Warn, progress: Progress):
        self.folder, self.warn, self.progress, self.files = folder, warn, progress, 0
        self._read: dict[str, dict[str, Answer]] = {}

    def judgments(
        self, files: Mapping[str, Sequence[Path]], questions: Mapping[str, Question]
    ) -> list[Judgment]:
        """What counts of all files, without the texts, which no score needs."""
        found: dict[tuple[str, str, str], Judgment] = {}
        judges = {file_name(judge) for judge in files}
        of_file: dict[tuple[str, str, str], Path] = {}

        def texts(judgment: Judgment) -> tuple[str, ...]:
            question, model = questions.get(judgment.uid), file_name(judgment.model)
            if not question or not judgment.baseline or model in judges:
                return ()
            names = (model, file_name(judgment.baseline))
            answers = [self.answers(name).get(judgment.uid) for name in names]
            found = [question.prompt, *(answer.text for answer in answers if answer)]
            return tuple(found) if all(answers) else ()

        for judge, path in ((judge, path) for judge, paths in files.items() for path in paths):
            strange: list[str] = []
            again: list[str] = []
            read, _ = read_and_tell(path, texts, self.warn)
            if not read:
                self.warn(f"{path}: no judgment that can be read")
            for each in read:
                model = file_name(each.model)
                if questions and each.uid not in questions:
                    strange.append(each.uid)
                    continue
                if model in judges:
                    continue
                key = (judge, model, each.uid)
                other = of_file.get(key)
                if other:
                    again.append(f"{model!r:.60} in {other.name} (the first is {each.uid!r:.60})")
                if other is None or path.stem == model:
                    of_file[key] = path
                    first, second = (game and Game(game.verdict, "") for game in each.games)
                    found[key] = each._replace(judge=judge, model=model, games=(first, second))
            if path.stem in judges:
                self.warn(f"{path}: a judge's judgments of itself or its fellow are left out")
            if strange:
                self.warn(
                    f"{path}: {len(strange)} judgments are of no question (the first is of "
                    f"{strange[0]!r:.60}); they are left out"
                )
            if again:
                self.warn(
                    f"{path}: {len(again)} judgments are there twice, also as those of {again[0]}; "
                    "each counts once, from the file that has the model's name"
                )
            self._count()
        return list(found.values())

    def answers(self, model: str) -> dict[str, Answer]:
        """A model's answers by uid, without thoughts; none where there is no file."""
        if model not in self._read:
            path = self.folder.answers(model)
            found = read_answers(path, self.warn) if path.is_file() else {}
            self._read[model] = {uid: each._replace(thinking="") for uid, each in found.items()}
            self._count()
        return self._read[model]

    def styles(self, model: str, count_tokens: CountTokens | None) -> dict[str, Style]:
        """The counts of a model's answers; empty where they are not known."""
        path, answers = self.folder.answers(model), self.answers(model)
        if not answers:
            self.warn(f"{path}: no answers, so the length and style of {model} are not known")
        counted = {uid: each.style for uid, each in answers.items() if each.style is not None}
        without = [each for uid, each in answers.items() if uid not in counted]
        if without and count_tokens:
            for each in without:
                counts = style_of(metadata(each.text, count_tokens))
                assert counts
                counted[each.uid] = counts
        elif without:
            self.warn(
                f"{path}: {len(without)} of {len(answers)} answers have no counts of tokens and "
                "markup (metadata); --count_style counts them"
            )
        return counted

    def _count(self) -> None:
        self.files += 1
        self.progress(self.files)


def _known(bench: Bench, seen: Sequence[str], warn: Warn) -> list[str]:
    """The categories that the bench has, in its order.

    Raises:
        ValueError: it has none of them.
    """
    known = [name for name in seen if bench.baseline or name in bench.categories]
    if seen and not known:
        bench.category(seen[0])
    if strange := [name for name in seen if name not in known]:
        warn(
            f"judgments of {strange[0]!r:.60} are left out: {bench.name} has the categories "
            f"{', '.join(bench.categories)}"
        )
    return sorted(known, key=[*bench.categories, *seen].index)


def _bench(name: str, baseline: str, judgments: Sequence[Judgment]) -> Bench:
    """The bench; one's own takes the baselines that were judged against."""
    if baseline or name in BENCHES:
        return bench_of(name, baseline)
    seen: dict[str, set[str]] = {}
    for each in judgments:
        seen.setdefault(each.category, set()).add(each.baseline)
    for category, baselines in seen.items():
        if len(baselines) > 1 or "" in baselines:
            raise ValueError(
                f"judgments of {category} do not say against which model, or are against several "
                f"({', '.join(sorted(baselines - {''}))}): name it with --baseline"
            )
    return bench_of(name, {category: baselines.pop() for category, baselines in seen.items()})


def _only_others(baseline: str, judgments: Sequence[Judgment]) -> str:
    """What to do where all judgments of a category are against another baseline; "" otherwise."""
    others = Counter(file_name(each.baseline or baseline) for each in judgments)
    if baseline in others:
        return ""
    category = judgments[0].category
    return (
        f"no judgment of {category} is against {baseline}, but {_said(others)}: score with "
        f"--category {category} --baseline {others.most_common(1)[0][0]}"
    )


def _against(baseline: str, judgments: Sequence[Judgment], warn: Warn) -> list[Judgment]:
    """Those against this baseline, of other models; says what is left out."""
    named = [each._replace(baseline=file_name(each.baseline or baseline)) for each in judgments]
    others = Counter(each.baseline for each in named if each.baseline != baseline)
    if others:
        warn(f"{named[0].category}: left out, since not against {baseline}: {_said(others)}")
    if any(each.model == baseline for each in named):
        warn(f"{named[0].category}: judgments of the baseline {baseline} itself are left out")
    return [each for each in named if each.baseline == baseline != each.model]


def _said(others: Counter[str]) -> str:
    return ", ".join(f"{count} against {other}" for other, count in others.most_common(3))
