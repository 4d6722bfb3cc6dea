"""Everything that was asked, answered and said, question by question, to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openrlhf_js.evaluation.arena.files import Folder, read_answers, read_judgments, read_questions
from openrlhf_js.evaluation.arena.lines import Progress, Warn
from openrlhf_js.evaluation.arena.pool import Pool, judgment_files
from openrlhf_js.evaluation.arena.records import Answer, Game, Question, file_name


def questions_of(
    folder: Folder,
    pools: Sequence[Pool],
    judges: Sequence[str],
    models: Sequence[str],
    progress: Progress = lambda files: None,
) -> dict[str, Any]:
    """The questions that one of the models was judged on, with all texts, for JSON.

    Args:
        folder: of the bench.
        pools: the categories wanted, which tell the baselines; their files have been read once, so
            what is wrong with them was said.
        judges: whose words.
        models: whose answers; not the baselines.
        progress: told how many files have been read.

    Returns:
        "models" and "judges", names; "questions", in their file's order, each with uid, category,
        cluster, prompt, baseline {name, text, thinking} and models {place of the model: {text,
        thinking, judged: {place of the judge: [game, game]}}}. A game is [verdict, text], or None
        if it failed; a text is None where no file has it.

    Raises:
        OSError: a file cannot be read.
    """
    silent: Warn = lambda line: None  # noqa: E731
    asked = read_questions(folder.questions, silent) if folder.questions.is_file() else {}
    found: dict[str, dict[str, Any]] = {}
    baselines = {pool.category: pool.judged.baseline for pool in pools}
    files = 0
    for place, name in enumerate(models):
        for number, judge in enumerate(judges):
            path = folder.judgments(judge, name)
            for each in read_judgments(path, silent) if path.is_file() else ():
                baseline = baselines.get(each.category, "")
                against = file_name(each.baseline) if each.baseline else baseline
                if baseline != against or (asked and each.uid not in asked):
                    continue
                question = found.setdefault(
                    each.uid, _question(asked.get(each.uid), each.uid, each.category, baseline)
                )
                of_model = question["models"].setdefault(str(place), {"judged": {}})
                of_model["judged"][str(number)] = [_game(game) for game in each.games]
            progress(files := files + 1)
    for name in dict.fromkeys((*models, *baselines.values())):
        path = folder.answers(name)
        answers = read_answers(path, silent) if path.is_file() else {}
        progress(files := files + 1)
        for uid, question in found.items():
            answer = _answer(answers.get(uid))
            if question["baseline"]["name"] == name:
                question["baseline"] |= answer
            if name in models and (own := question["models"].get(str(models.index(name)))):
                own |= answer
    order = [uid for uid in asked if uid in found] or list(found)
    return {
        "models": list(models),
        "judges": list(judges),
        "questions": [found[uid] for uid in order],
    }


def files_of(folder: Folder, pools: Sequence[Pool], judges: Sequence[str], models: int) -> int:
    """How many files `questions_of` reads, for its progress."""
    return models * len(judgment_files(folder, judges)) + models + len(pools)


def without_thinking(data: dict[str, Any]) -> dict[str, Any]:
    """The same without what models thought before they answered."""

    def bare(of: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in of.items() if name != "thinking"}

    questions = [
        {
            **question,
            "baseline": bare(question["baseline"]),
            "models": {place: bare(own) for place, own in question["models"].items()},
        }
        for question in data["questions"]
    ]
    return {**data, "questions": questions}


def _question(asked: Question | None, uid: str, category: str, baseline: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "category": category,
        "cluster": asked.cluster if asked else "",
        "prompt": asked.prompt if asked else "",
        "baseline": {"name": baseline},
        "models": {},
    }


def _answer(of: Answer | None) -> dict[str, str | None]:
    if of is None:
        return {"text": None}
    return {"text": of.text, **({"thinking": of.thinking} if of.thinking else {})}


def _game(of: Game | None) -> list[str | None] | None:
    return None if of is None else [of.verdict, of.text]
