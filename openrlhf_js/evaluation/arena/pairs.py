"""What a judge compares: a model's answer with the baseline's, in two games."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from openrlhf_js.common.store import Record
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.ledger import Ledger

log = logging.getLogger(__name__)

GAMES = (0, 1)


class Assignment(NamedTuple):
    """What is to be judged, by whom, and how."""

    folder: data.Folder
    bench: data.Bench
    judge: str  # its name in the results
    settings: protocol.JudgeSettings
    questions: Mapping[str, data.Question]
    models: Sequence[str]
    tries: int = 2  # replies without a verdict before a game is given up
    retry_failed: bool = False


@dataclass(frozen=True, eq=False)
class AnswerPair:
    """A model's answer and the baseline's to one question, in two games."""

    ledger: Ledger
    question: data.Question
    model: str
    answer: str
    baseline: str

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Hashes of both games' settings and messages."""
        settings = self.ledger.settings_hash
        return tuple(protocol.digest([settings, self.messages(game)]) for game in GAMES)

    def messages(self, game: int) -> protocol.Messages:
        """What the judge is asked; in game 0 A is the baseline, in game 1 A is the model."""
        question = self.question.prompt
        prompt = self.ledger.prompt
        if game == 0:
            return prompt.messages(question, self.baseline, self.answer)
        return prompt.messages(question, self.answer, self.baseline)

    @property
    def open_games(self) -> list[Game]:
        """The games that have neither a verdict nor been given up."""
        return [Game(self, number) for number in GAMES if self.ledger.is_open(self.keys[number])]

    @property
    def refusals(self) -> list[str]:
        """The words with which the endpoint refused games."""
        words = [self.ledger.refusal(key) for key in self.keys]
        return [refusal for refusal in words if refusal]

    def judgment(self, judge: str) -> data.Judgment:
        """Its judgment, once no game is open."""
        first, second = (self.ledger.game(key) for key in self.keys)
        return data.Judgment(
            uid=self.question.uid,
            category=self.question.category,
            judge=judge,
            model=self.model,
            baseline=self.ledger.baseline,
            games=(first, second),
            settings=self.ledger.settings_hash,
        )


class Game(NamedTuple):
    """One of the two games of a pair."""

    pair: AnswerPair
    number: int

    @property
    def key(self) -> str:
        """The hash of its settings and messages."""
        return self.pair.keys[self.number]

    @property
    def messages(self) -> protocol.Messages:
        """What the judge is asked."""
        return self.pair.messages(self.number)

    @property
    def prompt_bytes(self) -> int:
        """The length of what is asked."""
        contents = [message["content"] for message in self.messages]
        return sum(len(content.encode(errors="replace")) for content in contents)

    def record(self) -> Record:
        """What is recorded of it before there is a reply."""
        return {
            "game": self.key,
            "model": self.pair.model,
            "uid": self.pair.question.uid,
            "side": self.number + 1,
            "prompt_bytes": self.prompt_bytes,
        }


@dataclass
class PairsToJudge:
    """The pairs of answers to judge, and what was found beside them."""

    pairs: list[AnswerPair] = field(default_factory=list)
    judged_elsewhere: int = 0  # questions with a complete judgment of another program
    lost: dict[str, str] = field(default_factory=dict)  # why games got no reply in this call

    def add_model(
        self,
        assignment: Assignment,
        ledger: Ledger,
        questions: Sequence[data.Question],
        model: str,
    ) -> None:
        """Adds a model's answers to the questions of one category."""
        answers = _answers(assignment.folder, model, questions)
        baseline_answers = _answers(assignment.folder, ledger.baseline, questions)
        judged = _judged_elsewhere(
            path=assignment.folder.judgments(assignment.judge, model),
            baseline=ledger.baseline,
        )
        missing = 0
        for question in questions:
            uid = question.uid
            if uid in judged:
                self.judged_elsewhere += 1
            elif uid not in answers or uid not in baseline_answers:
                missing += 1
            else:
                pair = AnswerPair(
                    ledger=ledger,
                    question=question,
                    model=model,
                    answer=answers[uid],
                    baseline=baseline_answers[uid],
                )
                self.pairs.append(pair)
        if missing:
            log.warning(
                "%d questions lack an answer of %s or %s to their present text, and are not judged "
                "(generate or fetch them)",
                missing,
                model,
                ledger.baseline,
            )

    @property
    def open_pairs(self) -> list[AnswerPair]:
        """The pairs with a game to ask."""
        return [pair for pair in self.pairs if pair.open_games]

    @property
    def open_games(self) -> list[Game]:
        """The games to ask; one for all that show the judge the same."""
        games: dict[str, Game] = {}
        for pair in self.pairs:
            for game in pair.open_games:
                if game.key not in self.lost:
                    games.setdefault(game.key, game)
        return list(games.values())


def _answers(folder: data.Folder, model: str, questions: Sequence[data.Question]) -> dict[str, str]:
    """A model's answers by uid, without those to another text of their question."""
    answers = data.read_answers(folder, model)
    texts = {}
    for question in questions:
        answer = answers.get(question.uid)
        if answer and answer.prompt in (None, question.prompt):
            texts[question.uid] = answer.text
    return texts


def _judged_elsewhere(path: Path, baseline: str) -> set[str]:
    """The questions that another program judged completely; ValueError for another baseline."""
    judged = set()
    for uid, judgment in data.read_judgments(path).items():
        if judgment.baseline not in ("", baseline):
            raise ValueError(
                f"{path}: {uid} was judged against {judgment.baseline}, not {baseline}; "
                "--judge_name keeps the new judgments apart"
            )
        if not judgment.settings and judgment.complete:
            judged.add(uid)
    return judged
