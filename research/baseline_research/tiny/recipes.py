"""Shrinks a recipe's flags so that it runs on a laptop: models, data, batches and machines.

The recipe's subject stays: the program, the estimator, the learning rate, the responses per prompt
and the gradient updates per step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from answer_graders import prompt_files
from answer_graders.programs.console import say
from answer_graders.record import GeneratedProblems
from answer_graders.tasks import TASKS, geometry3k
from baseline_research.tiny import model, preferences
from baseline_research.tiny.tasks import END, write_lines

PROMPTS = 64
PROMPTS_PER_STEP = 16
PAIRS = 512
HELD_OUT_PAIRS = 128
PAIRS_PER_STEP = 64
MAX_TOKENS = 48
LABELS = 8  # distinct labels of the prompts
LAB_PROMPTS = 16
LAB_RESPONSES = 40
LAB_BATCHES = 4
RANK = 8  # of LoRA
ROLES = ("actor", "critic", "ref", "reward")
IMAGE_SIZE = 56

Row = dict[str, Any]


class Flags:
    """The flags of a command line, without dashes; the last values of a flag that occurs twice."""

    def __init__(self, argv: Sequence[str]):
        self.values: dict[str, list[str]] = {}
        name = ""
        for word in argv:
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                self.values[name] = [value] if equals else []
            else:
                self.values.setdefault(name, []).append(word)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        """The first value of a flag."""
        return self.values.get(name, [default])[0]

    def count(self, name: str, default: int) -> int:
        """A flag's value as an integer."""
        return int(" ".join(self.values.get(name, [str(default)])))

    def replace(self, values: Mapping[str, Any]) -> None:
        """Gives flags other values."""
        self.values |= {name: [str(value)] for name, value in values.items()}

    def words(self) -> list[str]:
        """The command line."""
        return [word for name, values in self.values.items() for word in (f"--{name}", *values)]


class Answers(NamedTuple):
    """A few labels of a task, and a right response to each; without a task, one empty label."""

    labels: list[str]
    right_responses: list[str]


def tiny_training(argv: list[str], folder: Path) -> list[str]:
    """The command line that trains the tiny model as a policy, with data in `folder`.

    The rewards of a random model differ only if it sometimes answers right, so there are few
    labels, and the right response to each is a single token.
    """
    flags = Flags(argv)
    answers = _answers(_graded_task(flags))
    sees = flags.count("data.max_images_per_prompt", 0) > 0
    tokens = [*preferences.TOKENS, *answers.right_responses]
    rows = list(_prompt_rows(flags, answers.labels, folder if sees else None))
    write_lines(folder / "prompts.jsonl", rows)
    write_lines(folder / "test.jsonl", rows[:PROMPTS_PER_STEP])
    _write_policy(folder / "policy", tokens, sees)
    sizes = _training_sizes(flags, folder)
    if not flags.text("reward.remote_url"):
        preferences.write_reward_model(folder / "reward_model", 1)
        sizes["reward.model_name_or_path"] = folder / "reward_model"
    return _small(flags, sizes, folder)


