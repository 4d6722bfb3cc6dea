"""Arena-Hard's benches and files: questions, answers and judgments.

Files stand in `data/BENCH/` as in the official repository (lmarena/arena-hard-auto), whose programs
read what is written here. Unreadable lines are logged and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from answer_graders.programs import as_typed
from answer_graders.programs.console import say
from answer_graders.programs.files import atomic_write, read_rows
from answer_graders.programs.model_folders import local_folder
from answer_graders.programs.store import json_line
from answer_graders.thinking import split_thinking
from paired_eval.arena import verdicts
from paired_eval.arena.style import style_of

Row = Mapping[str, Any]
T = TypeVar("T")

HUB = "lmarena-ai/arena-hard-auto"
FAILED_ANSWER = "$ERROR$"  # what the official program writes where its call failed

# sha256 of the official judge's system messages, as in the repository's utils/judge_utils.py
HARD_SYSTEM = "03f68010febd7a6405102ef882b4dd5a9700c56b2e1ff286d3b38f5d3a929bbf"
CREATIVE_SYSTEM = "171489efbca7f19fb520e1b3c23783c76af7c723e770fe897a55f391684aa358"
# sha256 of the official `prompt_template`, with {QUESTION}, {ANSWER_A} and {ANSWER_B}
TEMPLATE = "80fb20ab2eaae6d38a19f707f3f051f0456bcb977b0086bebe15f9bd23ce45f8"


class Category(NamedTuple):
    """Questions with one baseline, and the official judge's system message."""

    baseline: str
    system_sha256: str = ""
    judges: tuple[str, ...] = ()  # pooled officially; (): any one of the bench's judges


class Bench(NamedTuple):
    """A set of questions and how it is judged officially."""

    name: str
    categories: Mapping[str, Category]  # "*": those that are not listed
    rule: Literal["v0.1", "v2.0"] = "v2.0"  # of the official interval
    judges: Mapping[str, Mapping[str, float]] = {}  # with their official parameters

    def category(self, name: str) -> Category:
        """A category by name."""
        category = self.categories.get(name) or self.categories.get("*")
        if category is None:
            raise ValueError(
                f"{self.name} has no category {name!r}; it has {list(self.categories)}"
            )
        return category


BENCHES = {
    "arena-hard-v0.1": Bench(
        "arena-hard-v0.1",
        {"arena-hard-v0.1": Category("gpt-4-0314", HARD_SYSTEM)},
        "v0.1",
        {"gpt-4-1106-preview": {"temperature": 0.0, "max_tokens": 4096}},
    ),
    "arena-hard-v2.0": Bench(
        "arena-hard-v2.0",
        {
            "hard_prompt": Category("o3-mini-2025-01-31", HARD_SYSTEM),
            "creative_writing": Category(
                "gemini-2.0-flash-001", CREATIVE_SYSTEM, ("gpt-4.1", "gemini-2.5")
            ),
        },
        "v2.0",
        {
            "gpt-4.1": {"temperature": 0.0, "max_tokens": 16000},
            "gemini-2.5": {"temperature": 1.0, "max_tokens": 32000},
        },
    ),
}


def bench_of(name: str, baseline: str = "") -> Bench:
    """An official bench (`baseline` replaces its own), or your own bench with this baseline."""
    if name not in BENCHES and not baseline:
        raise ValueError(
            f"{name!r} is none of {', '.join(BENCHES)}: give the model that answers are compared "
            "with (--baseline MODEL)"
        )
    bench = BENCHES.get(name) or Bench(name, {"*": Category(baseline)})
    if not baseline:
        return bench
    categories = {
        name: category._replace(baseline=baseline) for name, category in bench.categories.items()
    }
    return bench._replace(categories=categories)


def file_name(model: str) -> str:
    """The name of a model or judge in file names: its last part, as in the official repository."""
    name = model.rstrip("/").rsplit("/", 1)[-1]
    if name in ("", ".", ".."):
        raise ValueError(f"{model!r:.80} is no name for a model: give one such as my-model")
    return name


def file_names(models: Iterable[str]) -> list[str]:
    """The names of models or judges in file names; ValueError if two would be the same."""
    models_by_name: dict[str, str] = {}
    for model in models:
        name = file_name(model)
        if models_by_name.setdefault(name, model) != model:
            raise ValueError(
                f"{models_by_name[name]} and {model} are both {name!r} in file names: give one of "
                "them another name where it answers (generate --name) or judges (--judge_name)"
            )
    return list(models_by_name)


