"""Endpoints as the official files name them; their keys go nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.api_config import ApiModel, read_api_model
from openrlhf_js.evaluation.endpoint import Endpoint

CONFIG = """
gpt-4.1:
    model: gpt-4.1-2025
    endpoints: null
    api_type: openai
    parallel: 64
    max_tokens: 32000
    temperature: 0.0
local:
    model_name: org/m
    endpoints:
      - api_base: http://127.0.0.1:8000/v1
        api_key: '-'
      - api_base: http://127.0.0.1:8001/v1
        api_key: ${OWN_KEY}
        model_name: other
    system_prompt: be kind
written:
    endpoints: [{api_base: "http://h/v1", api_key: sk-secret-0123456789}]
thinking: {api_type: openai_thinking, endpoints: null, temperature: 1}
claude: {api_type: anthropic, endpoints: null}
qwq: {api_type: openai, local_engine: true}
example: {endpoints: [{api_base: "http://h/v1", api_key: <your_api_key>}]}
bare: {endpoints: [{api_key: x}]}
many: {parallel: many}
none: {parallel: 0}
odd: 3
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "api_config.yaml"
    found.write_text(CONFIG)
    return found


@pytest.mark.parametrize("mark", "*!")
def test_a_key_that_yaml_misreads_is_not_told(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.yaml").write_text(f"m: {{endpoints: [{{api_key: {mark}sk-0123456789 }}]}}\n")
    with pytest.raises(ValueError, match="not YAML") as caught:
        read_api_model(tmp_path / "a.yaml", "m", pytest.fail)
    assert "0123" not in str(caught.value)


def test_what_they_say(path: Path) -> None:
    openai = Endpoint("https://api.openai.com/v1", "gpt-4.1-2025", "OPENAI_API_KEY")
    assert read_api_model(path, "gpt-4.1", pytest.fail) == ApiModel((openai,), 64, 0.0, 32000, "")
    found = read_api_model(path, "local", pytest.fail)
    assert found.endpoints == (
        Endpoint("http://127.0.0.1:8000/v1", "org/m"),
        Endpoint("http://127.0.0.1:8001/v1", "other", "OWN_KEY"),
    )
    assert found[1:] == (None, None, None, "be kind", False)
    thinking = read_api_model(path, "thinking", pytest.fail)
    assert thinking.thinking and thinking.temperature is None


def test_a_key_in_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRLHF_JS_FILE_KEY_1", "")  # put back when the test ends
    said: list[str] = []
    found = read_api_model(path, "written", said.append)
    assert found.endpoints == (Endpoint("http://h/v1", "written", "OPENRLHF_JS_FILE_KEY_1"),)
    assert os.environ["OPENRLHF_JS_FILE_KEY_1"] == "sk-secret-0123456789"
    assert len(said) == 1 and "write 'api_key: $NAME'" in said[0]
    assert "secret" not in said[0] + repr(found)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody", "has no 'nobody'; it has gpt-4.1, local, "),
        ("odd", "has no 'odd'"),
        ("claude", "'api_type' is 'anthropic'; openai and openai_thinking are understood"),
        ("qwq", "'local_engine': give the model's folder"),
        ("example", "the 'api_key' of endpoint 1 is an example"),
        ("bare", "endpoint 1 has no 'api_base'"),
        ("many", "'parallel' must be a number, not 'many'"),
        ("none", "'parallel' must be a number, not 0"),
    ],
)
def test_what_is_wrong(path: Path, name: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_api_model(path, name, pytest.fail)
    assert told in str(caught.value) and "secret" not in str(caught.value)
