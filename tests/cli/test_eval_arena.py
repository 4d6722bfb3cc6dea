"""`openrlhf-js eval arena fetch` and `generate` from the command line."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from openrlhf_js.cli import eval_arena_fetch, eval_arena_generate
from openrlhf_js.cli.main import main
from openrlhf_js.evaluation.arena import fetch, style

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation" / "arena"))
import arena_clones as clones

BENCH = "arena-hard-v2.0"
ROOT = Path(__file__).parents[2]
KEY = "sk-secret-0123456789"
# Tokens are words: the official tokenizer is not everywhere to be had.
WORDS = """
import sys
from openrlhf_js.evaluation.arena import style
style.load_tokenizer = lambda bench, path=None: lambda text: len(text.split())
from openrlhf_js.cli.eval_arena_generate import main
sys.exit(main())
"""


class Stub(ThreadingHTTPServer):
    """A server on this machine; `respond` answers (method, path, headers, body)."""

    daemon_threads = True

    def __init__(self, respond: Callable[..., tuple[int, dict[str, str], bytes]]):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = respond(self.command, self.path, self.headers, body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class TestDoor:
    def test_programs(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["eval"]) == 0
        assert "passk" in capsys.readouterr().out
        assert main(["eval", "arena", "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("usage: openrlhf-js eval arena PROGRAM")
        assert all(f"\n  {name} " in said for name in ("fetch", "generate", "judge", "score"))
        assert main(["eval", "arena", "fight"]) == 2


class TestFetch:
    def test_from_a_clone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clones.make_official(monkeypatch)
        words = ["--from", str(clones.clone(tmp_path / "clone")), "--data", str(tmp_path / "data")]
        assert eval_arena_fetch.main(words) == 0
        assert capsys.readouterr().out.splitlines() == [
            "3 questions of hard_prompt, compared with o3-mini-2025-01-31",
            "2 questions of creative_writing, compared with gemini-2.0-flash-001",
            "the official judge's texts: there",
        ]
        kept = json.loads((tmp_path / "data" / BENCH / "fetched.json").read_text())
        assert sorted(kept["files"])[-1] == "question.jsonl" and kept["complete"] is True

    def test_it_is_on_record_only_when_all_was_fetched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: Any) -> None:
            raise ValueError("the hub is gone")

        monkeypatch.setattr(fetch, "judge_texts", gone)
        words = ["--from", str(clones.clone(tmp_path / "clone")), "--data", str(tmp_path / "data")]
        assert eval_arena_fetch.main(words) == 2
        assert (tmp_path / "data" / BENCH / "question.jsonl").exists()
        assert not (tmp_path / "data" / BENCH / "fetched.json").exists()

    def test_what_was_asked_for_and_is_not_there(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clones.make_official(monkeypatch)
        words = ["--from", str(clones.clone(tmp_path / "clone")), "--data", str(tmp_path / "data")]
        assert eval_arena_fetch.main([*words, "--models", "nobody", "--judgments", "j"]) == 1
        path = tmp_path / "data" / BENCH / "model_answer" / "nobody.jsonl"
        assert capsys.readouterr().out.splitlines()[-2:] == [
            f"missing: {tmp_path / 'clone'} has no such judgments of j",
            f"missing: {path} is not there",
        ]

    def test_what_is_missing_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without the official numbers and texts of this small clone."""
        words = ["--from", str(clones.clone(tmp_path / "clone")), "--data", str(tmp_path / "data")]
        assert eval_arena_fetch.main(words) == 1
        said = capsys.readouterr().out
        assert "the official judge's texts for hard_prompt, creative_writing were not found" in said
        assert "3 questions of hard_prompt; officially 500" in said
        kept = json.loads((tmp_path / "data" / BENCH / "fetched.json").read_text())
        assert kept["complete"] is False

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--from", "{tmp}"], f"holds no data/{BENCH}/question.jsonl. Give a clone"),
            (["--bench", "poems", "--from", "{tmp}"], "'poems' is none of arena-hard-v0.1"),
        ],
    )
    def test_what_cannot_be_used(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
    ) -> None:
        assert eval_arena_fetch.main([each.format(tmp=tmp_path) for each in words]) == 2
        assert told in capsys.readouterr().err

    def test_flags(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            eval_arena_fetch.main(["--from", "x", "--revision", "y"])
        assert "give one of them" in capsys.readouterr().err


class TestHub:
    """The hub's protocol, spoken by a server on this machine."""

    def fetch(self, tmp_path: Path, endpoint: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "openrlhf_js.cli.eval_arena_fetch", *more],
            cwd=ROOT,
            env={
                **{
                    k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS"))
                },
                "HF_ENDPOINT": endpoint,
                "HF_HOME": str(tmp_path / "hub"),
                "HF_HUB_DISABLE_XET": "1",
                "NO_PROXY": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_a_data_set(self, tmp_path: Path) -> None:
        clone = clones.clone(tmp_path / "clone", code=False)
        files = {str(each.relative_to(clone)): each for each in clone.rglob("*.jsonl")}
        repo, commit = "datasets/lmarena-ai/arena-hard-auto", "c" * 40

        def respond(method: str, path: str, *_: Any) -> tuple[int, dict[str, str], bytes]:
            if path.startswith(f"/api/{repo}"):
                listed = [{"rfilename": name} for name in files]
                told = {"id": "lmarena-ai/arena-hard-auto", "sha": commit, "siblings": listed}
                return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()
            name = path.removeprefix(f"/{repo}/resolve/{commit}/")
            if name not in files:
                return 404, {"X-Error-Code": "EntryNotFound"}, b""
            content = files[name].read_bytes()
            tag = hashlib.sha256(content).hexdigest()
            return 200, {"X-Repo-Commit": commit, "ETag": f'"{tag}"'}, content

        with Stub(respond) as hub:
            words = ["--data", str(tmp_path / "data"), "--judgments", "gpt-4.1"]
            found = self.fetch(tmp_path, hub.url, *words)
            hub.shutdown()
        assert "3 questions of hard_prompt, compared with o3-mini-2025-01-31" in found.stdout
        assert found.returncode == 1, found.stderr  # fewer than the official 500
        data = tmp_path / "data" / BENCH
        for name, path in files.items():
            if "model_answer/other" not in name:
                assert (tmp_path / "data" / Path(name).relative_to("data")).read_bytes() == (
                    path.read_bytes()
                )
        kept = json.loads((data / "fetched.json").read_text())
        sources = {each["source"] for each in kept["files"].values()}
        assert sources == {f"lmarena-ai/arena-hard-auto at {commit}"}

    def test_without_access(self, tmp_path: Path) -> None:
        found = self.fetch(tmp_path, "http://127.0.0.1:9", "--data", str(tmp_path / "data"))
        assert found.returncode == 2
        assert "cannot be had from the hub" in found.stderr
        assert found.stderr.rstrip().endswith("give its folder with --from")
        assert "Traceback" not in found.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return clones.clone(tmp_path / "clone") / "data"


@pytest.fixture
def words_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        style, "load_tokenizer", lambda bench, path=None: lambda text: len(text.split())
    )


class Model:
    """A served model that says its question again; may be slow, or refuse."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.delay_seconds = 0.0
        self.cut_off = ""

    def __call__(
        self, method: str, path: str, headers: Any, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if path == "/v1/models":
            return 200, {}, b'{"data": [{"id": "org/served"}]}'
        asked = json.loads(body)
        self.asked.append(asked)
        self.keys.append(headers.get("Authorization"))
        time.sleep(self.delay_seconds)
        said = asked["messages"][-1]["content"]
        reason = "length" if said == self.cut_off else "stop"
        message = {"content": f"# {said}", "reasoning_content": "hm"}
        answer = {"choices": [{"message": message, "finish_reason": reason}]}
        return 200, {}, json.dumps({**answer, "usage": {"completion_tokens": 4}}).encode()


@pytest.fixture
def model() -> Iterator[tuple[Model, str]]:
    found = Model()
    with Stub(found) as server:
        yield found, f"{server.url}/v1"
        server.shutdown()


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open("rb")]


@pytest.mark.usefixtures("words_are_tokens")
class TestServed:
    def test_everything_and_nothing_twice(
        self,
        data: Path,
        model: tuple[Model, str],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        served, url = model
        served.cut_off = clones.QUESTIONS[1][2]
        monkeypatch.setenv("ARENA_KEY", KEY)
        words = ["--model", url, "--data", str(data), "--key_env", "ARENA_KEY"]
        assert eval_arena_generate.main([*words, "--category", "creative_writing"]) == 0
        assert len(served.asked) == 2
        assert eval_arena_generate.main(words) == 0
        said = capsys.readouterr()
        path = data / BENCH / "model_answer" / "served.jsonl"
        assert said.out.splitlines()[-2:] == [
            f"{path}: answers to 5 of 5 questions",
            "1 of them were cut off at 4096 tokens: with more (--max_new_tokens, and another "
            "--name) they would be whole",
        ]
        assert len(served.asked) == 5
        assert sorted(row["uid"] for row in rows(path)) == ["c0", "c1", "h0", "h1", "h2"]
        row = next(row for row in rows(path) if row["uid"] == "h0")
        assert row["messages"][-1]["content"] == {"answer": "# 0 + 0?\u2028", "thought": "hm"}
        assert row["metadata"]["header_count"]["h1"] == 1
        assert {key: served.asked[0][key] for key in ("model", "temperature", "max_tokens")} == {
            "model": "org/served",
            "temperature": 0.0,
            "max_tokens": 4096,
        }
        assert set(served.keys) == {f"Bearer {KEY}"}
        for each in data.rglob("*"):
            assert not each.is_file() or KEY.encode() not in each.read_bytes()
        assert eval_arena_generate.main([*words, "--temperature", "1"]) == 2
        assert "were made with temperature 0.0, not 1.0" in capsys.readouterr().err

    def test_the_first_few(self, data: Path, model: tuple[Model, str]) -> None:
        served, url = model
        words = ["--model", f"{url}#named", "--data", str(data), "--name", "m", "--questions", "2"]
        assert eval_arena_generate.main([*words, "--system", "be kind"]) == 0
        assert [len(asked["messages"]) for asked in served.asked] == [2, 2]
        assert {asked["model"] for asked in served.asked} == {"named"}
        found = rows(data / BENCH / "model_answer" / "m.jsonl")
        assert sorted(row["uid"] for row in found) == ["h0", "h1"]

    def test_the_official_file_of_endpoints(
        self, data: Path, model: tuple[Model, str], tmp_path: Path
    ) -> None:
        served, url = model
        config = tmp_path / "api_config.yaml"
        config.write_text(
            f"m:\n  model: org/m\n  endpoints: [{{api_base: '{url}', api_key: '-'}}]\n"
            "  api_type: openai\n  temperature: 0.5\n  parallel: 2\n"
        )
        words = ["--model", "m", "--endpoints", str(config), "--data", str(data)]
        assert eval_arena_generate.main([*words, "--max_new_tokens", "7"]) == 0
        assert len(rows(data / BENCH / "model_answer" / "m.jsonl")) == 5
        names = ("model", "temperature", "max_tokens")
        assert [served.asked[0][name] for name in names] == ["org/m", 0.5, 7]

    def test_a_thinking_model_of_the_official_file_is_sent_no_temperature(
        self, data: Path, model: tuple[Model, str], tmp_path: Path
    ) -> None:
        served, url = model
        config = tmp_path / "api_config.yaml"
        config.write_text(
            f"o:\n  endpoints: [{{api_base: '{url}', api_key: '-'}}]\n  api_type: openai_thinking\n"
        )
        words = ["--model", "o", "--endpoints", str(config), "--data", str(data)]
        assert eval_arena_generate.main(words) == 0
        assert served.asked[0].keys() == {"model", "messages", "max_completion_tokens", "seed"}

    def test_a_server_that_is_not_there(
        self, data: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--model", "http://127.0.0.1:9/v1", "--data", str(data)]
        assert eval_arena_generate.main(words) == 2
        assert "no server answers at" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--bench", "poems"], "openrlhf-js eval arena fetch --data"),
            (["--category", "poems"], "--category poems: "),
            (["--category", "creative_writing", "--questions", "1"], "has none of the questions"),
        ],
    )
    def test_questions_that_are_not_there(
        self, data: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
    ) -> None:
        given = ["--model", "http://127.0.0.1:9/v1", "--data", str(data), *words]
        assert eval_arena_generate.main(given) == 2
        assert told in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.usefixtures("words_are_tokens")
def test_killed_and_gone_on(
    data: Path, model: tuple[Model, str], capsys: pytest.CaptureFixture[str]
) -> None:
    served, url = model
    served.delay_seconds = 0.3
    path = data / BENCH / "model_answer" / "m.jsonl"
    words = ["--model", f"{url}#m", "--data", str(data), "--name", "m", "--concurrency", "1"]
    command = [sys.executable, "-c", WORDS, *words]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while not path.exists() or len(rows(path)) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    there = path.read_bytes()
    path.write_bytes(there + b'{"uid": "h2", "mess')  # as a power cut may leave it
    before = len(served.asked)
    served.delay_seconds = 0.0
    assert eval_arena_generate.main(words) == 0
    assert "half written" in capsys.readouterr().err
    assert path.read_bytes().startswith(there)
    assert sorted(row["uid"] for row in rows(path)) == ["c0", "c1", "h0", "h1", "h2"]
    assert len(served.asked) - before == 5 - there.count(b"\n")


@pytest.mark.usefixtures("words_are_tokens")
class TestLocal:
    @pytest.fixture
    def place(self, letters: Path, tmp_path: Path) -> list[str]:
        questions = [
            {"uid": uid, "category": "hard_prompt", "prompt": uid} for uid in ("ab", "cd", "efg")
        ]
        clones.write(tmp_path / "data" / BENCH / "question.jsonl", questions)
        words = ["--model", str(letters / "model"), "--data", str(tmp_path / "data")]
        return [*words, "--name", "m", "--max_new_tokens", "6", "--batch_size", "2"]

    def test_answers(
        self,
        letters: Path,
        place: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert eval_arena_generate.main(place) == 2
        assert "has no chat template, so it cannot be asked" in capsys.readouterr().err
        template = letters / "model" / "chat_template.jinja"
        template.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}h")
        try:
            assert eval_arena_generate.main(place) == 0
            path = tmp_path / "data" / BENCH / "model_answer" / "m.jsonl"
            first = rows(path)
            assert [row["uid"] for row in first] == ["ab", "cd", "efg"]
            for row in first:
                text = row["messages"][-1]["content"]["answer"]
                assert set(text) <= set("abcdefgh <pad>") and "<eos>" not in text
                assert row["finish_reason"] in ("stop", "length")
            assert eval_arena_generate.main(place) == 0
            assert rows(path) == first
            sampled = [*place, "--temperature", "1", "--name", "n"]
            assert eval_arena_generate.main(sampled) == 0
        finally:
            template.unlink()

    def test_a_question_that_is_too_long_stays_open(
        self,
        letters: Path,
        place: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = json.loads((letters / "model" / "config.json").read_bytes())
        context = config["max_position_embeddings"]
        questions = [
            {"uid": uid, "category": "hard_prompt", "prompt": prompt}
            for uid, prompt in (("long", "a" * context), ("short", "ab"))
        ]
        clones.write(tmp_path / "data" / BENCH / "question.jsonl", questions)
        template = letters / "model" / "chat_template.jinja"
        template.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}h")
        try:
            path = tmp_path / "data" / BENCH / "model_answer" / "m.jsonl"
            for _ in range(2):
                assert eval_arena_generate.main(place) == 1
                assert [row["uid"] for row in rows(path)] == ["short"]
                told = " ".join(capsys.readouterr().err.split())
                assert f"1 of 2 questions are left open: with up to {context + 1} tokens" in told
                assert "1 questions stay open" in told
            assert eval_arena_generate.main([*place, "--questions", "1"]) == 2
            assert "1 of 1 prompts are too long" in capsys.readouterr().err
        finally:
            template.unlink()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--model"),
        (["--model", "m", "--temperature", "-1"], "--temperature is -1"),
        (["--model", "m", "--top_p", "0"], "--top_p is 0"),
        (["--model", "m", "--seed", "-1"], "--seed is -1"),
        (["--model", "m", "--timeout", "0"], "--timeout is 0"),
        (["--model", "m", "--questions", "0"], "--questions is 0"),
        (["--model", "m", "--key_env", "NO_SUCH"], "no such environment variable"),
        (["--model", "m", "--key_env", "PATH", "--endpoints", "f"], "leave out --key_env"),
    ],
)
def test_flags(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        eval_arena_generate.main(words)
    assert told in capsys.readouterr().err
