"""Games of a judge: a model's answer and the baseline's to one question, shown in both orders.

    judge_ledger/JUDGE/CATEGORY.jsonl   every reply that was paid for, and every refusal

A game's key is the hash of its settings and messages: the same call after a kill, or another model
with the same answer, finds the reply that is there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from answer_graders.programs.console import say
from answer_graders.programs.store import Record, Store
from paired_eval.arena import data, protocol, verdicts

TRIES = 2  # replies without a verdict before a game is given up


class Ledger:
    """The replies of one judge in one category.

    A game is given up after `TRIES` replies without a verdict (with `retry`, only those of this
    call count), or at once if the endpoint refused it.
    """

    def __init__(self, store: Store, prompt: protocol.JudgePrompt, retry: bool):
        self.store = store
        self.prompt = prompt
        self.settings_hash = protocol.digest(store.identity)
        self.baseline: str = store.identity["baseline"]
        self.replies: dict[str, list[Record]] = defaultdict(list)  # by the key of their game
        for record in store.records.values():
            self.replies[record["game"]].append(record)
        self._forgiven: dict[str, int] = {}  # by game: replies that do not count as tries
        if retry:
            self._forgiven = {key: len(records) for key, records in self.replies.items()}

    def add(self, records: Sequence[Record]) -> None:
        """Writes replies to disk, at most one for each game in a call."""
        for record in records:
            record["attempt"] = len(self.replies[record["game"]])
            record["tstamp"] = time.time()
        self.store.append(records)
        for record in records:
            self.replies[record["game"]].append(record)

    def outcome(self, key: str) -> data.GameResult | str | None:
        """How a game ended: its result or the endpoint's refusal; None while it is open."""
        replies = self.replies.get(key, [])
        for record in replies:
            result = _result(record["text"])
            if result.unquoted:
                return result
        counted = replies[self._forgiven.get(key, 0) :]
        for record in counted:
            if "refused" in record:
                return str(record["refused"])
        return _result(counted[-1]["text"]) if len(counted) >= TRIES else None


@cache
def _result(text: str) -> data.GameResult:
    """A reply with its verdicts."""
    return data.GameResult(
        text=text,
        unquoted=verdicts.unquoted_verdict(text),
        official=verdicts.official_verdict(text),
    )


@dataclass(frozen=True, eq=False)
class Game:
    """One comparison of two answers; A is the baseline's on side 1, and the model's on side 2."""

    ledger: Ledger
    question: data.Question
    model: str
    side: int
    answer_a: str
    answer_b: str

    @property
    def messages(self) -> protocol.Messages:
        """What the judge is asked."""
        return self.ledger.prompt.messages(self.question.prompt, self.answer_a, self.answer_b)

    @cached_property
    def key(self) -> str:
        """The hash of its settings and messages."""
        return protocol.digest([self.ledger.settings_hash, self.messages])

    @property
    def outcome(self) -> data.GameResult | str | None:
        """As `Ledger.outcome`."""
        return self.ledger.outcome(self.key)

    @property
    def prompt_bytes(self) -> int:
        """The length of the messages."""
        contents = [message["content"] for message in self.messages]
        return sum(len(content.encode(errors="replace")) for content in contents)

    def record(self) -> Record:
        """The fields of its record that are known before a reply."""
        return {
            "game": self.key,
            "model": self.model,
            "uid": self.question.uid,
            "side": self.side,
            "prompt_bytes": self.prompt_bytes,
        }


class AnswerPair:
    """A model's answer and the baseline's to one question, in two games."""

    def __init__(
        self, ledger: Ledger, question: data.Question, model: str, answer: str, baseline: str
    ):
        self.ledger = ledger
        self.question = question
        self.model = model
        self.answer = answer
        self.games = (
            Game(ledger, question, model, side=1, answer_a=baseline, answer_b=answer),
            Game(ledger, question, model, side=2, answer_a=answer, answer_b=baseline),
        )

    @property
    def open_games(self) -> list[Game]:
        """The games that have neither a verdict nor been given up."""
        return [game for game in self.games if game.outcome is None]

    @property
    def refusals(self) -> list[str]:
        """The endpoint's words for each game that it refused."""
        return [game.outcome for game in self.games if isinstance(game.outcome, str)]

    def judgment(self, judge: str) -> data.Judgment:
        """The judgment, once no game is open."""
        first, second = (game.outcome for game in self.games)
        return data.Judgment(
            uid=self.question.uid,
            category=self.question.category,
            judge=judge,
            model=self.model,
            baseline=self.ledger.baseline,
            games=(
                first if isinstance(first, data.GameResult) else None,
                second if isinstance(second, data.GameResult) else None,
            ),
            settings=self.ledger.settings_hash,
        )


def pairs_of(
    folder: data.Folder,
    ledger: Ledger,
    model: str,
    questions: Sequence[data.Question],
    judged: Mapping[str, data.Judgment],
) -> list[AnswerPair]:
    """The pairs of a model's answers and the baseline's to questions of one category.

    Pairs that another program judged completely are left out. Questions that lack an answer to
    their present text are counted in a warning. ValueError for judgments against another baseline.
    """
    answers = _answers(folder, model, questions)
    baseline_answers = _answers(folder, ledger.baseline, questions)
    pairs = []
    missing = 0
    for question in questions:
        uid = question.uid
        judgment = judged.get(uid)
        if judgment and judgment.baseline not in ("", ledger.baseline):
            raise ValueError(
                f"{uid} of {model} was judged against {judgment.baseline}, not {ledger.baseline}; "
                "--judge_name keeps the new judgments apart"
            )
        if judgment and judgment.complete and not judgment.settings:
            continue
        if uid in answers and uid in baseline_answers:
            pairs.append(AnswerPair(ledger, question, model, answers[uid], baseline_answers[uid]))
        else:
            missing += 1
    if missing:
        say(
            f"{missing} questions lack an answer of {model} or {ledger.baseline} to their present "
            "text, and are not judged (generate or fetch them)",
            error=True,
        )
    return pairs


def _answers(folder: data.Folder, model: str, questions: Sequence[data.Question]) -> dict[str, str]:
    """A model's answers by uid, without those to an earlier text of the question."""
    answers = data.read_answers(folder, model)
    texts = {}
    for question in questions:
        answer = answers.get(question.uid)
        if answer and answer.prompt in (None, question.prompt):
            texts[question.uid] = answer.text
    return texts
