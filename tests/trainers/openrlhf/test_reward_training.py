"""Reward training: its texts against upstream's own dataset, its flags, and what it refuses."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import flag_table, save_policy, write_lines
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from baseline_research.tiny.tasks import END
from openrlhf_js.cli.rm import train as main
from openrlhf_js.common.environment import OF_ONE_RANK
from openrlhf_js.reward_model.preferences import Keys, encode, ended, pair, rendered

# As Llama 3 has it: its own mark at the end of a turn, content without space around it.
CHAT = (
    "{% for m in messages %}{% if m['role'] not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('no such role') }}{% endif %}"
    "({{ m['role'] }}){{ m['content'] | trim }}=\n{% endfor %}"
    "{% if add_generation_prompt %}(assistant){% endif %}"
)
CONTENTS = ["12", "3 4\n", "\n5\n\n", f"67{END}", f"8{END}\n", "", "é\u2028 9", "{} {x}"]


def turns(*contents: str, last: str = "assistant") -> list[dict[str, str]]:
    roles = ["user", "assistant"] * len(contents)
    if last == "user":
        roles = roles[: len(contents)]
    else:
        roles = (roles[1:] if len(contents) % 2 else roles)[: len(contents)]
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]


def rows_of(kind: str) -> list[dict[str, Any]]:
    pairs = [(one, other) for one in CONTENTS for other in CONTENTS if one != other]
    if kind == "text":
        return [{"chosen": a, "rejected": b} for a, b in pairs]
    if kind == "prompt":
        return [{"prompt": a + b, "chosen": a, "rejected": b} for a, b in pairs]
    if kind == "messages":
        return [{"chosen": turns(b, a), "rejected": turns(b, b + a)} for a, b in pairs]
    return [
        {"prompt": turns(b, last="user"), "chosen": turns(a), "rejected": turns(b)}
        for a, b in pairs
    ]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({each: i for i, each in enumerate([END, *alphabet])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END)
    tokenizer.chat_template = CHAT
    return tokenizer


class Heard:
    """A tokenizer that keeps what it is given."""

    def __init__(self, inner: Any):
        self.inner = inner
        self.texts = []

    def __call__(self, text: str, **options: Any) -> Any:
        self.texts.append(text)
        return self.inner(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("kind", "chat", "input_template"),
    [
        ("text", False, None),
        ("prompt", False, None),
        ("prompt", False, "({})=\n"),
        ("messages", True, None),
        ("messages and prompt", True, None),
    ],
)
def test_texts_and_cuts_are_those_of_upstreams_dataset(kind, chat, input_template):
    from datasets import Dataset
    from openrlhf.datasets import RewardDataset

    tokenizer = byte_tokenizer()
    rows = rows_of(kind)
    prompt_key = "prompt" if "prompt" in kind else None
    data = SimpleNamespace(
        prompt_key=prompt_key,
        chosen_key="chosen",
        rejected_key="rejected",
        apply_chat_template=chat,
    )
    strategy = SimpleNamespace(args=SimpleNamespace(data=data))
    theirs = RewardDataset(
        Dataset.from_list(rows), tokenizer, 8, strategy, input_template, num_processors=1
    )
    theirs.tokenizer = heard = Heard(tokenizer)
    trained = [theirs[index] for index in range(len(theirs))]
    template = tokenizer.apply_chat_template if chat else None
    pairs = (pair(row, Keys(prompt_key), "") for row in rows)
    both = (rendered(each, template, input_template)[:2] for each in pairs)
    ours = [tuple(ended(text, tokenizer.eos_token) for text in sides) for sides in both]
    assert len(ours) == len(CONTENTS) * (len(CONTENTS) - 1)
    assert heard.texts == [text for both in ours for text in both]
    assert any(len(encode(tokenizer, [text], 100)[0]) > 8 for text in heard.texts)
    for both, (chosen, _, rejected, _, _) in zip(ours, trained, strict=True):
        assert [chosen[0].tolist(), rejected[0].tolist()] == encode(tokenizer, both, 8)


GOOD = {
    "model.model_name_or_path": "model",
    "data.dataset": "pairs.jsonl",
    "eval.dataset": "held_out.jsonl",
    "data.prompt_key": "prompt",
    "data.max_len": "16",
    "train.batch_size": "8",
    "train.micro_batch_size": "4",
    "js.device": "cpu",
    "js.dry_run": "",
}


def sums(count: int, first: int = 0) -> list[dict[str, Any]]:
    numbers = range(first, first + count)
    return [{"prompt": f"sort({n})=", "chosen": f"{n}", "rejected": f"{n}1"} for n in numbers]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which the command line GOOD has nothing wrong."""
    monkeypatch.chdir(tmp_path)
    for name in OF_ONE_RANK:
        monkeypatch.delenv(name, raising=False)
    save_policy(tmp_path / "model")
    write_lines("pairs.jsonl", sums(10))
    write_lines("held_out.jsonl", sums(50, 100))
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def run(changes: dict[str, str | None], *more: str) -> int:
    pairs = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return main([f"--{n}={v}" if v else f"--{n}" for n, v in pairs.items()] + list(more))


def refused(capsys: pytest.CaptureFixture[str], *args: Any) -> list[str]:
    assert run(*args) == 2
    prefix = "openrlhf_js: "
    said = capsys.readouterr().err.splitlines()
    return [line.removeprefix(prefix) for line in said if line.startswith(prefix)]


def test_a_dry_run_shows_the_pairs_and_every_flag(folder, capsys):
    assert run({"logger.wandb.key": "secret"}) == 0
    out = capsys.readouterr().out
    assert "pairs.jsonl" in out
    assert "held_out.jsonl" in out
    assert "\ntrain.batch_size: 8\n" in out.partition("# defaults")[0]
    assert "\nadam.lr: 9.0e-06\n" in out
    assert "secret" not in out


REFUSED = [row for _, *row in flag_table(Path(__file__).with_name("reward_checks.txt"))]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=str)
def test_bad_input_is_reported_before_a_model_is_loaded(changes, said, folder, capsys):
    assert said in "\n".join(refused(capsys, changes))


def test_a_model_without_padding_token_can_be_trained_but_not_without_an_end(folder, capsys):
    path = Path("model/tokenizer_config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "pad_token": None}))
    assert run({}) == 0
    path.write_text(json.dumps({**config, "pad_token": None, "eos_token": None}))
    assert any("has no EOS token" in line for line in refused(capsys, {}))


def test_problems_in_pairs_stop_unless_they_are_allowed(folder, capsys):
    same = {"prompt": "sort(1)=", "chosen": "1", "rejected": "1"}
    write_lines("pairs.jsonl", [*sums(9), same])
    (line,) = refused(capsys, {})
    assert "same (1)" in line
    assert "--js.allow same" in line
    assert run({"data.prompt_key": None}, "--js.allow", "same", "cut") == 0
    assert "10 (100.0 %) x pair without its prompt: --data.prompt_key" in capsys.readouterr().out
