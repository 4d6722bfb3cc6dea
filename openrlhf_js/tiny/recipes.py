"""A recipe's own flags with everything large in them made small: models, data, batches, machines.

What a recipe is about stays: the program, the estimator, the learning rate, the responses to a
prompt and the gradient updates of a step. So a recipe can be tried on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openrlhf_js.tiny import model, preferences
from openrlhf_js.tiny.tasks import write_lines

PROMPTS, PROMPTS_PER_STEP = 64, 16
PAIRS, HELD_OUT_PAIRS, PAIRS_PER_STEP = 512, 128, 64
MAX_TOKENS = 48
ROLES = ("actor", "critic", "ref", "reward")

Flags = dict[str, list[str]]  # without dashes; of a flag that occurs twice, the last values


def tiny_training(argv: list[str], folder: Path) -> list[str]:
    """The command line of a policy's training on the tiny model, with data in `folder`."""
    given = _parse(argv)
    responses = _count(given, "rollout.n_samples_per_prompt", 1)
    step = _count(given, "rollout.batch_size", 1024) * responses
    updates = max(1, step // _count(given, "train.batch_size", 128))
    key, messages = given.get("data.input_key", ["input"])[0], "data.apply_chat_template" in given
    prompts = [pair.prompt for pair in _pairs(PROMPTS, held_out=False)]
    write_lines(
        folder / "prompts.jsonl",
        ({key: [{"role": "user", "content": p}] if messages else p} for p in prompts),
    )
    _write_policy(folder / "policy")
    sizes = {
        "actor.model_name_or_path": folder / "policy",
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_samples": PROMPTS,
        "data.max_len": MAX_TOKENS,
        "rollout.max_new_tokens": preferences.TASK.max_new_tokens,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.micro_batch_size": 8,
        "rollout.max_tokens_per_gpu": 1024,
        "train.batch_size": PROMPTS_PER_STEP * responses // updates,
        "train.micro_batch_size": 8,
        "train.max_tokens_per_gpu": 1024,
        "vllm.num_engines": 1,
        "vllm.tensor_parallel_size": 1,
        **{f"{role}.num_nodes": 1 for role in ROLES},
        **{f"{role}.num_gpus_per_node": 1 for role in ROLES},
    }
    if "reward.remote_url" not in given:
        preferences.write_reward_model(folder / "reward_model", 1)
        sizes["reward.model_name_or_path"] = folder / "reward_model"
    return _written(given, sizes, folder)


def tiny_reward_training(argv: list[str], folder: Path) -> list[str]:
    """The command line of a reward model's training on tiny preferences, with data in `folder`."""
    given = _parse(argv)
    _write_policy(folder / "policy")
    for name, count in (("train", PAIRS), ("held_out", HELD_OUT_PAIRS)):
        pairs = _pairs(count, held_out=name == "held_out")
        write_lines(folder / f"{name}.jsonl", map(_conversations, pairs))
    sizes = {
        "model.model_name_or_path": folder / "policy",
        "data.dataset": folder / "train.jsonl",
        "eval.dataset": folder / "held_out.jsonl",
        "data.max_samples": PAIRS,
        "data.max_len": MAX_TOKENS,
        "train.batch_size": PAIRS_PER_STEP,
        "train.micro_batch_size": 8,
    }
    return _written(given, sizes, folder)


def _parse(argv: list[str]) -> Flags:
    given: Flags = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            given[name] = [value] if equals else []
        else:
            given.setdefault(name, []).append(word)
    return given


def _count(given: Flags, name: str, default: int) -> int:
    values = given.get(name, [str(default)])
    if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
        raise ValueError(f"--{name} takes one number from 1 on, got {' '.join(values) or 'none'}")
    return int(values[0])


def _written(given: Flags, sizes: dict[str, Any], folder: Path) -> list[str]:
    flags = {name: values for name, values in given.items() if not name.startswith("logger.wandb")}
    replaced = {
        **sizes,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "logger.tensorboard_dir": folder / "tensorboard",
        "js.device": "cpu",
    }
    flags |= {name: [str(value)] for name, value in replaced.items()}
    return [word for name, values in flags.items() for word in (f"--{name}", *values)]


def _write_policy(folder: Path) -> None:
    tokenizer = model.make_tokenizer(preferences.TASK)
    model.save(model.make_model(tokenizer, seed=0), tokenizer, folder)


def _pairs(count: int, held_out: bool) -> Iterator[preferences.Preference]:
    parts = preferences.split(0, preferences.HELD_OUT_PROMPTS)
    prompts = [parts.held_out] if held_out else parts.train
    return preferences.preferences(prompts, count, seed=int(held_out))


def _conversations(pair: preferences.Preference) -> dict[str, list[dict[str, str]]]:
    return {
        side: [
            {"role": "user", "content": pair.prompt},
            {"role": "assistant", "content": text.removesuffix(preferences.END)},
        ]
        for side, text in (("chosen", pair.chosen), ("rejected", pair.rejected))
    }
