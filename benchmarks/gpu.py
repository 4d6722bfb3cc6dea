"""What estimators, gradient variance and the reward server cost on a GPU.

    PYTHONPATH=. python3 benchmarks/gpu.py --out gpu.json        # at most 8 minutes
    PYTHONPATH=. python3 benchmarks/gpu.py --device cpu --tiny   # the same code, in seconds

Each row compares two times, or two amounts of memory, that were measured in turn: with and without
what is asked about, or beside the bare work on the model. docs/cost.md explains the rows. Needs
torch and transformers alone. Models are Qwen2-shaped, in bfloat16, with random weights.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from importlib.util import find_spec
from itertools import product, tee
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import torch
import transformers
from markdown_table import print_table
from tokenizers import Tokenizer, models, pre_tokenizers

import openrlhf_js
from openrlhf_js.estimators import advantage, diagnostics


class Shape(NamedTuple):
    """Of a Qwen2."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int


class Scale(NamedTuple):
    """The sizes of everything; a batch is (prompts, responses to each)."""

    shapes: dict[str, Shape]
    rewards: tuple[tuple[int, int], ...]  # batches for the estimator
    step: tuple[int, int]  # the batch of a training step
    micro_batch: int
    tokens: int
    texts: int
    repeats: int


FULL = Scale(
    shapes={
        "0.5B": Shape(896, 4864, 24, 14, 151_936),
        "1.5B": Shape(1536, 8960, 28, 12, 151_936),
    },
    rewards=((1024, 8), (4096, 16), (16384, 16)),
    step=(16, 8),
    micro_batch=8,
    tokens=512,
    texts=640,
    repeats=5,
)
TINY = Scale(
    shapes={
        "tiny 1": Shape(32, 64, 2, 4, 512),
        "tiny 2": Shape(64, 128, 2, 4, 512),
    },
    rewards=((32, 4),),
    step=(4, 4),
    micro_batch=4,
    tokens=16,
    texts=128,
    repeats=2,
)
CALLS = 20  # of what takes a millisecond, in one timing
BATCH = 64  # texts: the reward server's default
CLIENTS = 2 * BATCH  # so that one batch always waits
GIB = 2**30
WEB = ("fastapi", "httptools", "pydantic", "starlette", "uvicorn")
WEB_MODULES = (
    *WEB,
    "fastapi.responses",
    "fastapi.security",
    "starlette.requests",
)
NOT_IMPORTED = ("common.console", "stats", "stats.estimate")
ROOMS = ("plugin", "reward_model", "sampling")

CPU = MagicMock()  # in the place of torch.cuda
CPU.memory_allocated.return_value = math.nan
CPU.max_memory_allocated.return_value = math.nan


class Row(NamedTuple):
    """What was measured and what stands beside it, a number each a repeat; or why neither was."""

    what: str
    unit: str = ""
    measured: Sequence[float] = ()
    beside: Sequence[float] = ()
    left_out: str | None = None

    def cells(self) -> list[str]:
        """The median of either, the ratio's median, lowest and highest, and how many there are."""
        if self.left_out:
            return [f"{self.what}: left out, {self.left_out}", "", "", "", ""]
        ratios = self.ratios()
        return [
            self.what,
            f"{median(self.measured):.4g} {self.unit}",
            f"{median(self.beside):.4g} {self.unit}",
            f"{median(ratios):.4g} ({min(ratios):.4g} to {max(ratios):.4g})",
            str(len(ratios)),
        ]

    def ratios(self) -> list[float]:
        pairs = zip(self.measured, self.beside, strict=True)
        return [measured / beside for measured, beside in pairs]

    def or_left_out(self) -> Row:
        """The row itself, or one that says that nothing here counts what it should show."""
        if any(math.isnan(value) for value in self.measured):
            return Row(self.what, left_out="not known here")
        return self


class Repeats(NamedTuple):
    """Of one call: its milliseconds, and the GiB that it added at its peak, in each repeat."""

    milliseconds: list[float]
    added_gib: list[float]