class Folder:
    """The paths of a bench's files, in `data/BENCH/`."""

    def __init__(self, data: Path, bench: str):
        self.bench = bench
        self.root = data / bench
        self.questions = self.root / "question.jsonl"

    def answers(self, model: str) -> Path:
        """The file of a model's answers."""
        return self.root / "model_answer" / f"{file_name(model)}.jsonl"

    def generation(self, model: str) -> Path:
        """The store of a model's answers under their settings."""
        return self.root / "generation" / f"{file_name(model)}.jsonl"

    def judgments(self, judge: str, model: str) -> Path:
        """The file of a judge's judgments of a model."""
        return self.root / "model_judgment" / file_name(judge) / f"{file_name(model)}.jsonl"

    def ledger(self, judge: str, category: str) -> Path:
        """The file of every reply that a judge was paid for in a category."""
        return self.root / "judge_ledger" / file_name(judge) / f"{file_name(category)}.jsonl"

    def judges(self) -> list[str]:
        """The judges that have judgments."""
        return sorted({path.parent.name for path in self.root.glob("model_judgment/*/*.jsonl")})


class Question(NamedTuple):
    """One question."""

    uid: str
    category: str
    prompt: str


class ModelAnswer(NamedTuple):
    """A model's answer as the judge sees it, and the thinking before it."""

    uid: str
    text: str
    style: Sequence[int] | None = None  # counts of STYLE; None: the file has none of this text
    thinking: str = ""
    prompt: str | None = None  # the question's text; None: the file does not say


class GameResult(NamedTuple):
    """One game: the judge's whole reply, and its verdict by each rule, None without one."""

    text: str
    unquoted: str | None
    official: str | None

    def verdict(self, rule: verdicts.Rule) -> str | None:
        """The verdict by one of the rules."""
        return self.official if rule == "official" else self.unquoted


class Judgment(NamedTuple):
    """Two games over one answer; A is the baseline in the first, and the model in the second."""

    uid: str
    category: str
    judge: str
    model: str
    baseline: str  # "" where another program names none
    games: tuple[GameResult | None, GameResult | None]  # None: failed, and recorded as such
    settings: str = ""  # hash of what it depends on; "" where another program judged

    @property
    def complete(self) -> bool:
        """Whether both games have a verdict."""
        return all(game and game.unquoted for game in self.games)


def records(path: Path, read: Callable[[Row], T]) -> Iterator[T]:
    """Yields `read(row)` for each row of a file, if it exists; bad rows are logged and left out."""
    bad_rows = []
    for row in read_rows(path) if path.is_file() else ():
        try:
            yield read(_in_todays_layout(row.object(path)))
        except (ValueError, LookupError, TypeError) as error:
            bad_rows.append(f"{row.place}: {type(error).__name__} {error}")
    if bad_rows:
        say(f"{path}: {len(bad_rows)} rows are left out, such as {bad_rows[0]}", error=True)


def read_questions(folder: Folder) -> dict[str, Question]:
    """The questions by uid, in the file's order."""
    if not folder.questions.is_file():
        raise ValueError(
            f"{folder.questions}: no such file; `{as_typed('openrlhf-js eval arena fetch')}` gets "
            "the official questions, and --data and --bench name the folder that has them"
        )
    questions: dict[str, Question] = {}
    for question in records(folder.questions, _question):
        if questions.setdefault(question.uid, question) != question:
            raise ValueError(
                f"{folder.questions}: two questions have the uid {question.uid!r}; give each its "
                "own"
            )
    if not questions:
        raise ValueError(f"{folder.questions} holds no question that can be read")
    return questions


def select(questions: Mapping[str, Question], categories: Sequence[str]) -> dict[str, Question]:
    """The questions of these categories (default: all)."""
    counts = Counter(question.category for question in questions.values())
    for name in categories:
        if not counts[name]:
            raise ValueError(f"no question is of the category {name!r}; there are {dict(counts)}")
    wanted = categories or counts
    return {uid: question for uid, question in questions.items() if question.category in wanted}


def read_answers(folder: Folder, model: str) -> dict[str, ModelAnswer]:
    """A model's answers by uid, the last one for each; {} without a file."""
    return {answer.uid: answer for answer in records(folder.answers(model), _answer)}


def read_judgments(path: Path) -> dict[str, Judgment]:
    """A judge's judgments of a model by uid, the last one for each; {} without a file."""
    return {judgment.uid: judgment for judgment in records(path, _judgment)}


def judgment_row(judgment: Judgment, prompts: Sequence[Any]) -> dict[str, Any]:
    """A row of `model_judgment`, in the schema of v2.0, with the judge's prompts.

    `score` is the official verdict, since the official programs read it.
    """
    games = [
        game and {"score": game.official, "judgment": {"answer": game.text}, "prompt": messages}
        for game, messages in zip(judgment.games, prompts, strict=True)
    ]
    return {**judgment._asdict(), "games": games}


