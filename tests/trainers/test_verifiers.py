"""A taskset of verifiers trains in TRL and in OpenRLHF: `bash scripts/trainers.sh verifiers`."""

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="bash scripts/trainers.sh verifiers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verifiers.v1.env import Env

import openrlhf_js.trainers.verifiers as ours

MARKS = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
TOOLS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ENV = {"taskset": {"id": "sevens_taskset"}, "agent": {"runtime": {"type": "subprocess"}}}
RENDERER = {"name": "qwen3", "enable_thinking": False}


def make_tokenizer(folder: Path) -> Any:
    """A token for each character and for each mark of Qwen's template, saved and loaded."""
    tokens = [*MARKS, *TOOLS, *map(chr, range(32, 127)), "\n"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<|im_end|>"}
    special = [*MARKS[2:3], *MARKS[4:5], *TOOLS, *MARKS[5:]]
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        additional_special_tokens=special,
        chat_template=CHAT,
        padding_side="left",
        **names,
    ).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("policy"))


@pytest.fixture(autouse=True)
def taskset_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def make_tasks(**renderer: Any) -> ours.Tasks:
    return ours.Tasks(ENV, renderer=RENDERER | renderer)


class Script:
    """An engine that answers with given replies, and keeps the contexts that it was asked for."""

    def __init__(self, tokenizer: Any, *replies: str):
        self.tokenizer = tokenizer
        self.replies = iter(replies)
        self.contexts: list[str] = []

    async def sample(self, context: list[int], stop: list[int]) -> ours.Sampled:
        self.contexts.append(self.tokenizer.decode(context))
        ids = self.tokenizer(next(self.replies), add_special_tokens=False)["input_ids"]
        ids.append(self.tokenizer.eos_token_id)
        assert ids[-1] in stop
        return ours.Sampled(ids, [-place / 8 for place in range(1, len(ids) + 1)], False)


def run(tasks: ours.Tasks, label: str, tokenizer: Any, sample: ours.Sample) -> ours.Scored:
    async def once() -> ours.Scored:
        try:
            return await tasks.run(label, tokenizer.name_or_path, sample)
        finally:
            await tasks.close()

    return asyncio.run(once())


# --- without a model -----------------------------------------------------------------------------


def test_rows_hold_the_messages_and_find_the_task(tmp_path: Path) -> None:
    tasks = make_tasks()
    tasks.write(tmp_path / "tasks.jsonl", count=5)
    rows = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert rows == tasks.rows(5) and len(tasks.rows()) == 8
    assert len({row["label"] for row in rows}) == 5
    system, user = rows[3]["prompt"]
    assert system == {"role": "system", "content": "Be brief", "task": rows[3]["label"]}
    assert user == {"role": "user", "content": "Write 3", "task": rows[3]["label"]}
    for row in (rows[4], rows[1]):
        assert make_tasks().task(row["label"]).data.prompt == row["prompt"][1]["content"]


def test_sampled_tokens_train_and_rewards_have_their_weights(tokenizer: Any) -> None:
    """Two turns: the engine reads exactly the tokens before its own, and these alone train."""
    tasks, script = make_tasks(), Script(tokenizer, "77", "7 1")
    row = run(tasks, tasks.rows()[3]["label"], tokenizer, script.sample)
    first, second = script.contexts
    text = tokenizer.decode(row.token_ids)
    assert first == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nWrite 3<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert second.startswith(f"{first}77<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n")
    assert text == f"{second}7 1<|im_end|>"
    written = [token for token, sampled in zip(row.token_ids, row.mask, strict=True) if sampled]
    assert tokenizer.decode(written) == "77<|im_end|>7 1<|im_end|>"
    log_probs = [value for value, sampled in zip(row.log_probs, row.mask, strict=True) if sampled]
    assert log_probs == [-1 / 8, -2 / 8, -3 / 8, -1 / 8, -2 / 8, -3 / 8, -4 / 8]
    assert sum(row.log_probs) == sum(log_probs)
    assert row.reward == pytest.approx(2.0 * 0.3 - 0.5 * 1)
    assert row.logs == {
        "rewards/sevens": pytest.approx(0.3),
        "rewards/words": 1.0,
        "metrics/turns": 2.0,
    }


@pytest.mark.parametrize(
    ("replies", "renderer", "message"),
    [
        (["7", "x"], {}, "an x cannot be scored"),
        ([], {}, "HarnessError"),
        # thoughts are left out of the second context, which begins another branch
        (["a</think>7", "7"], {"enable_thinking": True}, "1 traces with 2 branches"),
    ],
)
def test_what_was_not_scored_is_no_reward(
    tokenizer: Any, replies: list[str], renderer: dict[str, Any], message: str
) -> None:
    tasks = make_tasks(**renderer)
    with pytest.raises(ours.Unscored, match=message):
        run(tasks, tasks.rows()[0]["label"], tokenizer, Script(tokenizer, *replies).sample)
