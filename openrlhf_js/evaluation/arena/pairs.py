"""What a judge compares: a model's answer with the baseline's, in two games."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from openrlhf_js.common.store import Record
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.ledger import Ledger

log = logging.getLogger(__name__)

BOTH_GAMES = (0, 1)


@dataclass(frozen=True, eq=False)
class AnswerPair:
    """A model's answer and the baseline's to one question, in two games."""

    ledger: Ledger
    prompt: protocol.JudgePrompt
    question: data.Question
    model: str
    answer: str
    baseline: str
    turn: int
    """The game that is held where there is one for each question."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Hashes of both games' settings and messages; "" of one that is not held."""
        one_game = "games" in self.ledger.store.identity
        keys = []
        for game in BOTH_GAMES:
            key = protocol.digest([self.ledger.settings_hash, self.messages(game)])
            keys.append("" if one_game and game != self.turn else key)
        return tuple(keys)

    def messages(self, game: int) -> protocol.Messages:
        """What the judge is asked; in game 0 A is the baseline, in game 1 A is the model."""
        question = self.question.prompt
        if game == 0:
            return self.prompt.messages(question, self.baseline, self.answer)
        return self.prompt.messages(question, self.answer, self.baseline)

    @property
    def open_games(self) -> list[Game]:
        """The games that have neither a verdict nor been given up."""
        return [
            Game(self, number)
            for number, key in enumerate(self.keys)
            if key and self.ledger.is_open(key)
        ]

    @property
    def refusals(self) -> list[str]:
        """The words with which the endpoint refused games."""
        words = [self.ledger.refusal(key) for key in self.keys if key]
        return [refusal for refusal in words if refusal]

    def judgment(self) -> data.Judgment:
        """Its judgment, once no game is open."""
        identity = self.ledger.store.identity
        first, second = (self.ledger.game(key) if key else None for key in self.keys)
        return data.Judgment(
            uid=self.question.uid,
            category=self.question.category,
            judge=identity["judge"],
            model=self.model,
            baseline=identity["baseline"],
            games=(first, second),
            settings=self.ledger.settings_hash,
            asked=self.keys,
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
    """The pairs that have no judgment, and what was found beside them."""

    pairs: list[AnswerPair] = field(default_factory=list)
    complete: int = 0  # judgments that are there
    missing: int = 0  # questions without one of the two answers, but for those that failed
    outdated: dict[str, list[str]] = field(default_factory=dict)  # uids whose text is another now

    def add_model(
        self,
        folder: data.Folder,
        ledger: Ledger,
        prompt: protocol.JudgePrompt,
        questions: Sequence[data.Question],
        model: str,
    ) -> None:
        """Adds a model's answers to the questions of one category."""
        baseline = ledger.store.identity["baseline"]
        answers = self._current_answers(folder, model, questions)
        baseline_answers = self._current_answers(folder, baseline, questions)
        failed = data.failed_answers(folder, model) | data.failed_answers(folder, baseline)
        judgments = _complete_judgments(folder, ledger, questions, model)
        for number, question in enumerate(questions):
            uid = question.uid
            judgment = judgments.get(uid)
            if judgment and not judgment.settings:  # by another program
                self.complete += 1
                continue
            if uid not in answers or uid not in baseline_answers:
                self.missing += uid not in failed
                continue
            pair = AnswerPair(
                ledger=ledger,
                prompt=prompt,
                question=question,
                model=model,
                answer=answers[uid].text,
                baseline=baseline_answers[uid].text,
                turn=number % 2,
            )
            if judgment and judgment.asked == pair.keys:
                self.complete += 1
            else:
                self.pairs.append(pair)

    def _current_answers(
        self, folder: data.Folder, model: str, questions: Sequence[data.Question]
    ) -> dict[str, data.ModelAnswer]:
        """A model's answers by uid, without those to another text of their question."""
        current = {}
        answers = data.read_answers(folder, model)
        for question in questions:
            answer = answers.get(question.uid)
            if answer is None:
                continue
            if answer.answers(question):
                current[question.uid] = answer
            else:
                self.outdated.setdefault(model, []).append(question.uid)
        return current


def _complete_judgments(
    folder: data.Folder, ledger: Ledger, questions: Sequence[data.Question], model: str
) -> dict[str, data.Judgment]:
    """A judge's complete judgments of a model by uid; ValueError if any was made otherwise."""
    identity = ledger.store.identity
    path = folder.judgments(identity["judge"], model)
    judgments = data.read_judgments(path)
    complete = {}
    for question in questions:
        judgment = judgments.get(question.uid)
        if judgment is None:
            continue
        same_baseline = judgment.baseline in ("", identity["baseline"])
        same_settings = judgment.settings in ("", ledger.settings_hash)
        if not (same_baseline and same_settings):
            raise ValueError(
                f"{path}: {question.uid} was judged with other settings, or another baseline; "
                "--judge_name keeps the new judgments apart"
            )
        if not judgment.missing:
            complete[question.uid] = judgment
    return complete
