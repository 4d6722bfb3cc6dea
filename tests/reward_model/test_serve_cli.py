"""`openrlhf-js rm serve`: what it refuses, each in one line and with status 2, and what it says."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from openrlhf_js.cli import rm_serve
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE, allowed, is_loopback, read_token

sys.path.insert(0, str(Path(__file__).parent))
from small_models import change_json, save_reward_model

TOKEN = "a-token-that-is-long-enough"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def problem(capsys: pytest.CaptureFixture, folder: Path, *flags: str) -> str:
    """What is said of flags that cannot be used: one line, and status 2."""
    assert rm_serve.main(["--reward.model_name_or_path", str(folder), "--port", "0", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("openrlhf-js rm serve: ") and said.err.count("\n") == 1
    return said.err


def test_what_is_no_reward_model(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path / "model", outputs=2)
    assert "has 2 outputs" in problem(capsys, folder)
    assert "has 2 outputs" in problem(capsys, folder, "--device", "cpu")
    save_reward_model(folder, tensors={"score.weight": None})
    assert "has no value head" in problem(capsys, folder)
    save_reward_model(folder)
    assert "no mean and std" in problem(capsys, folder, "--reward.normalize_enable")
    assert "must be 1 or more" in problem(capsys, folder, "--data.max_len", "0")
    assert "cannot be used here" in problem(capsys, folder, "--device", "tape")
    change_json(folder / "config.json", model_type="llama")
    change_json(folder / "tokenizer_config.json", eos_token=None)
    assert "has no EOS token" in problem(capsys, folder)


def test_a_token_where_others_can_connect(capsys, tmp_path: Path, monkeypatch) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        assert "clients must bring a token" in problem(capsys, tmp_path, "--host", host)
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    assert "has 5 characters" in problem(capsys, tmp_path, "--host", "0.0.0.0")
    assert "has 5 characters" in problem(capsys, tmp_path)  # nor where it could do without
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert "has no config.json" in problem(capsys, tmp_path, "--host", "0.0.0.0")
    missing = str(tmp_path / "missing")
    assert "cannot be read: No such file" in problem(capsys, tmp_path, "--token_file", missing)


def test_a_port_that_is_taken(capsys, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert "Address already in use" in problem(capsys, tmp_path, "--port", port)


def test_more_connections_than_the_user_may_have(capsys, tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this user may open any number of files")
    assert "ulimit -Hn" in problem(capsys, tmp_path, "--max_connections", str(hard))


@pytest.mark.parametrize("flag", ["--batch_size", "--port", "--max_wait_ms", "--max_queries"])
@pytest.mark.parametrize("value", ["-1", "x", "inf", "nan"])
def test_numbers_that_are_none(capsys, tmp_path: Path, flag: str, value: str) -> None:
    with pytest.raises(SystemExit) as ended:
        rm_serve.main(["--reward.model_name_or_path", str(tmp_path), flag, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{flag}: {value!r} is not a" in said
    assert said.count("\n") == 1


def test_which_hosts_are_this_machine() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io"):
        assert not is_loopback(host)


def test_tokens(tmp_path: Path) -> None:
    assert read_token(None, None) is None
    assert read_token(f" {TOKEN}\n", None) == TOKEN
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-the-file\n")
    assert read_token(TOKEN, file) == f"{TOKEN}-of-the-file"
    file.write_bytes(b"\xff" * 40)
    with pytest.raises(ValueError, match="not ASCII"):
        read_token(None, file)
    for bad in ("", "short", "\N{SNOWMAN}" * 20, "a-token-with-a\ttab-in-it"):
        with pytest.raises(ValueError, match="of printable ASCII"):
            read_token(bad, None)
    assert allowed(f"Bearer {TOKEN}".encode(), TOKEN)
    assert not allowed(None, TOKEN)
    assert not allowed(f"Bearer {TOKEN}x".encode(), TOKEN)
    assert not allowed(f"Bearer {TOKEN[:-1]}".encode(), TOKEN)


def run_script(*flags: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(ROOT / "reward_models" / "serve.sh"), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
    )


@pytest.mark.timeout(180)
def test_the_script_with_a_tiny_model() -> None:
    run = run_script("--tiny")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout.splitlines()[-1].removeprefix("200 "))
    assert len(answer["rewards"]) == 1 and answer["rewards"] == answer["scores"]
    assert "at most 8192 tokens" in run.stdout  # the script's own flags


@pytest.mark.timeout(180)
def test_the_script_without_a_model_at_all(tmp_path: Path) -> None:
    model = save_reward_model(tmp_path)
    run = run_script("--dry-run", "--port", "0", REWARD_MODEL=str(model))
    assert run.returncode == 0, run.stderr
    assert "--data.max_len 8192" in run.stdout and "would serve on" in run.stdout
    run = run_script("--dry-run", "--port", "0", REWARD_MODEL=str(tmp_path / "none"))
    assert run.returncode == 2
    assert "is not a folder" in run.stderr and run.stderr.count("\n") == 1
