"""A recipe's own flags with everything large in them made small: models, data, batches, machines.

What a recipe is about stays: the program, the estimator, the learning rate, the responses to a
prompt and the gradient updates of a step. So a recipe can be tried on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from openrlhf_js.common.console import say
from openrlhf_js.tasks import TASKS, geometry3k, prompt_files
from openrlhf_js.tasks.base import Generated, Task
from openrlhf_js.tiny import model, preferences
from openrlhf_js.tiny.tasks import TinyTask, write_lines

PROMPTS, PROMPTS_PER_STEP = 64, 16
PAIRS, HELD_OUT_PAIRS, PAIRS_PER_STEP = 512, 128, 64
MAX_TOKENS = 48
LABELS = 8  # different ones of the prompts
RANK = 8  # of LoRA
ROLES = ("actor", "critic", "ref", "reward")

Flags = dict[str, list[str]]  # without dashes; of a flag that occurs twice, the last values


def tiny_training(argv: list[str], folder: Path) -> list[str]:
    """The command line of a policy's training on the tiny model, with data in `folder`.

    A random model must find right answers for its rewards to differ: each right response to one of
    a few labels is a token of its own.
    """
    given = _parse(argv)
    responses = _count(given, "rollout.n_samples_per_prompt", 1)
    step = _count(given, "rollout.batch_size", 1024) * responses
    updates = max(1, step // _count(given, "train.batch_size", 128))
    sees = _count(given, "data.max_images_per_prompt", 0) > 0
    grader = given.get("reward.remote_url", [""])[0]
    labels, answers = _answers(TASKS.get(Path(grader).stem))
    task = replace(preferences.TASK, tokens=(*preferences.TASK.tokens, *answers))
    key, messages = given.get("data.input_key", ["input"])[0], "data.apply_chat_template" in given
    prompts = [pair["prompt"] for pair in _pairs(PROMPTS, held_out=False)]
    if sees:
        rows = list(_geometry(prompts, cycle(labels), folder))
    else:
        rows = [
            {key: [{"role": "user", "content": p}] if messages else p, "label": label}
            for p, label in zip(prompts, cycle(labels), strict=False)
        ]
    write_lines(folder / "prompts.jsonl", rows)
    write_lines(folder / "test.jsonl", rows[:PROMPTS_PER_STEP])
    _write_policy(folder / "policy", task, sees)
    sizes = {
        "actor.model_name_or_path": folder / "policy",
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_samples": PROMPTS,
        "data.max_len": MAX_TOKENS,
        "rollout.max_new_tokens": task.max_new_tokens,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.micro_batch_size": 4,
        "rollout.max_tokens_per_gpu": 1024,
        "train.batch_size": PROMPTS_PER_STEP * responses // updates,
        "train.micro_batch_size": 4,
        "train.max_tokens_per_gpu": 1024,
        "vllm.num_engines": 1,
        "vllm.tensor_parallel_size": 1,
        **{f"{role}.num_nodes": 1 for role in ROLES},
        **{f"{role}.num_gpus_per_node": 1 for role in ROLES},
    }
    smaller = {  # where the recipe has them
        "eval.dataset": folder / "test.jsonl",
        "eval.steps": 2,
        "eval.n_samples_per_prompt": 2,
        "js.max_steps": 3,
        "ds.lora.rank": RANK,
        "ds.lora.alpha": RANK,
    }
    sizes |= {name: value for name, value in smaller.items() if name in given}
    if not grader:
        preferences.write_reward_model(folder / "reward_model", 1)
        sizes["reward.model_name_or_path"] = folder / "reward_model"
    return _written(given, sizes, folder)


def _answers(task: Task | None) -> tuple[list[str], list[str]]:
    """A few labels of a task, and a right response to each; one empty label without a task."""
    if task is None:
        return [""], []
    labels = [str(number) for number in range(LABELS)]
    if isinstance(task, Generated):
        labels = [task.label(item) for item in task.generate(LABELS, 0, "train")]
    return labels, [task.right_response(label) for label in labels]


def with_data(argv: list[str], folder: Path) -> list[str]:
    """The command line of a dry run, with `--data.max_samples` rows for each file not built yet."""
    given = _parse(argv)
    grader = given.get("reward.remote_url", [""])[0]
    labels, _ = _answers(TASKS.get(Path(grader).stem))
    for name in ("data.prompt_dataset", "eval.dataset"):
        files = given.get(name, [""])[0].split(",")
        missing = [file for file in files if file.endswith(".jsonl") and not Path(file).exists()]
        if missing:
            rows = _count(given, "data.max_samples", 1) if name.startswith("data") else 1
            key = given.get("data.input_key", ["input"])[0]
            stand_in = folder / f"{name}.jsonl"
            write_lines(stand_in, [{key: "a prompt", "label": labels[0]}] * rows)
            say(f"openrlhf_js: {', '.join(missing)}: not built yet, checked as {rows:,} rows")
            given[name] = [str(stand_in)]
    return _words(given)


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
    return int(" ".join(given.get(name, [str(default)])))


def _written(given: Flags, sizes: dict[str, Any], folder: Path) -> list[str]:
    flags = {name: values for name, values in given.items() if not name.startswith("logger.wandb")}
    replaced = {
        **sizes,
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "logger.tensorboard_dir": folder / "tensorboard",
        "js.device": "cpu",
    }
    return _words(flags | {name: [str(value)] for name, value in replaced.items()})


def _words(flags: Flags) -> list[str]:
    return [word for name, values in flags.items() for word in (f"--{name}", *values)]


def _write_policy(folder: Path, task: TinyTask = preferences.TASK, sees: bool = False) -> None:
    if sees:  # an instruction is one token
        asked = (message["content"] for message in geometry3k.prompt({"problem": ""}))
        task = replace(task, tokens=(*task.tokens, *model.VISION.values(), *asked))
    tokenizer = model.make_tokenizer(task)
    make = model.make_vision_model if sees else model.make_model
    model.save(make(tokenizer, seed=0), tokenizer, folder)


def _geometry(prompts: Iterable[str], labels: Iterable[str], folder: Path) -> Iterator[dict]:
    """Rows as `data build geometry3k` writes them; each figure is a line of another direction."""
    (source := folder / "source").mkdir()
    problems = []
    for number, (prompt, label) in enumerate(zip(prompts, labels, strict=False)):
        figure = Image.new("RGB", (56, 56), "white")
        ImageDraw.Draw(figure).line((28, 28, 2 + 7 * (number % 8), number // 8), fill="black")
        figure.save(source / f"{number}.png")
        problem = {"problem": f"{geometry3k.PLACEHOLDER}{prompt}", "answer": label}
        problems.append({**problem, "images": [f"{number}.png"]})
    write_lines(source / "train.jsonl", problems)
    for item in geometry3k.load("train", str(source), images_dir=folder / "images"):
        yield prompt_files.row(geometry3k, item)


def _pairs(count: int, held_out: bool) -> Iterator[dict[str, Any]]:
    parts = preferences.split(0, preferences.HELD_OUT_PROMPTS)
    prompts = [parts.held_out] if held_out else parts.train
    return preferences.preferences(prompts, count, seed=int(held_out))


def _conversations(pair: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    return {
        side: [
            {"role": "user", "content": pair["prompt"]},
            {"role": "assistant", "content": pair[side].removesuffix(preferences.END)},
        ]
        for side in ("chosen", "rejected")
    }