class DeviceBench:
    """A device, how often everything is repeated on it, and until when by the monotonic clock."""

    def __init__(self, device: str, repeats: int, end: float = math.inf):
        self.device = torch.device(device)
        self.repeats = repeats
        self.end = end
        self.chip: Any = torch.cuda if self.device.type == "cuda" else CPU

    def allocated(self) -> float:
        """GiB of all tensors on the device; NaN where nothing counts them."""
        return self.chip.memory_allocated(self.device) / GIB

    def rounds(self, *calls: Callable[[], object]) -> list[Repeats]:
        """Times the calls, which take turns, after a warm-up of each.

        Raises:
            TimeoutError: The time is over.
        """
        for call in calls:
            self._measure(call)
        repeats = [Repeats([], []) for _ in calls]
        for _ in range(self.repeats):
            for call, of_call in zip(calls, repeats, strict=True):
                milliseconds, added_gib = self._measure(call)
                of_call.milliseconds.append(milliseconds)
                of_call.added_gib.append(added_gib)
        return repeats

    def _measure(self, call: Callable[[], object]) -> tuple[float, float]:
        if time.monotonic() >= self.end:
            raise TimeoutError("the minutes are over")
        self.chip.synchronize(self.device)
        self.chip.reset_peak_memory_stats(self.device)
        held_gib = self.allocated()
        began = time.perf_counter()
        call()
        self.chip.synchronize(self.device)
        milliseconds = 1e3 * (time.perf_counter() - began)
        peak_gib = self.chip.max_memory_allocated(self.device) / GIB
        return milliseconds, peak_gib - held_gib

    def rows(self, parts: Iterable[tuple[str, Callable[[], Iterator[Row]]]]) -> Iterator[Row]:
        """All parts' rows; a part that fails, or has no time left, is a row that says so."""
        for name, rows_of_part in parts:
            if time.monotonic() >= self.end:
                yield Row(name, left_out="the minutes are over")
            else:
                try:
                    for row in rows_of_part():
                        yield row.or_left_out()
                except Exception as error:  # whatever a part does, the others are measured
                    yield Row(name, left_out=f"{error!r:.200}".replace("|", "/"))
            gc.collect()
            self.chip.empty_cache()


def make_model(device: torch.device, shape: Shape) -> Any:
    config = transformers.Qwen2Config(
        **shape._asdict(), num_key_value_heads=2, tie_word_embeddings=True
    )
    with device:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def open_rooms() -> None:
    """Makes importable what is measured: without its rooms' extras, and what it need not import."""
    for name in NOT_IMPORTED:
        sys.modules[f"openrlhf_js.{name}"] = MagicMock()
    package = Path(openrlhf_js.__file__).parent
    for room in ROOMS:
        module = ModuleType(f"openrlhf_js.{room}")
        module.__path__ = [str(package / room)]
        sys.modules[module.__name__] = module


# --- the estimator -----------------------------------------------------------------------------


def estimator(bench: DeviceBench, scale: Scale) -> Iterator[Row]:
    """Its time, and how near it comes to the CPU's result."""
    for (n, m), dtype in product(scale.rewards, (torch.float64, torch.float32)):
        title = f"`js`, {n:,} x {m}, {str(dtype).removeprefix('torch.')}: "
        rewards = [(torch.rand(n, m) + torch.rand(n, 1)).to(dtype) for _ in range(CALLS)]
        on_device = [batch.to(bench.device) for batch in rewards]
        on_cpu = [batch.double() for batch in rewards]
        device_times, cpu_times = bench.rounds(
            partial(all_advantages, on_device),
            partial(all_advantages, on_cpu),
        )
        yield Row(
            f"{title}time, beside float64 on the CPU",
            "ms",
            measured=[milliseconds / CALLS for milliseconds in device_times.milliseconds],
            beside=[milliseconds / CALLS for milliseconds in cpu_times.milliseconds],
        )
        results = zip(all_advantages(on_device), all_advantages(on_cpu), strict=True)
        differences = [float((ours.cpu() - exact).abs().max()) for ours, exact in results]
        yield Row(
            f"{title}largest difference from the CPU in float64, beside the epsilon",
            measured=differences,
            beside=[torch.finfo(dtype).eps] * CALLS,
        )


