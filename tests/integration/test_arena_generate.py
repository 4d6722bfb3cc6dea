"""The real vLLM server on CPU answers `openrlhf-js eval arena generate`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import answers, free_port, read_lines, save_policy, until, write_lines

from answer_graders.programs.store import read_store
from baseline_research.tiny.tasks import sort
from openrlhf_js.common.environment import training_on_cpu
from paired_eval.arena import style
from paired_eval.arena.data import Folder
from paired_eval.cli import arena as eval_arena

QUESTIONS = {f"q{number}": sort.prompt(str(number)) for number in range(10, 16)}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A tiny model with a chat template, served under the name `tiny`."""
    pytest.importorskip("vllm")
    folder = save_policy(tmp_path / "model")
    port = free_port()
    words = [
        *("--model", str(folder), "--served-model-name", "tiny", "--generation-config", "vllm"),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
    ]
    with (tmp_path / "vllm.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words],
            env={**os.environ, **training_on_cpu()},  # as a CPU run's own: without a compiler
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=tmp_path,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: process.poll() is not None or answers(f"{url}/health"), 260)
            assert process.poll() is None, (tmp_path / "vllm.log").read_text()[-3000:]
            yield f"{url}/v1"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.integration
def test_a_served_model_answers(served, tmp_path, capsys, monkeypatch):
    # Tokens are characters: the official tokenizer is not everywhere to be had.
    monkeypatch.setattr(style, "load_tokenizer", lambda bench: len)
    folder = Folder(tmp_path / "data", "own")
    rows = [{"uid": uid, "category": "c", "prompt": text} for uid, text in QUESTIONS.items()]
    write_lines(folder.questions, rows)
    words = ["--model", served, "--data", str(tmp_path / "data"), "--bench", "own"]
    words += ["--max_new_tokens", "5"]
    assert eval_arena.generate(words) == 0
    path = folder.answers("tiny")
    assert f"{path}: answers to 6 of 6 questions" in capsys.readouterr().out
    lines = read_lines(path)
    assert sorted(row["uid"] for row in lines) == sorted(QUESTIONS)
    for row in lines:
        assert row["messages"][0]["content"] == QUESTIONS[row["uid"]]
    identity, records = read_store(folder.generation("tiny"))
    assert identity["served_root"] == str(tmp_path / "model")  # beside the name, and answers
    for row in records:
        assert 0 < row["tokens"] <= 5
        assert row["finish_reason"] == ("length" if row["tokens"] == 5 else "stop")
