"""Settings of a judge, as the official files have them and as ours do."""

from __future__ import annotations

from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.benches import EVERY
from openrlhf_js.evaluation.arena.settings import Price, read_settings
from openrlhf_js.evaluation.arena.verdict import PATTERNS
from openrlhf_js.evaluation.rates import Limits

NEWER = r"""
judge_model: gpt-4.1
temperature: 0.0
max_tokens: 16000
bench_name: arena-hard-v2.0
reference: null
regex_patterns:
  - \[\[([AB<>=]+)\]\]
  - \[([AB<>=]+)\]
prompt_template: "Q {QUESTION}\n\nA {ANSWER_A} B {ANSWER_B}"
model_list:
  - one
  - two
"""
OLDER = r"""
name: judgment config file
bench_name: arena-hard-v0.1
judge_model: gpt-4-1106-preview
reference: False # Optional
ref_model: null
baseline: True
baseline_model: gpt-4-0314
pairwise: True
temperature: 0
max_tokens: 4096
number_of_judgment_attempts: 2
regex_pattern: \[\[([AB<>=]+)\]\]
system_prompt: "Judge.\n"
prompt_template: ["Q {question_1} A {answer_1} B {answer_2}"]
model_list:
  - one
"""
OURS = """
judge_model: j
max_tokens: 10
system_prompt: {hard_prompt: hard, creative_writing: creative}
baselines: {hard_prompt: b}
prices:
  j: {input: 2.0, output: 8}
limits: {concurrency: 3, requests_per_minute: 60}
surprise: 1
max_tokens_name: max_completion_tokens
"""


def settings(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_the_newer_official_file(tmp_path: Path) -> None:
    found = read_settings(settings(tmp_path / "s.yaml", NEWER), pytest.fail)
    assert (found.judge_model, found.temperature, found.max_tokens) == ("gpt-4.1", 0.0, 16000)
    assert found.bench_name == "arena-hard-v2.0"
    assert found.regex_patterns == PATTERNS
    assert found.prompt_template == "Q {QUESTION}\n\nA {ANSWER_A} B {ANSWER_B}"
    assert found.model_list == ("one", "two")
    assert found.system_prompts == {} and found.prices == {} and found.limits == Limits()


def test_the_older_official_file(tmp_path: Path) -> None:
    found = read_settings(settings(tmp_path / "s.yaml", OLDER), pytest.fail)
    assert found.prompt_template == "Q {QUESTION} A {ANSWER_A} B {ANSWER_B}"
    assert found.system_prompts == {EVERY: "Judge.\n"}
    assert found.baselines == {EVERY: "gpt-4-0314"}
    assert found.regex_patterns == PATTERNS[:1]
    assert found.temperature == 0.0


def test_ours(tmp_path: Path) -> None:
    said: list[str] = []
    path = settings(tmp_path / "s.yaml", OURS)
    found = read_settings(path, said.append)
    assert found.prices == {"j": Price(2.0, 8)}
    assert found.limits == Limits(concurrency=3, requests_per_minute=60)
    assert found.temperature is None
    assert found.max_tokens_name == "max_completion_tokens"
    assert found.system_prompts == {"hard_prompt": "hard", "creative_writing": "creative"}
    assert found.baselines == {"hard_prompt": "b"}
    assert said == [f"{path}: the key 'surprise' is unknown here; it is left out"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("max_tokens: 1", "'judge_model' must be text, not None"),
        ("judge_model: j", "'max_tokens' must be a whole number of 1 or more, not None"),
        ("judge_model: j\nmax_tokens: 1\nmax_tokens_name: t", "must be max_tokens or max_comp"),
        ("judge_model: j\nmax_tokens: true", "'max_tokens' must be a whole number"),
        ("judge_model: j\nmax_tokens: 1\ntemperature: warm", "'temperature' must be a number"),
        ("judge_model: j\nmax_tokens: 1\ntemperature: .nan", "'temperature' must be a number"),
        ("judge_model: j\nmax_tokens: 1\nreference: [m]", "'reference' is ['m'], which is not"),
        ("judge_model: j\nmax_tokens: 1\npairwise: false", "'pairwise' is False, which is not"),
        (
            "judge_model: j\nmax_tokens: 1\nprompt_template: '{QUESTION} {ANSWER_A}'",
            "must hold {ANSWER_B} once; it has it 0 times",
        ),
        ("judge_model: j\nmax_tokens: 1\nregex_patterns: ['[']", "is no regular expression"),
        ("judge_model: j\nmax_tokens: 1\nprices: {j: 2}", "the price of 'j' must be {input: ..., "),
        (
            "judge_model: j\nmax_tokens: 1\nprices: {j: {input: -1, output: 2}}",
            "the input price of 'j' must be 0 or more",
        ),
        ("judge_model: j\nmax_tokens: 1\nprices: [1]", "'prices' must hold prices by judge"),
        ("judge_model: j\nmax_tokens: 1\nlimits: {speed: 1}", "'limits' may hold concurrency, "),
        ("judge_model: j\nmax_tokens: 1\nlimits: {concurrency: 0}", "'limits': concurrency is 0"),
        ("judge_model: j\nmax_tokens: 1\nbaselines: [b]", "'baselines' must be text, or texts by"),
        ("judge_model: j\nmax_tokens: 1\nmodel_list: one", "'model_list' must be a list of texts"),
        ("- judge_model", "must hold 'name: value' lines, not list"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(tmp_path: Path, lines: str, told: str) -> None:
    path = settings(tmp_path / "s.yaml", lines)
    with pytest.raises(ValueError) as caught:
        read_settings(path, pytest.fail)
    assert str(caught.value).startswith(str(path)) and told in str(caught.value)


def test_an_error_does_not_show_a_key(tmp_path: Path) -> None:
    path = settings(tmp_path / "s.yaml", "judge_model: j\napi_key: sk-secret: x\n")
    with pytest.raises(ValueError) as caught:
        read_settings(path, pytest.fail)
    assert "line 2" in str(caught.value) and "secret" not in str(caught.value)


def test_no_objects_and_no_giants(tmp_path: Path) -> None:
    path = settings(tmp_path / "s.yaml", "judge_model: !!python/object/apply:os.system [ls]")
    with pytest.raises(ValueError, match="line 1: not YAML"):
        read_settings(path, pytest.fail)
    with pytest.raises(ValueError, match="is larger than 1 MiB"):
        read_settings(settings(path, "#" * (2**20 + 1)), pytest.fail)
    laughs = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join(['*' + a] * 8)}]\n"
        for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
    with pytest.raises(ValueError, match="'judge_model' must be text"):
        read_settings(settings(path, laughs + "judge_model: *j\nmax_tokens: 1\n"), pytest.fail)
