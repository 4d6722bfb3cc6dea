"""What tests of several folders share: small models, files of rows, logs, ports, and patience."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


def write_lines(path: str | Path, rows: Iterable[Any]) -> Path:
    """JSON Lines, in a folder that is made where it is missing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def pasted(page: str, containing: str) -> str:
    """The one block of code on a page of the repository with this text."""
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:bash|python)\n(.*?)```", text, re.DOTALL)
    (block,) = (block for block in blocks if containing in block)
    return block


def flag_table(path: Path) -> Iterator[tuple[bool, dict[str, str | None], str]]:
    """Lines of flags: whether they work (= or !), the changes to a good line, and the message.

    A line `Name: words` names changes that the lines after it may use.
    """
    named_changes: dict[str, dict[str, str | None]] = {}

    def changes_of(words: str) -> dict[str, str | None]:
        changes: dict[str, str | None] = {}
        for word in shlex.split(words, comments=True):
            if word in named_changes:
                changes |= named_changes[word]
            elif word.startswith("-"):  # the flag is left out
                name, _, _ = word.partition("=")
                changes[name.removeprefix("-")] = None
            else:
                name, _, value = word.partition("=")
                changes[name] = value
        return changes

    for line in path.read_text().splitlines()[2:]:
        if line[:1] in ("=", "!"):
            words, _, message = line[1:].partition(" ~ ")
            yield line[0] == "=", changes_of(words), message
        elif line[:1].isupper():
            name, _, words = line.partition(": ")
            named_changes[name] = changes_of(words)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url: str) -> bool:
    """Whether a server is there that is content with the request."""
    import httpx

    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits for it, and fails where it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)


def processes_of(folder: Path) -> list[Any]:
    """Those that run in the folder, or whose command line names it."""
    import psutil

    processes = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            if str(folder) in command or process.cwd() == str(folder):
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Of each tag in TensorBoard's files, the steps and their values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in log.Scalars(tag)]
        for tag in log.Tags()["scalars"]
    }


def qwen(seed: int = 0, **settings: Any) -> Any:
    """A Qwen2 of a few thousand random weights; `settings` are of its configuration."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return Qwen2ForCausalLM(Qwen2Config(**{**sizes, **settings}))


def noisy(model: Any) -> Any:
    """The model with noise in every parameter: its zeros and ones would hide mistakes."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save_policy(folder: Path, task: str = "sort") -> Path:
    """The tiny model of a task with random weights, as a Hugging Face folder."""
    from baseline_research.tiny import model
    from baseline_research.tiny.tasks import TASKS

    tokenizer = model.make_tokenizer(TASKS[task].tokens)
    model.save(model.make_model(tokenizer, seed=0), tokenizer, folder)
    return folder


def save_seeing_policy(folder: Path) -> Path:
    """A tiny Qwen2.5-VL with random weights and its processor, as a Hugging Face folder."""
    from baseline_research.tiny import model, preferences

    tokenizer = model.make_tokenizer([*preferences.TOKENS, *model.VISION.values()])
    model.save(model.make_vision_model(tokenizer, seed=0), tokenizer, folder)
    return folder


def save_figures(folder: Path, count: int = 2) -> list[str]:
    """Paths of pictures that differ in their colour and their size."""
    from PIL import Image

    paths = [folder / f"{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        Image.new("RGB", (60 + 40 * number, 60), (0, 250 // count * number, 90)).save(path)
    return list(map(str, paths))


def save_scorer(folder: Path, task: str = "sort", seed: int = 0, **config: Any) -> Path:
    """A Bradley-Terry model as upstream loads one: that model's body and a `score` head."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from baseline_research.tiny import model
    from baseline_research.tiny.tasks import TASKS

    tokenizer = model.make_tokenizer(TASKS[task].tokens)
    settings = model.make_model(tokenizer, seed=0).config
    settings.update({"num_labels": 1, **config})
    torch.manual_seed(seed)
    scorer = AutoModelForSequenceClassification.from_config(settings)
    scorer.score.weight.data.normal_(std=0.3)
    scorer.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def upstream_args(**settings: Any) -> Any:
    """Upstream's nested arguments and ours, at their defaults but for `section__name=value`."""
    from openrlhf.utils.config import hierarchize

    from openrlhf_js.trainers.openrlhf import flags
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    parser = upstream_parser()
    flags.add_flags(parser)
    args = parser.parse_args([])
    for name, value in settings.items():
        assert hasattr(args, name.replace("__", ".")), name
        setattr(args, name.replace("__", "."), value)
    return hierarchize(args)


# `exec PYTHON -m MODULE FLAGS...` prints its arguments, so that a script costs no start of Python
PRINT = 'exec() { printf "%s\\n" "${@:2}"; exit; }; source "$0"'


def command(path: str, *flags: str) -> list[str]:
    """-m, the module and the arguments that a script would run."""
    script = str(Path(__file__).parents[1] / path)
    printed = ["bash", "-c", PRINT, script, *flags]
    return subprocess.run(printed, capture_output=True, text=True, check=True).stdout.splitlines()


def try_recipe(path: str, *flags: str) -> Path:
    """Runs a recipe with `--tiny`, in a fork that has imported all; returns the run's folder."""
    from forked import Forked

    from baseline_research.cli import recipe

    _, module, *arguments = command(path, "--tiny", *flags)
    assert module == recipe.__name__
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        return tried_in(Forked(Path(folder), log, arguments, recipe.main), log)


def tried_in(run: Any, log: Path) -> Path:
    """Waits for the process of a recipe's tiny run; returns the run's folder."""
    try:
        status = run.wait(590)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    output = log.read_text()
    assert status == 0, output[-3000:]
    return Path(re.search(r"the tiny run is in (\S+)", output)[1])
