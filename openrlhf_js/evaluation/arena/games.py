"""Which games are still to be judged, and what the judge is asked in each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench
from openrlhf_js.evaluation.arena.files import Folder, only_known, read_answers
from openrlhf_js.evaluation.arena.judge_prompts import Prompt, messages
from openrlhf_js.evaluation.arena.ledger import key_of
from openrlhf_js.evaluation.arena.lines import Warn
from openrlhf_js.evaluation.arena.records import Answer, Game, Judgment, Question, file_name
from openrlhf_js.evaluation.arena.stale import judgments_of_now

Messages = list[dict[str, str]]


class Judge(NamedTuple):
    """Who judges, and what it is told.

    Attributes:
        name: of its folder of judgments.
        model: what the endpoint is asked for.
        parameters: sent with every request: max_tokens, and perhaps temperature and seed.
        prompts: by category.
        max_tokens_name: what the endpoint calls max_tokens. It changes nothing in what is asked,
            so the ledger's keys do not have it.
    """

    name: str
    model: str
    parameters: Mapping[str, Any]
    prompts: Mapping[str, Prompt]
    max_tokens_name: str = "max_tokens"


class Pair(NamedTuple):
    """One model's answer to one question, to be compared with the baseline's in two games."""

    question: Question
    answer: Answer
    baseline: Answer
    known: tuple[Game | None, Game | None]
    """Games that another program has judged already; None where it has not, or without verdict."""

    def messages(self, judge: Judge, game: int) -> Messages:
        """What the judge is asked; in game 0 A is the baseline, in game 1 A is the model."""
        prompt = judge.prompts[self.question.category]
        shown = (self.baseline.text, self.answer.text)
        first, second = shown if game == 0 else shown[::-1]
        return messages(prompt, self.question.prompt, first, second)


@dataclass
class Ask:
    """What the judge is asked once, for one game or for several with the same messages.

    Attributes:
        key: of the ledger.
        prompt_bytes: of the messages.
        games: each a pair, by its number in the plan, and the game, 0 or 1.
    """

    key: str
    prompt_bytes: int
    games: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Plan:
    """What is to be done.

    Attributes:
        pairs: those that lack a judgment with two verdicts, model by model.
        asks: by key, in the order of the pairs; those that the ledger has are among them.
        complete: how many pairs have their judgment already.
        missing: how many pairs cannot be judged, since an answer is missing.
    """

    pairs: list[Pair] = field(default_factory=list)
    asks: dict[str, Ask] = field(default_factory=dict)
    complete: int = 0
    missing: int = 0


def plan(
    folder: Folder,
    bench: Bench,
    judge: Judge,
    questions: Mapping[str, Question],
    wanted: Mapping[str, Question],
    models: Sequence[str],
    warn: Warn,
) -> Plan:
    """The games of these models that have no verdict yet.

    Args:
        folder: has the answers, and the judgments so far.
        bench: has the baselines.
        judge: knows the prompts of the categories of `wanted`.
        questions: all of the bench, by uid.
        wanted: those to be judged.
        models: whose answers are judged.
        warn: gets a line for each file that lacks answers, and for each line that cannot be read.
    """
    found = Plan()
    files = _Answers(folder, questions, warn)
    for name in dict.fromkeys(map(file_name, models)):
        if name in (judge.name, file_name(judge.model)):
            warn(f"{name} is the judge: what it says of itself is not scored, and not asked for")
            continue
        path = folder.judgments(judge.name, name)
        judged = judgments_of_now(path, partial(_texts, bench, wanted, name, files), warn)
        for category, own in _by_category(wanted).items():
            against = file_name(bench.category(category).baseline)
            if against == name:
                warn(f"{name} is the baseline of {category}, and not compared with itself")
                continue
            _add(found, files, judge, judged, name, against, own)
    return found


def select(questions: Mapping[str, Question], categories: Collection[str]) -> dict[str, Question]:
    """The questions of these categories; of all if none is named.

    Raises:
        ValueError: a category without questions, or no question at all.
    """
    counts = Counter(question.category for question in questions.values())
    for name in categories:
        if not counts[name]:
            raise ValueError(
                f"no question is of the category {name!r}; there are "
                f"{', '.join(f'{each} ({count})' for each, count in counts.items()) or 'none'}"
            )
    if not questions:
        raise ValueError("the questions' file holds no question that can be read")
    return {
        uid: question
        for uid, question in questions.items()
        if not categories or question.category in categories
    }


class _Answers:
    """Models' answers by uid; each file is read once, and what it lacks is said once."""

    def __init__(self, folder: Folder, questions: Mapping[str, Question], warn: Warn):
        self._folder, self._questions, self.warn = folder, questions, warn
        self._read: dict[str, dict[str, Answer]] = {}
        self._said: set[tuple[str, str]] = set()

    def of(self, model: str) -> dict[str, Answer]:
        if model not in self._read:
            path = self._folder.answers(model)
            found = read_answers(path, self.warn) if path.is_file() else {}
            self._read[model] = only_known(found, self._questions, path, self.warn)
        return self._read[model]

    def lack(self, model: str, category: str, uids: Sequence[str]) -> None:
        """Says which answers are missing."""
        if not uids or (model, category) in self._said:
            return
        self._said.add((model, category))
        path = self._folder.answers(model)
        state = "" if path.is_file() else " (there is no such file)"
        self.warn(
            f"{path}: {len(uids)} of the {category} questions have no answer{state}, the first is "
            f"{uids[0]!r:.60}; they are not judged until they have one (openrlhf-js eval arena "
            "generate, or fetch for a baseline)"
        )