def _training_sizes(flags: Flags, folder: Path) -> dict[str, Any]:
    """The flags that set the size of a policy's training, made small."""
    responses = flags.count("rollout.n_samples_per_prompt", 1)
    responses_per_step = flags.count("rollout.batch_size", 1024) * responses
    updates = max(1, responses_per_step // flags.count("train.batch_size", 128))
    sizes = {
        "actor.model_name_or_path": folder / "policy",
        "data.prompt_dataset": folder / "prompts.jsonl",
        "data.max_samples": PROMPTS,
        "data.max_len": MAX_TOKENS,
        "rollout.max_new_tokens": preferences.MAX_NEW_TOKENS,
        "rollout.batch_size": PROMPTS_PER_STEP,
        "rollout.micro_batch_size": 4,
        "rollout.max_tokens_per_gpu": 1024,
        "train.batch_size": PROMPTS_PER_STEP * responses // updates,
        "train.micro_batch_size": 4,
        "train.max_tokens_per_gpu": 1024,
        "vllm.num_engines": 1,
        "vllm.tensor_parallel_size": 1,
    }
    sizes |= {f"{role}.num_nodes": 1 for role in ROLES}
    sizes |= {f"{role}.num_gpus_per_node": 1 for role in ROLES}
    where_the_recipe_has_them = {
        "eval.dataset": folder / "test.jsonl",
        "eval.steps": 2,
        "eval.n_samples_per_prompt": 2,
        "js.max_steps": 3,
        "ds.lora.rank": RANK,
        "ds.lora.alpha": RANK,
    }
    sizes |= {name: size for name, size in where_the_recipe_has_them.items() if name in flags}
    return sizes


def tiny_lab(argv: list[str], folder: Path) -> list[str]:
    """The command line of a lab program on tiny models, with samples in `folder`.

    A reward file tells the task; without one, a prompt file is named after its task.
    """
    flags = Flags(argv)
    graded = Path(flags.text("reward")).stem
    tokens = list(preferences.TOKENS)
    prompt_files = []
    for file in flags.values["prompts"]:
        task = graded or Path(file).stem
        answers = _answers(task)
        tokens += answers.right_responses
        prompt_files.append(str(folder / Path(file).name))
        rows = [{**row, "datasource": task} for row in _prompt_rows(flags, answers.labels, None)]
        write_lines(Path(prompt_files[-1]), rows[:LAB_PROMPTS])
    models = [
        str(folder / f"policy_{place}") for place in range(min(2, len(flags.values["model"])))
    ]
    for model_folder in models:
        _write_policy(Path(model_folder), tokens)
    flags.values |= {"prompts": prompt_files, "model": models}
    sizes = {
        "prompts_count": LAB_PROMPTS,
        "responses": LAB_RESPONSES,
        "batch_prompts": LAB_PROMPTS // 2,
        "batches": LAB_BATCHES,
        "max_new_tokens": preferences.MAX_NEW_TOKENS,
        "device": "cpu",
        "out": folder / "lab",
    }
    flags.replace(sizes)
    return flags.words()


def _graded_task(flags: Flags) -> str:
    """The task that the recipe's reward file grades."""
    return Path(flags.text("reward.remote_url")).stem


def _answers(name: str) -> Answers:
    """Answers of a task; no right responses if there is no task of this name."""
    task = TASKS.get(name)
    if task is None:
        return Answers(labels=[""], right_responses=[])
    labels = [str(number) for number in range(LABELS)]
    if isinstance(task.problems, GeneratedProblems):
        items = task.problems.generate(LABELS, 0, "train")
        labels = [task.label(item) for item in items]
    right_responses = [task.right_response(label) for label in labels]
    return Answers(labels, right_responses)


def _prompt_rows(flags: Flags, labels: list[str], image_folder: Path | None) -> Iterator[Row]:
    """Prompts that cycle through the labels, each with a figure if there is an image folder."""
    prompts = [pair["prompt"] for pair in preferences.pairs(PROMPTS, held_out=False)]
    labelled_prompts = list(zip(prompts, cycle(labels), strict=False))
    if image_folder:
        yield from _geometry(labelled_prompts, image_folder)
        return
    key = flags.text("data.input_key", "input")
    as_messages = "data.apply_chat_template" in flags or "apply_chat_template" in flags
    for prompt, label in labelled_prompts:
        row: Row = {key: prompt, "label": label}
        if as_messages:
            row[key] = [{"role": "user", "content": prompt}]
        yield row


def with_data(argv: list[str], folder: Path) -> list[str]:
    """A dry run's command line, with `--data.max_samples` rows for each file not built yet."""
    flags = Flags(argv)
    key = flags.text("data.input_key", "input")
    row: Row = {key: "a prompt", "label": _answers(_graded_task(flags)).labels[0]}
    if "data.image_key" in flags:
        row[flags.text("data.image_key")] = []
    row_counts = {"data.prompt_dataset": flags.count("data.max_samples", 1), "eval.dataset": 1}
    for name, count in row_counts.items():
        missing = []
        for file in flags.text(name).split(","):
            if file.endswith(".jsonl") and not Path(file).exists():
                missing.append(file)
        if missing:
            stand_in = folder / f"{name}.jsonl"
            write_lines(stand_in, [row] * count)
            say(f"openrlhf_js: {', '.join(missing)}: not built yet, checked as {count:,} rows")
            flags.replace({name: stand_in})
    return flags.words()


def tiny_reward_training(argv: list[str], folder: Path) -> list[str]:
    """The command line of a reward model's training on tiny preferences, with data in `folder`."""
    _write_policy(folder / "policy", preferences.TOKENS)
    train = preferences.pairs(PAIRS, held_out=False)
    write_lines(folder / "train.jsonl", map(_conversations, train))
    held_out = preferences.pairs(HELD_OUT_PAIRS, held_out=True)
    write_lines(folder / "held_out.jsonl", map(_conversations, held_out))
    sizes = {
        "model.model_name_or_path": folder / "policy",
        "data.dataset": folder / "train.jsonl",
        "eval.dataset": folder / "held_out.jsonl",
        "data.max_samples": PAIRS,
        "data.max_len": MAX_TOKENS,
        "train.batch_size": PAIRS_PER_STEP,
        "train.micro_batch_size": 8,
    }
    return _small(Flags(argv), sizes, folder)


def _small(flags: Flags, sizes: dict[str, Any], folder: Path) -> list[str]:
    """The command line with these sizes, which writes and logs only into the folder."""
    for name in list(flags.values):
        if name.startswith("logger.wandb"):
            del flags.values[name]
    places = {
        "ckpt.output_dir": folder / "model",
        "ckpt.path": folder / "checkpoints",
        "logger.tensorboard_dir": folder / "tensorboard",
        "js.device": "cpu",
    }
    flags.replace(sizes | places)
    return flags.words()


def _write_policy(folder: Path, tokens: Sequence[str], sees: bool = False) -> None:
    """Writes a policy with random weights."""
    if sees:  # each instruction is one token
        instructions = [message["content"] for message in geometry3k.prompt({"problem": ""})]
        tokens = [*tokens, *model.VISION.values(), *instructions]
    tokenizer = model.make_tokenizer(tokens)
    make = model.make_vision_model if sees else model.make_model
    model.save(make(tokenizer, seed=0), tokenizer, folder)


def _geometry(labelled_prompts: Sequence[tuple[str, str]], folder: Path) -> Iterator[Row]:
    """Rows as `data build geometry3k` writes them; each figure is a line at a different angle."""
    images = folder.absolute() / "images"
    images.mkdir()
    center = (IMAGE_SIZE // 2, IMAGE_SIZE // 2)
    for number, (prompt, label) in enumerate(labelled_prompts):
        figure = Image.new("RGB", (IMAGE_SIZE, IMAGE_SIZE), "white")
        line_end = (2 + 7 * (number % 8), number // 8)
        ImageDraw.Draw(figure).line([center, line_end], fill="black")
        path = images / f"{number}.png"
        figure.save(path)
        item = {
            "problem": f"{geometry3k.PLACEHOLDER}{prompt}",
            "answer": label,
            "images": [str(path)],
        }
        yield prompt_files.row(geometry3k.TASK, item)


def _conversations(pair: Row) -> dict[str, list[dict[str, str]]]:
    """Both responses of a preference as messages."""
    return {
        side: [
            {"role": "user", "content": pair["prompt"]},
            {"role": "assistant", "content": pair[side].removesuffix(END)},
        ]
        for side in ("chosen", "rejected")
    }