def merge_rows(path: Path, rows: Mapping[str, Row]) -> None:
    """Rewrites a file atomically: `rows` replace those with the same uid, and other rows stay."""
    kept = []
    for row in read_rows(path) if path.is_file() else ():
        if isinstance(row.value, dict) and row.value.get("uid") not in rows:
            kept.append(row.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for value in (*kept, *rows.values()):
            file.write(json_line(value))


def _in_todays_layout(row: Row) -> Row:
    """A row in v2.0's layout, also from v0.1's first layout, which old clones still have.

    The first layout has `question_id`, the `turns` of a question, and the `choices` of an answer.
    Its judgments name neither category nor baseline.
    """
    if "question_id" not in row:
        return row
    fields = {"uid": row["question_id"], "category": "arena-hard-v0.1", **row}
    if "turns" in row:
        fields["prompt"] = row["turns"][0]["content"]
    if "choices" in row:
        reply = row["choices"][0]["turns"][0]["content"]
        fields["messages"] = [{"role": "assistant", "content": {"answer": reply}}]
        fields["metadata"] = row.get("conv_metadata")
    return fields


def _question(row: Row) -> Question:
    return Question(_text(row["uid"]), _text(row["category"]), _text(row["prompt"]))


def _answer(row: Row) -> ModelAnswer:
    """An answer; ValueError where there is none."""
    *asked, reply = row["messages"]
    content = _text(reply["content"]["answer"])
    if content == FAILED_ANSWER:
        raise ValueError("there is no answer")
    thinking = str(reply["content"].get("thought") or "")
    text, thoughts = split_thinking(content, thinking)  # another program may have left thinking in
    counts = row.get("metadata") if text == content else None
    return ModelAnswer(
        uid=_text(row["uid"]),
        text=text,
        style=style_of(counts),
        thinking=thoughts,
        prompt=_text(asked[-1]["content"]) if asked else None,
    )


def _judgment(row: Row) -> Judgment:
    first, second = row["games"]
    return Judgment(
        uid=_text(row["uid"]),
        category=_text(row["category"]),
        judge=_text(row["judge"]),
        model=file_name(_text(row["model"])),
        baseline=_text(row.get("baseline", "")).rpartition("/")[2],
        games=(_game(first), _game(second)),
        settings=_text(row.get("settings", "")),
    )


def _game(game: Any) -> GameResult | None:
    """A game of a judgment; None where the judge's call failed.

    If the text holds no label, the recorded verdict counts.
    """
    if game is None:
        return None
    judgment = game["judgment"]
    text = _text(judgment["answer"] if isinstance(judgment, dict) else judgment)
    official = verdicts.MEANING.get(str(game["score"]))
    unquoted = verdicts.unquoted_verdict(text) if verdicts.has_label(text) else official
    return GameResult(text, unquoted, official)


def _text(value: Any) -> str:
    """The text as our files hold it: lone surrogates become U+FFFD."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _files(bench: Bench, models: Sequence[str], judges: Sequence[str]) -> Iterator[str]:
    """The files to fetch; * for all models of a judge."""
    baselines = {category.baseline for category in bench.categories.values()}
    yield "question.jsonl"
    for model in sorted({*baselines, *models}):
        yield f"model_answer/{file_name(model)}.jsonl"
    for judge in judges:
        for model in models or ["*"]:
            yield f"model_judgment/{file_name(judge)}/{file_name(model)}.jsonl"


def fetch(
    folder: Folder, bench: Bench, source: Path | None, models: Sequence[str], judges: Sequence[str]
) -> list[str]:
    """Copies a bench's files from a clone, or the hub, and returns what is missing.

    Existing files stay. It copies the answers of the baselines and of `models`, and the judgments
    that `judges` made of these models (default: of all).
    """
    if not source:
        wanted = [f"data/{bench.name}/{name}" for name in _files(bench, models, judges)]
        source = local_folder(HUB, repo_type="dataset", allow_patterns=wanted)
    original = Folder(source / "data", bench.name)
    if not original.questions.is_file():
        raise ValueError(f"{source} holds no data/{bench.name}/question.jsonl; see --texts")
    missing = []
    for name in _files(bench, models, judges):
        paths = sorted(original.root.glob(name))
        if not paths and not (folder.root / name).exists():
            missing.append(f"{original.root / name} (no such file)")
        for path in paths:
            copy = folder.root / path.relative_to(original.root)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(copy) as file:
                    file.write(path.read_bytes())
    return missing