def _add(
    found: Plan,
    files: _Answers,
    judge: Judge,
    judged: Mapping[str, Judgment],
    model: str,
    against: str,
    questions: Sequence[Question],
) -> None:
    """Adds the pairs of one model and one category."""
    answers, baselines = files.of(model), files.of(against)
    files.lack(model, questions[0].category, [q.uid for q in questions if q.uid not in answers])
    files.lack(against, questions[0].category, [q.uid for q in questions if q.uid not in baselines])
    for question in questions:
        before = judged.get(question.uid)
        known = _known(before, against)
        if all(known):
            found.complete += 1
        elif question.uid in answers and question.uid in baselines:
            answer = answers[question.uid]._replace(model=model)
            baseline = baselines[question.uid]._replace(model=against)
            _add_pair(found, judge, Pair(question, answer, baseline, known))
        else:
            found.missing += 1


def _add_pair(found: Plan, judge: Judge, pair: Pair) -> None:
    number = len(found.pairs)
    found.pairs.append(pair)
    for game in (0, 1):
        if pair.known[game]:
            continue
        asked = pair.messages(judge, game)
        key = key_of(judge.model, judge.parameters, asked)
        size = sum(len(each["content"].encode(errors="replace")) for each in asked)
        found.asks.setdefault(key, Ask(key, size)).games.append((number, game))


def _texts(
    bench: Bench,
    wanted: Mapping[str, Question],
    model: str,
    files: _Answers,
    judgment: Judgment,
) -> tuple[str, ...]:
    """The question and both answers of a judgment as they are now; none where some is missing."""
    question = wanted.get(judgment.uid)
    against = file_name(bench.category(question.category).baseline) if question else ""
    if not question or not any(_known(judgment, against)):
        return ()
    answers = [files.of(name).get(judgment.uid) for name in (model, against)]
    found = [question.prompt, *(answer.text for answer in answers if answer)]
    return tuple(found) if all(answers) else ()


def _known(before: Judgment | None, against: str) -> tuple[Game | None, Game | None]:
    """The games with a verdict, against the same baseline."""
    if before is None or file_name(before.baseline or against) != against:
        return None, None
    first, second = (game if game and game.verdict else None for game in before.games)
    return first, second


def _by_category(questions: Mapping[str, Question]) -> dict[str, list[Question]]:
    found: dict[str, list[Question]] = {}
    for question in questions.values():
        found.setdefault(question.category, []).append(question)
    return found
