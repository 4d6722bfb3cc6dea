"""The official repository's folder and files, read without losing a line and only ever added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from openrlhf_js.evaluation.arena import schemas
from openrlhf_js.evaluation.arena.appending import line_of
from openrlhf_js.evaluation.arena.lines import Twice, Warn, records
from openrlhf_js.evaluation.arena.records import Answer, Judgment, Question, file_name
from openrlhf_js.evaluation.arena.thinking import part

Messages = list[dict[str, str]]
T = TypeVar("T")
R = TypeVar("R", Question, Answer)


class Folder(NamedTuple):
    """Where the files of a bench are: `data/BENCH/...`, as in the official repository."""

    data: Path
    bench: str

    @property
    def root(self) -> Path:
        """The bench's own folder.

        Raises:
            ValueError: the bench's name would lead elsewhere.
        """
        if self.bench in ("", ".", "..") or {"/", "\0"} & {*self.bench}:
            raise ValueError(
                f"{self.bench!r} is no name for a benchmark: give that of its folder in {self.data}"
            )
        return self.data / self.bench

    @property
    def questions(self) -> Path:
        """The questions' file."""
        return self.root / "question.jsonl"

    def answers(self, model: str) -> Path:
        """The file of a model's answers."""
        return self.root / "model_answer" / f"{file_name(model)}.jsonl"

    def judged_by(self, judge: str) -> Path:
        """The folder of a judge's judgments."""
        return self.root / "model_judgment" / file_name(judge)

    def judgments(self, judge: str, model: str) -> Path:
        """The file of a judge's judgments of a model."""
        return self.judged_by(judge) / f"{file_name(model)}.jsonl"

    def judges(self) -> list[str]:
        """The judges that have judgments, sorted."""
        found = (self.root / "model_judgment").glob("*/*.jsonl")
        return sorted({path.parent.name for path in found})


def read_questions(path: Path, warn: Warn) -> dict[str, Question]:
    """The questions by uid, in the file's order.

    Raises:
        OSError: the file cannot be read.
    """
    return _by_uid(path, schemas.question, warn)


def read_answers(path: Path, warn: Warn) -> dict[str, Answer]:
    """A model's answers by uid; of several to one question the last counts.

    Thoughts that another program has left in an answer are parted from it, so that no judge sees
    them; the file stays as it is. Its counts of such an answer are of the thoughts too, so that the
    answer has none here (`style` is None), and they are made anew where they are wanted. Judgments
    that another program made of it may be of answer and thoughts together: nothing here undoes it.

    Raises:
        OSError: the file cannot be read.
    """
    found = _by_uid(path, schemas.answer, warn)
    thoughtful = 0
    for uid, answer in found.items():
        parted = part(answer.text, answer.thinking)
        if parted.text != answer.text:
            found[uid] = answer._replace(text=parted.text, style=None, thinking=parted.thinking)
            thoughtful += 1
    if thoughtful:
        warn(
            f"{path}: {thoughtful} answers begin with their model's thoughts, which are left out "
            "here, and so are the file's counts of them (--count_style makes new ones); another "
            "program's judgments may be of answer and thoughts together"
        )
    models = sorted({each.model for each in found.values()})
    if len(models) > 1:
        warn(f"{path}: answers of {len(models)} models ({', '.join(models):.100}); all are taken")
    return found


def read_judgments(
    path: Path,
    warn: Warn,
    see: Callable[[Judgment, schemas.Row], None] = lambda judgment, row: None,
) -> list[Judgment]:
    """A judge's judgments of a model; of several of one question the last complete one counts.

    Args:
        see: gets each, with the row that it was read from.

    Raises:
        OSError: the file cannot be read.
    """

    def read(row: schemas.Row, say: schemas.Say) -> Judgment:
        judgment = schemas.judgment(row, say)
        see(judgment, row)
        return judgment

    found: dict[str, Judgment] = {}
    twice = Twice(path)
    for number, judgment in records(path, read, warn):
        twice.see(judgment.uid, number)
        before = found.get(judgment.uid)
        if before is None or _complete(judgment) or not _complete(before):
            found[judgment.uid] = judgment
    twice.tell(warn, "the last one with two verdicts counts")
    return list(found.values())


def _complete(judgment: Judgment) -> bool:
    return all(game is not None and game.verdict for game in judgment.games)


def only_known(
    found: Mapping[str, T], questions: Mapping[str, Question], path: Path, warn: Warn
) -> dict[str, T]:
    """What belongs to a question that is there; says what does not.

    Args:
        found: by uid.
        questions: by uid.
        path: the file that it was found in.
        warn: told once if there is any.
    """
    strange = [uid for uid in found if uid not in questions]
    if strange:
        warn(
            f"{path}: {len(strange)} of {len(found)} uids are of no question (the first is "
            f"{strange[0]!r:.60}); they are left out"
        )
    return {uid: each for uid, each in found.items() if uid in questions}


def answer_line(
    answer: Answer,
    prompt: str,
    metadata: Mapping[str, Any] | None,
    tstamp: float,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """One line of `model_answer/MODEL.jsonl`, in the schema of v2.0.

    Args:
        answer: its thinking goes beside the text, where the judge does not see it.
        prompt: the question's. A system message is not among the messages: the official browser
            shows the second message as the answer.
        metadata: as `style.metadata` counts it, and in that order: the official style control goes
            by position.
        tstamp: seconds since 1970.
        extra: more of our own; not inside of `metadata`, where each key is taken for a feature.
    """
    content = {"answer": answer.text, **({"thought": answer.thinking} if answer.thinking else {})}
    row: dict[str, Any] = {
        "uid": answer.uid,
        "ans_id": answer.ans_id,
        "model": answer.model,
        "messages": [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": content},
        ],
        "tstamp": tstamp,
    }
    if metadata is not None:
        row["metadata"] = dict(metadata)
    return line_of({**row, **(extra or {})})


def judgment_line(
    judgment: Judgment,
    prompts: tuple[Messages | None, Messages | None] = (None, None),
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """One line of `model_judgment/JUDGE/MODEL.jsonl`, in the schema of v2.0.

    Args:
        judgment: a game of it that failed is null, as upstream writes it.
        prompts: what the judge was given in each game.
        extra: more of our own.
    """
    games = [
        game
        and {"score": game.verdict, "judgment": {"answer": game.text}, "prompt": messages or []}
        for game, messages in zip(judgment.games, prompts, strict=True)
    ]
    row = {**judgment._asdict(), "games": games}
    return line_of({**row, **(extra or {})})


def _by_uid(path: Path, read: Callable[[schemas.Row, Warn], R], warn: Warn) -> dict[str, R]:
    found: dict[str, R] = {}
    twice = Twice(path)
    for number, record in records(path, read, warn):
        twice.see(record.uid, number)
        found[record.uid] = record
    twice.tell(warn, "the last one counts")
    return found
