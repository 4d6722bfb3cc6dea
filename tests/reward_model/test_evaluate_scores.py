import json
import math
import os
import subprocess
import sys

import pytest

from openrlhf_js.reward_model.score_file import (
    BLOCK_BYTES,
    Rewards,
    ScoreFile,
    hash_of_model,
    model_files,
)
from openrlhf_js.reward_model.scoring import ScoringFailed, score_pairs

IDENTITY = {"texts": "1f", "model": "2e"}
TEXTS = [(f"chosen {i}", f"rejected {i}") for i in range(10)]


def quiet(done):
    pass


def scorer(texts):
    """Rewards that tell the texts apart."""
    return [int(text.split()[1]) + text.startswith("chosen") / 2 for text in texts]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rewards_are_read_back(tmp_path):
    with ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file:
        assert file.rewards == {}
        file.append({3: Rewards(0.1, -2.5), 1: Rewards(1e-30, 7.0)})
    with ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file:
        assert file.rewards == {3: (0.1, -2.5), 1: (1e-30, 7.0)}


def test_every_pair_is_scored_once(tmp_path):
    asked, told = [], []

    def counting(texts):
        asked.extend(texts)
        return scorer(texts)

    with ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file:
        score_pairs(TEXTS, counting, file, 4, told.append)
        assert file.rewards == {i: (i + 0.5, i) for i in range(10)}
    assert told == [4, 8, 10]
    assert len(asked) == 20
    with ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file:
        score_pairs(TEXTS, counting, file, 4, told.append)
    assert len(asked) == 20
    assert len(lines(tmp_path / "scores.jsonl")) == 11


def test_what_was_done_before_a_failure_is_kept(tmp_path):
    calls = []

    def failing(texts):
        calls.append(texts)
        if len(calls) == 2:
            raise ScoringFailed("gone")
        return scorer(texts)

    with (
        ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file,
        pytest.raises(ScoringFailed, match="gone"),
    ):
        score_pairs(TEXTS, failing, file, 3, quiet)
    with ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file:
        assert sorted(file.rewards) == [0, 1, 2]
        score_pairs(TEXTS, failing, file, 3, quiet)
        assert file.rewards == {i: (i + 0.5, i) for i in range(10)}


def test_a_kill_at_any_byte_costs_at_most_one_pair(tmp_path):
    path = tmp_path / "scores.jsonl"
    with ScoreFile(path, IDENTITY, 10) as file:
        score_pairs(TEXTS, scorer, file, 5, quiet)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with ScoreFile(path, IDENTITY, 10) as file:
            kept = len(file.rewards)
            assert kept == max(0, whole[:size].count(b"\n") - 1)
            score_pairs(TEXTS, scorer, file, 5, quiet)
            assert file.rewards == {i: (i + 0.5, i) for i in range(10)}
        assert path.read_bytes() == whole


@pytest.mark.parametrize("name", ["texts", "model"])
def test_another_model_or_file_is_noticed(tmp_path, name):
    path = tmp_path / "scores.jsonl"
    with ScoreFile(path, IDENTITY, 10) as file:
        file.append({0: Rewards(1.0, 2.0)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"with another {name}; name a new folder"):
        ScoreFile(path, {**IDENTITY, name: "other"}, 10)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "7",
        "{",
        '{"pair": 0, "chosen": NaN, "rejected": 1}',
        '{"pair": 0, "chosen": 1}',
        '{"pair": 0, "chosen": "1", "rejected": 1}',
        '{"pair": 0, "chosen": true, "rejected": 1}',
        '{"pair": 10, "chosen": 1, "rejected": 1}',
        '{"pair": -1, "chosen": 1, "rejected": 1}',
        '{"pair": 0.0, "chosen": 1, "rejected": 1}',
        "\udcff",
    ],
)
def test_a_damaged_line_is_no_reward(tmp_path, line):
    path = tmp_path / "scores.jsonl"
    with ScoreFile(path, IDENTITY, 10) as file:
        file.append({0: Rewards(1.0, 2.0)})
    with path.open("ab") as raw:
        raw.write(line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(ValueError, match=r"scores\.jsonl, line 3: no reward"):
        ScoreFile(path, IDENTITY, 10)


@pytest.mark.parametrize("header", ["[]", "null", "{", "rewards"])
def test_a_file_of_something_else_is_left_alone(tmp_path, header):
    path = tmp_path / "scores.jsonl"
    path.write_text(header + "\n")
    with pytest.raises(ValueError, match="line 1"):
        ScoreFile(path, IDENTITY, 10)
    assert path.read_text() == header + "\n"


def test_two_evaluations_do_not_share_a_file(tmp_path):
    path = tmp_path / "scores.jsonl"
    program = (
        "import sys; from pathlib import Path\n"
        "from openrlhf_js.reward_model.score_file import ScoreFile\n"
        "ScoreFile(Path(sys.argv[1]), {}, 1)"
    )
    with ScoreFile(path, {}, 1):
        other = subprocess.run(
            [sys.executable, "-c", program, os.fspath(path)], capture_output=True, text=True
        )
        assert "is being written by another evaluation" in other.stderr
    with ScoreFile(path, {}, 1):
        pass


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", True, [1.0]])
def test_what_is_no_finite_number_is_no_reward(tmp_path, value):
    def broken(texts):
        return [value if text == "rejected 6" else 1.0 for text in texts]

    with (
        ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file,
        pytest.raises(ScoringFailed, match=r"the rejected response of pair 7 got the reward"),
    ):
        score_pairs(TEXTS, broken, file, 4, quiet)
    assert len(lines(tmp_path / "scores.jsonl")) == 1 + 4


@pytest.mark.parametrize("count", [0, 7, 9])
def test_wrong_counts_are_no_rewards(tmp_path, count):
    with (
        ScoreFile(tmp_path / "scores.jsonl", IDENTITY, 10) as file,
        pytest.raises(ScoringFailed, match=f"8 texts got {count} rewards"),
    ):
        score_pairs(TEXTS, lambda texts: [1.0] * count, file, 4, quiet)
    assert len(lines(tmp_path / "scores.jsonl")) == 1


def test_the_hash_of_a_model_says_how_far_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(2 * BLOCK_BYTES + 5))
    told = []
    assert hash_of_model(tmp_path, told.append) == hash_of_model(tmp_path)
    assert told == [2, 2 + BLOCK_BYTES, 2 + 2 * BLOCK_BYTES, 2 + 2 * BLOCK_BYTES + 5]
    assert told[-1] == sum(path.stat().st_size for path in model_files(tmp_path))


def test_the_hash_of_a_model_sees_weights_names_and_settings(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"12")
    seen = {hash_of_model(tmp_path)}
    (tmp_path / "README.md").write_text("not looked at")
    assert hash_of_model(tmp_path) in seen
    for name, content in (
        ("model.safetensors", b"13"),
        ("config.json", b'{"mean": 1}'),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", b"x"),
    ):
        (tmp_path / name).write_bytes(content)
        seen.add(hash_of_model(tmp_path))
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    seen.add(hash_of_model(tmp_path))
    assert len(seen) == 6
