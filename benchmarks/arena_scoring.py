"""Time the scoring of a pool of models with style control, from the files on, against a loop.

A made-up pool: every model answers every question and is judged in two games against one baseline.
The files are written as `openrlhf-js eval arena` has them, with texts of a realistic length, and
then

- reading: judgments and answers, from the files to numbers;
- scoring: style control of all four features, clustered bootstraps of the joint fit, and every
  figure of the leaderboard;
- loop: the same fits made one resample after the other, one weighted row after the other. It is
  timed on a few resamples, which must come out the same, and extrapolated.

Times are of the processor, summed over threads: run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from uncertainty_speed import by_loop, pool_flags, seconds

from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.leaderboard import Plan, board
from openrlhf_js.evaluation.arena.pool import Pool, load
from openrlhf_js.evaluation.arena.rows import rows
from openrlhf_js.evaluation.arena.style_control import FEATURES, control, differences
from openrlhf_js.stats.bootstrap import counts

BASELINE, JUDGE, CATEGORY = "baseline", "judge", "made_up"
GOAL_SECONDS = 5
GOAL_RATIO = 50
LOOPED = 2
VERDICTS = np.array(["B>>A", "B>A", "A=B", "A>B", "A>>B"])
ANSWER_CHARACTERS, JUDGMENT_CHARACTERS = 4500, 3600


def write_pool(root: Path, models: int, questions: int, seed: int) -> None:
    """Questions, answers with their counts, and judgments, below the folder of a bench."""
    rng = np.random.default_rng(seed)
    uids = [f"q{number:04}" for number in range(questions)]
    _write(
        root / "question.jsonl",
        [{"uid": uid, "category": CATEGORY, "prompt": f"prompt of {uid}"} for uid in uids],
    )
    counted = {name: _counts(rng, questions) for name in (BASELINE, *_names(models))}
    for name, table in counted.items():
        text = "word " * (ANSWER_CHARACTERS // 5)
        answers = [_answer(uid, name, text, row) for uid, row in zip(uids, table, strict=True)]
        _write(root / "model_answer" / f"{name}.jsonl", answers)
    ease, said = rng.normal(size=questions), "reason " * (JUDGMENT_CHARACTERS // 7)
    for place, name in enumerate(_names(models)):
        longer = (counted[name][:, 0] - counted[BASELINE][:, 0]) / 500
        merit = np.linspace(-1.5, 0.5, models)[place] + ease + 0.3 * longer
        drawn = np.rint(merit[:, None] + 0.7 * rng.normal(size=(questions, 2)))
        margins = np.clip(drawn, -2, 2).astype(int)
        scores = VERDICTS[np.stack([2 - margins[:, 0], 2 + margins[:, 1]], 1)]
        judgments = [
            _judgment(uid, name, both, said) for uid, both in zip(uids, scores, strict=True)
        ]
        _write(root / "model_judgment" / JUDGE / f"{name}.jsonl", judgments)


def _names(models: int) -> list[str]:
    return [f"model-{number:02}" for number in range(models)]


def _counts(rng: np.random.Generator, questions: int) -> np.ndarray:
    tokens = rng.integers(50, 1500, questions)
    return np.column_stack([tokens, rng.poisson(np.outer(tokens, [0.004, 0.015, 0.01]))])


def _answer(uid: str, name: str, text: str, row: np.ndarray) -> dict:
    tokens, headers, lists, bold = row.tolist()
    return {
        "uid": uid,
        "model": name,
        "messages": [{"role": "assistant", "content": {"answer": text}}],
        "metadata": {
            "token_len": tokens,
            "header_count": {"h1": headers},
            "list_count": {"unordered": lists},
            "bold_count": {"**": bold},
        },
    }


def _judgment(uid: str, name: str, scores: np.ndarray, said: str) -> dict:
    prompt = [{"role": "user", "content": "word " * (2 * ANSWER_CHARACTERS // 5)}]
    return {
        "uid": uid,
        "category": CATEGORY,
        "judge": JUDGE,
        "model": name,
        "baseline": BASELINE,
        "games": [
            {"score": score, "judgment": {"answer": said}, "prompt": prompt}
            for score in scores.tolist()
        ],
    }


def _write(path: Path, lines: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def loop_seconds(pool: Pool, rounds: int, seed: int) -> float:
    """Processor seconds of one resample of the loop, after a look at whether it is right."""
    judged = pool.judged
    counted = differences(rows(judged), judged, pool.styles)
    weight, x = counted.rows.weight, counted.values
    mean = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt((weight[:, None] * (x - mean) ** 2).sum(0) / (weight.sum() - 1))
    copies = weight.astype(int)
    single = SimpleNamespace(
        models=len(judged.models),
        model=np.repeat(counted.rows.model, copies),
        question=np.repeat(counted.rows.question, copies),
        result=np.repeat(counted.rows.points, copies),
        weight=np.ones(copies.sum()),
        style=np.repeat((x - mean) / deviation, copies, 0),
    )
    found = control(counted, judged, FEATURES, seed=seed, rounds=rounds).bootstrap
    fits = np.column_stack([found.strengths[:, 1:], found.coefficients])
    start = np.concatenate([found.fit.strengths[1:], found.fit.coefficients])
    drawn = next(counts(len(judged.questions), rounds, seed))
    spent = 0.0
    for number in range(LOOPED):
        once, one = seconds(lambda number=number: by_loop(single, drawn[number], start))
        np.testing.assert_allclose(one, fits[number], atol=1e-5)
        spent += once
    return spent / LOOPED


def main() -> None:
    arguments = pool_flags(__doc__)
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place), "made-up")
        write_pool(folder.root, arguments.models, arguments.questions, arguments.seed)
        size = sum(path.stat().st_size for path in folder.root.rglob("*.jsonl"))
        reading, pools = seconds(lambda: load(folder, [JUDGE], warn=sys.stderr.write))
    assert isinstance(pools, list)
    plan = Plan(control="all", seed=arguments.seed, rounds=arguments.rounds)
    scoring, found = seconds(lambda: board(pools[0], [JUDGE], plan))
    assert len(found.lines) == arguments.models + 1  # type: ignore[attr-defined]
    once = loop_seconds(pools[0], arguments.rounds, arguments.seed)
    loop = once * arguments.rounds

    print(f"{arguments.models} models x {arguments.questions} questions x 2 games, style control")
    print(f"of all features, {arguments.rounds} resamples; processor seconds, one core\n")
    print("| what | seconds |")
    print("|---|---:|")
    print(f"| reading {size / 1e6:.0f} MB of files | {reading:.2f} |")
    print(f"| scoring | {scoring:.2f} |")
    print(f"| loop over rows, {LOOPED} of {arguments.rounds} resamples timed | {loop:.0f} |")
    print(
        f"\nScoring takes {scoring:.2f} s (goal: under {GOAL_SECONDS} s), and the loop over rows "
    )
    print(f"{loop / scoring:.0f} times as long (goal: at least {GOAL_RATIO}).")


if __name__ == "__main__":
    main()