def all_advantages(batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [advantage("js", rewards) for rewards in batches]


# --- a training step ---------------------------------------------------------------------------


def make_trainer(bench: DeviceBench, scale: Scale, name: str) -> SimpleNamespace:
    """What `GradientVariance` uses of upstream's trainer, DeepSpeed's engine and micro-batches."""
    model = make_model(bench.device, scale.shapes[name])
    responses = math.prod(scale.step)
    token_ids = torch.randint(model.config.vocab_size, (responses, scale.tokens))
    micro_batches = [
        SimpleNamespace(action_mask=rows)
        for rows in token_ids.to(bench.device).split(scale.micro_batch)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    engine = SimpleNamespace(
        module=model,
        global_steps=0,
        zero_optimization_stage=lambda: 2,
        get_global_grad_norm=lambda: engine.norm,
    )

    def training_step(experience: SimpleNamespace) -> None:
        tokens = experience.action_mask
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        (loss / len(micro_batches)).backward()
        if experience is micro_batches[-1]:
            engine.norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            engine.global_steps += 1

    def step() -> None:
        for micro_batch in micro_batches:
            trainer.training_step(micro_batch)

    trainer = SimpleNamespace(
        actor=SimpleNamespace(model=engine),
        training_step=training_step,
        step=step,
    )
    return trainer


def training(bench: DeviceBench, scale: Scale, name: str) -> Iterator[Row]:
    """What `js` and `--js.gradient_variance` add to a training step."""
    trainer = make_trainer(bench, scale, name)
    rewards = torch.rand(scale.step)

    def js_and_its_logging() -> None:
        advantage("js", rewards)
        diagnostics("js", rewards)

    js, step = bench.rounds(js_and_its_logging, trainer.step)
    yield Row(
        f"{name}, `js` and its logging, beside the training step",
        "ms",
        measured=js.milliseconds,
        beside=step.milliseconds,
    )
    yield from gradient_variance(bench, trainer, name)


def gradient_variance(bench: DeviceBench, trainer: SimpleNamespace, name: str) -> Iterator[Row]:
    """Of a step that is measured, its time, memory and sum, beside those of one that is not."""
    from openrlhf_js.plugin.learner.gradient_variance import GradientVariance

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    engine = trainer.actor.model
    engine.global_steps = 0  # every second step is measured, from the next one on
    recorder = GradientVariance(trainer, every=2)
    step_on, step_off = bench.rounds(trainer.step, trainer.step)
    title = f"{name}, a training step with --js.gradient_variance"
    yield Row(
        f"{title}, beside one without: time",
        "ms",
        measured=step_on.milliseconds,
        beside=step_off.milliseconds,
    )
    yield Row(
        f"{title}, beside one without: memory added",
        "GiB",
        measured=step_on.added_gib,
        beside=step_off.added_gib,
    )

    exact_squares: list[float] = []

    def note_squares(gradient: torch.Tensor) -> None:
        exact_squares.append(float(gradient.double().square().sum()))

    for parameter in engine.module.parameters():
        parameter.register_hook(note_squares)
    trainer.step()
    yield Row(
        f"{title}: sum of squares, beside float64",
        measured=[recorder.sums.squares],
        beside=[math.fsum(exact_squares)],
    )


# --- the reward server -------------------------------------------------------------------------


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """It knows one word."""
    words = models.WordLevel({"<pad>": 0, "<eos>": 1, "the": 2}, unk_token="<pad>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    )


def make_reward_model(bench: DeviceBench, shape: Shape, tokenizer: Any, max_len: int) -> Any:
    from openrlhf_js.reward_model.model import RewardModel

    backbone = make_model(bench.device, shape).model.eval()
    head = torch.nn.Linear(
        backbone.config.hidden_size,
        1,
        bias=False,
        device=bench.device,
        dtype=torch.bfloat16,
    )
    return RewardModel(backbone, head, tokenizer, None, {"max_len": max_len})


def import_scheduler() -> ModuleType:
    """The server's module, whose scheduler alone is used: it needs none of the web's packages."""
    web_modules = dict.fromkeys(WEB_MODULES, MagicMock(BaseModel=object, Server=object))
    with patch.dict(sys.modules, web_modules):
        from openrlhf_js.reward_model import server
    return server


async def serve_all(server: ModuleType, model: Any, texts: Sequence[str]) -> None:
    """All clients get the scores of the texts from the server's queue, one at a time."""
    batching = server.Batching(batch_size=BATCH, max_wait_seconds=0.0, queue_size=len(texts))
    batcher = server.Batcher(model.scores, batching)
    texts_to_score = iter(texts)

    async def client() -> None:
        for text in texts_to_score:
            scores = await batcher.score([text])
            assert all(math.isfinite(score) for score in scores)

    running = asyncio.create_task(batcher.run())
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    running.cancel()


def reward_server(bench: DeviceBench, scale: Scale, name: str) -> Iterator[Row]:
    """Texts that are scored in a second, beside the model's forward passes alone."""
    from openrlhf_js.reward_model.preferences import encode

    server = import_scheduler()
    max_len = scale.tokens // 2
    tokenizer = make_tokenizer()
    model = make_reward_model(bench, scale.shapes[name], tokenizer, max_len)
    lengths = torch.randint(max_len // 4, max_len, (scale.texts,)).tolist()
    texts = ["the " * length for length in lengths]
    token_ids = encode(tokenizer, texts, max_len)

    def model_alone() -> None:
        for start in range(0, len(token_ids), BATCH):
            model._forward(token_ids[start : start + BATCH])

    served, alone = bench.rounds(lambda: asyncio.run(serve_all(server, model, texts)), model_alone)
    yield Row(
        f"{name}, reward scheduler, beside its model alone",
        "requests/s",
        measured=[1e3 * len(texts) / milliseconds for milliseconds in served.milliseconds],
        beside=[1e3 * len(texts) / milliseconds for milliseconds in alone.milliseconds],
    )
    missing = [package for package in WEB if find_spec(package) is None]
    if missing:
        reason = f"not installed: {', '.join(missing)}"
    else:
        reason = "benchmarks/reward_serving.py measures it"
    yield Row(f"{name}, reward server over HTTP", left_out=reason)


# --- all of it ---------------------------------------------------------------------------------


def description_of(bench: DeviceBench) -> str:
    """The device, the versions and the date."""
    device_name = "CPU"
    if bench.device.type == "cuda":
        device_name = torch.cuda.get_device_name(bench.device)
    versions = [f"{module.__name__} {module.__version__}" for module in (torch, transformers)]
    return ", ".join([device_name, *versions, str(date.today())])


def all_parts(
    bench: DeviceBench, scale: Scale
) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """Names of what is measured, and what measures it."""
    yield "the estimator", partial(estimator, bench, scale)
    for shape, part in product(scale.shapes, (training, reward_server)):
        yield f"{shape}, {part.__name__}", partial(part, bench, scale, shape)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--minutes", type=float, default=8, help="what takes longer is left out")
    parser.add_argument("--out", type=Path, help="the rows, with every repeat, as JSON")
    args = parser.parse_args()
    torch.manual_seed(0)
    scale = TINY if args.tiny else FULL
    bench = DeviceBench(args.device, scale.repeats, time.monotonic() + 60 * args.minutes)
    about = description_of(bench)
    open_rooms()
    printed_rows, kept_rows = tee(bench.rows(all_parts(bench, scale)))
    print_table(
        columns=[about, "median", "beside", "ratio (lowest to highest)", "repeats"],
        rows=(row.cells() for row in printed_rows),
    )
    if args.out:
        rows = [row._asdict() for row in kept_rows]
        args.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
