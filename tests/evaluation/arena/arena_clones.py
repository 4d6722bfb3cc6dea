"""A small clone of the official repository, with texts and questions made up."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from openrlhf_js.evaluation.arena import benches, judge_prompts, official_texts

HARD, CREATIVE = "You judge hard ones.\nEnd with [[A=B]].", "You judge tales."
TEMPLATE = "<|User|>\n{QUESTION}\n\n<|A|>\n{ANSWER_A}\n<|/A|>\n\n<|B|>\n{ANSWER_B}\n<|/B|>"
BASELINES = {"hard_prompt": "o3-mini-2025-01-31", "creative_writing": "gemini-2.0-flash-001"}
QUESTIONS = [
    *((f"h{i}", "hard_prompt", f"{i} + {i}?\u2028") for i in range(3)),
    *((f"c{i}", "creative_writing", f"Tell {i} {{QUESTION}}.") for i in range(2)),
]
PYTHON = f"""
import os
os.environ["RAN"] = "yes"
HARD = {HARD!r}
JUDGE_SETTINGS = {{
    "hard_prompt": {{"baseline": "o3-mini-2025-01-31", "system_prompt": HARD}},
    "creative_writing": {{"baseline": "gemini-2.0-flash-001", "system_prompt": {CREATIVE!r}}},
}}
"""


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_official(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the texts and the numbers of this clone the official ones."""
    for module in (judge_prompts, official_texts):
        monkeypatch.setattr(module, "TEMPLATE", hashed(TEMPLATE))
    bench = benches.BENCHES["arena-hard-v2.0"]
    counts = {"hard_prompt": 3, "creative_writing": 2}
    texts = {"creative_writing": CREATIVE}
    categories = {
        name: each._replace(
            questions=counts.get(name, 0), system_sha256=hashed(texts.get(name, HARD))
        )
        for name, each in bench.categories.items()
    }
    monkeypatch.setitem(benches.BENCHES, bench.name, bench._replace(categories=categories))


def clone(root: Path, *, code: bool = True) -> Path:
    """Writes it, with its code and settings or with its data alone."""
    data = root / "data" / "arena-hard-v2.0"
    rows = [{"uid": u, "category": c, "subcategory": c, "prompt": p} for u, c, p in QUESTIONS]
    write(data / "question.jsonl", rows)
    for model in (*BASELINES.values(), "other"):
        answers = [answer(model, uid, prompt) for uid, _, prompt in QUESTIONS]
        write(data / "model_answer" / f"{model}.jsonl", answers)
    judged = [judgment(*each) for each in QUESTIONS]
    write(data / "model_judgment" / "gpt-4.1" / "other.jsonl", judged)
    if code:
        (root / "utils").mkdir()
        (root / "utils" / "judge_utils.py").write_text(PYTHON)
        (root / "config").mkdir()
        (root / "config" / "arena-hard-v2.0.yaml").write_text(
            f"judge_model: gpt-4.1\nmax_tokens: 16000\nprompt_template: {json.dumps(TEMPLATE)}\n"
        )
    return root


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, "utf-8")


def answer(model: str, uid: str, prompt: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": {"answer": f"{model} to {uid}"}},
    ]
    counts = {"token_len": 3, "header_count": {}, "list_count": {}, "bold_count": {}}
    row = {"uid": uid, "ans_id": "id", "model": model, "messages": messages, "tstamp": 1.0}
    return {**row, "metadata": counts}


def judgment(uid: str, category: str, prompt: str) -> dict[str, Any]:
    sides = [f"{BASELINES[category]} to {uid}", f"other to {uid}"]
    system = CREATIVE if category == "creative_writing" else HARD
    games = []
    for a, b in (sides, sides[::-1]):
        user = TEMPLATE.format(QUESTION=prompt, ANSWER_A=a, ANSWER_B=b)
        told = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        games.append({"score": "A>B", "judgment": {"answer": "[[A>B]]"}, "prompt": told})
    names = {"uid": uid, "category": category, "judge": "gpt-4.1", "model": "other"}
    return {**names, "baseline": BASELINES[category], "games": games}
