"""Sampling into a folder: resumed, grown, graded anew, and refused."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from baseline_research.lab.grading import Grader, RewardFailed
from baseline_research.lab.pool import fill, open_samples
from paired_eval.sampling import engines
from paired_eval.sampling.prompts import Prompt

END = 9
SOURCE = {"model_sha256": "abc", "prompts": "here"}


class Formula:
    """An engine whose responses are a formula of prompt and key: 1 to 4 tokens, some unfinished."""

    def __init__(self, stop_after=None):
        self.calls = 0
        self.stop_after = stop_after

    def sample(self, prompts, parameters, keys, images):
        if self.calls == self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        keys = [0] * len(prompts) if keys is None else keys
        return [self._one(prompt, key) for prompt, key in zip(prompts, keys, strict=True)]

    def _one(self, prompt, key):
        tokens = np.random.default_rng([sum(prompt), key]).integers(0, 9, 1 + key % 4)
        return np.append(tokens[:3], [END] if key % 3 else []).astype(np.int32)


def prompts(count):
    return [Prompt(f"p{i}:", f"l{i}", f"g{i % 2}", [i, i + 1]) for i in range(count)]


def decode(tokens, skip_special_tokens):
    assert not skip_special_tokens
    return f"p{tokens[0]}:" + "".join(map(str, tokens[2:]))


def digits(queries, texts, labels, datasources):
    """The mean of a response's digits: a reward that differs from response to response."""
    assert datasources == [f"g{int(label[1:]) % 2}" for label in labels]
    rewards = []
    for query, text in zip(queries, texts, strict=True):
        response = query[len(text) :]
        rewards.append(sum(map(int, response)) / max(len(response), 1))
    return {"rewards": rewards}


DIGITS = Grader(digits, "digits.py", "d1")


def run(folder, n=5, m=6, rows=4, engine=None, grader=DIGITS, seed=0, temperature=1.0, asked=None):
    """Samples n x m responses into a folder, except what is there, and returns the engine."""
    engine = engine or Formula()
    settings = SimpleNamespace(
        seed=seed,
        rows=rows,
        max_new_tokens=4,
        temperature=temperature,
        top_p=1.0,
        engine_name="formula",
        device_name="here",
        dtype_name="float32",
        trust_remote_code=False,
        engine_identity=lambda: {"engine": "formula", "device": "here"},
    )
    files = SimpleNamespace(
        folder=Path("model"),
        tokenizer=SimpleNamespace(decode=decode),
        ends=lambda: (END,),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engines.ENGINES, "formula", lambda files, settings, room: engine)
        fill(folder, settings, files, SOURCE, asked or prompts(n), m, grader)
    return engine


def tokens_of(samples):
    """The tokens of all responses, as lists."""
    return [[tokens.tolist() for tokens in group] for group in samples.response_tokens]


def same(a, b):
    assert a.rewards.tolist() == b.rewards.tolist()
    assert a.finished.tolist() == b.finished.tolist()
    assert a.greedy_rewards.tolist() == b.greedy_rewards.tolist()
    assert tokens_of(a) == tokens_of(b)


@settings(max_examples=8)
@given(stop=st.integers(0, 6), rows=st.sampled_from([1, 3, 100]))
def test_interrupted_and_resumed_is_as_uninterrupted(tmp_path_factory, stop, rows):
    whole = tmp_path_factory.mktemp("whole")
    broken = tmp_path_factory.mktemp("broken")
    size = {"n": 3, "m": 2, "rows": rows}
    calls = run(whole, **size).calls
    if stop < calls:
        with pytest.raises(KeyboardInterrupt):
            run(broken, **size, engine=Formula(stop_after=stop))
        assert run(broken, **size).calls == calls - stop
    assert run(broken, **size).calls == (0 if stop < calls else calls)
    same(open_samples(whole), open_samples(broken))


def test_more_of_everything_keeps_what_is_there(tmp_path):
    run(tmp_path / "grown", n=3, m=2)
    first = open_samples(tmp_path / "grown")
    run(tmp_path / "grown", n=2, m=5)
    assert open_samples(tmp_path / "grown").rewards.shape == (3, 2)
    assert open_samples(tmp_path / "grown", prompts=2).rewards.shape == (2, 5)
    run(tmp_path / "grown", n=6, m=5)
    run(tmp_path / "once", n=6, m=5, rows=100)
    grown = open_samples(tmp_path / "grown")
    assert grown.prompts == prompts(6)
    assert grown.rewards[2, 4] == grown.response_tokens[2][4].mean()
    same(grown, open_samples(tmp_path / "once"))
    same(grown.at(range(3), 2), first)
    assert run(tmp_path / "grown", n=4, m=3).calls == 0


@pytest.mark.parametrize("error", [KeyError("no such label"), SystemExit("no such label")])
def test_a_reward_function_that_fails_costs_no_sampling(error, tmp_path):
    def broken(queries, texts, labels, datasources):
        if "l1" in labels:
            raise error
        return digits(queries, texts, labels, datasources)

    message = rf"broken.py: {type(error).__name__}: '?no such label'?\namong resp"
    with pytest.raises(RewardFailed, match=message):
        run(tmp_path, grader=Grader(broken, "broken.py", "b1"))
    with pytest.raises(ValueError, match="is unfinished"):
        open_samples(tmp_path)
    mended = Grader(digits, "mended.py", "b2")
    again = run(tmp_path, grader=mended)
    assert again.calls == run(tmp_path / "new").calls - 1
    same(open_samples(tmp_path), open_samples(tmp_path / "new"))


def test_other_settings_and_prompts_are_refused(tmp_path):
    run(tmp_path, n=3, m=2)
    with pytest.raises(ValueError, match=r"(?s)another --out.*temperature: 1.0 there, 0.7 now"):
        run(tmp_path, n=3, m=2, temperature=0.7)
    with pytest.raises(ValueError, match="other prompts; give another --out"):
        run(tmp_path, asked=prompts(4)[1:])
    assert run(tmp_path, n=3, m=2).calls == 0


QUERIES = ["ab", "abb"]
PROMPTS = ["a", "a"]
LABELS = ["1", "2"]
DATASOURCES = ["", ""]


def grader(answer):
    return Grader(lambda *_: answer, "r.py", "sha")


def test_what_a_reward_function_may_return():
    for answer in (
        {"rewards": torch.tensor([[1.0], [0.5]], requires_grad=True), "scores": None},
        np.array([1, 0.5], dtype=np.float32),
    ):
        rewards = grader(answer).grade(QUERIES, PROMPTS, LABELS, DATASOURCES)
        assert rewards.tolist() == [1, 0.5]
    one_each = "one finite number for each of 2 queries"
    for answer, message in (
        ([1.0, None], "r.py: TypeError"),
        ([1.0, float("inf")], f"{one_each}: .* inf"),
        ([1.0], one_each),
    ):
        with pytest.raises(RewardFailed, match=message):
            grader(answer).grade(QUERIES, PROMPTS, LABELS, DATASOURCES)
