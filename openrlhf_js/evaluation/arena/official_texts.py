"""The official judge's texts, from a clone of the official repository or from published judgments.

Python files of the repository are parsed and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.benches import EVERY, TEMPLATE
from openrlhf_js.evaluation.arena.judge_prompts import sha256
from openrlhf_js.evaluation.arena.records import Answer, Question
from openrlhf_js.evaluation.arena.settings import LARGEST_BYTES, read_settings

# where versions of the repository have them; the first that is there counts
_PYTHON = ("utils/judge_utils.py", "src/arenahard/utils/judge_utils.py")
_YAML = (
    "config/{bench}.yaml",
    "src/arenahard/config/{bench}.yaml",
    "exampleconfig/{bench}.yaml",
    "config/judge_config.yaml",
)


class Texts(NamedTuple):
    """What a judge is told.

    Attributes:
        template: of the user's message; "" where none was found.
        system: the system messages by category; `EVERY` for all that are not named.
        sources: the files that they are from.
    """

    template: str
    system: Mapping[str, str]
    sources: tuple[str, ...]


def texts_of_clone(root: Path, bench: str) -> Texts:
    """The texts in a clone of the official repository; empty where it has none.

    Args:
        root: the clone's folder.
        bench: the benchmark's name.

    Raises:
        OSError: a file cannot be read. ValueError: one is there, and not as it should be.
    """
    template, system, sources = "", {}, []
    yaml = next(
        (p for p in (root / each.format(bench=bench) for each in _YAML) if p.is_file()), None
    )
    if yaml:
        settings = read_settings(yaml, lambda _: None)
        template, system = settings.prompt_template, dict(settings.system_prompts)
        sources.append(str(yaml.relative_to(root)))
    python = _first(root, _PYTHON)
    if python:
        system = {**system, **system_messages(python)}
        sources.append(str(python.relative_to(root)))
    return Texts(template, system, tuple(sources))


def _first(root: Path, names: Iterable[str]) -> Path | None:
    return next((path for path in (root / name for name in names) if path.is_file()), None)


def system_messages(path: Path) -> dict[str, str]:
    """The system messages by category in `JUDGE_SETTINGS` of a Python file, which is not run.

    Raises:
        OSError: it cannot be read. ValueError: there are none that can be understood.
    """
    with path.open("rb") as file:
        text = file.read(LARGEST_BYTES + 1)
    try:
        if len(text) > LARGEST_BYTES:
            raise ValueError("too large")
        found = _constants(ast.parse(text))["JUDGE_SETTINGS"]
        return {str(name): str(each["system_prompt"]) for name, each in found.items()}
    except (SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
    except (RecursionError, MemoryError) as error:
        reason = type(error).__name__
    raise ValueError(f"{path} has no JUDGE_SETTINGS that can be read without running it: {reason}")


def _constants(module: ast.Module) -> dict[str, Any]:
    """The module's names that stand for constants; names of constants may stand in later ones."""
    found: dict[str, Any] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                value = ast.literal_eval(_Filled(found).visit(statement.value))
            except ValueError:  # a call, say: not needed
                continue
            found[statement.targets[0].id] = value
    return found


class _Filled(ast.NodeTransformer):
    """Puts the text in the place of its name."""

    def __init__(self, known: Mapping[str, Any]):
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self.known.get(node.id)
        return ast.Constant(value) if isinstance(value, str) else node


def texts_of_judgments(
    rows: Iterable[Mapping[str, Any]],
    questions: Mapping[str, Question],
    answers: Mapping[str, Mapping[str, Answer]],
) -> Texts:
    """The texts that published judgments were made with.

    A judgment holds what the judge was given in both games. With the question and the baseline's
    answer taken out of both, what is left is the template and the other answer, in two orders,
    which tells one from the other. The official hash says whether it came out right.

    Args:
        rows: lines of a judge's file.
        questions: by uid.
        answers: by baseline, then by uid.
    """
    template = ""
    system: dict[str, str] = {}
    for row in rows:
        question = questions.get(str(row.get("uid")))
        baseline = answers.get(str(row.get("baseline")), {}).get(str(row.get("uid")))
        games = row.get("games")
        told = [_told(game) for game in games] if isinstance(games, list) else []
        if question is None or baseline is None or len(told) != 2 or not all(map(any, told)):
            continue
        (message, first), (_, second) = told
        system.setdefault(question.category, message)
        if not template:
            found = template_of(first, second, question.prompt, baseline.text)
            template = found if sha256(found) == TEMPLATE else ""
        if template and system.keys() >= {each.category for each in questions.values()}:
            break
    return Texts(template, system, ())


def _told(game: Any) -> tuple[str, str]:
    """The system message and the user's message of a game; empty where it does not hold them."""
    messages = game.get("prompt") if isinstance(game, dict) else None
    by_role = {
        each.get("role"): each.get("content")
        for each in (messages if isinstance(messages, list) else [])
        if isinstance(each, dict)
    }
    system, user = by_role.get("system"), by_role.get("user")
    return (system, user) if isinstance(system, str) and isinstance(user, str) else ("", "")


def template_of(first: str, second: str, question: str, baseline: str) -> str:
    """The template of two messages: in the first the baseline is A, in the second it is B.

    With P0 question P1 A P2 B P3: the first leaves P2 B, the second B P2, which are turned into
    each other by moving P2 to the end.

    Returns:
        "" where it cannot be told.
    """
    start, found, rest = first.partition(question)
    other = second[len(start) + len(question) :]
    before, found_baseline, tail = rest.partition(baseline)
    if not (found and found_baseline and second.startswith(start + question + before)):
        return ""
    middle, found, end = other[len(before) :].rpartition(baseline)
    if not found or not tail.endswith(end):
        return ""
    turned = tail[: len(tail) - len(end)]
    place = (turned + turned).find(middle)
    if place < 0 or len(turned) != len(middle):
        return ""
    return f"{start}{{QUESTION}}{before}{{ANSWER_A}}{turned[:place]}{{ANSWER_B}}{end}"


def by_category(texts: Texts, categories: Mapping[str, str]) -> dict[str, str]:
    """The system message of each category that has one.

    Args:
        texts: as found; a message counts for each category whose official hash it has.
        categories: the hash of the official message, by category.
    """
    hashed = {sha256(each): each for each in texts.system.values()}
    found = {
        name: texts.system.get(name) or hashed.get(digest) or texts.system.get(EVERY, "")
        for name, digest in categories.items()
    }
    return {name: text for name, text in found.items() if text}
