"""What do the estimators, gradient variance, the lab and the reward server cost on a GPU?

Needs torch and transformers alone; docs/gpu.md explains the rows. Models are Qwen2-shaped, in
bfloat16, with random weights. `--device cpu --tiny` runs the same code on a CPU in seconds.
"""

import argparse
import asyncio
import gc
import json
import math
import sys
import tempfile
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

FULL = SimpleNamespace(
    shapes={"0.5B": (896, 4864, 24, 14, 151_936), "1.5B": (1536, 8960, 28, 12, 151_936)},
    rewards=((1024, 8), (4096, 16), (16384, 16)),  # prompts, responses
    **{"step": (16, 8), "pool": (8, 16)},  # the same, of a training step and of `lab gradient`
    **{"micro_batch": 8, "tokens": 512, "texts": 640, "repeats": 5},
)
TINY = SimpleNamespace(
    shapes={"tiny 1": (32, 64, 2, 4, 512), "tiny 2": (64, 128, 2, 4, 512)},
    **{"rewards": ((32, 4),), "step": (4, 4), "pool": (4, 8)},
    **{"micro_batch": 4, "tokens": 16, "texts": 128, "repeats": 2},
)
CALLS = 20  # of what takes a millisecond, in one timing
BATCH = 64  # texts: the reward server's default. Twice as many clients: one batch always waits
WEB = ("fastapi", "httptools", "prometheus_client", "pydantic", "uvicorn")
WEB_PARTS = ("fastapi.responses", "fastapi.security", "prometheus_client.exposition")


UNKNOWN = {"memory_allocated.return_value": math.nan, "max_memory_allocated.return_value": math.nan}
CPU = MagicMock(**UNKNOWN)  # in the place of torch.cuda


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
        ratios = [a / b for a, b in zip(self.measured, self.beside, strict=True)]
        medians = (f"{median(x):.4g} {self.unit}" for x in (self.measured, self.beside))
        spread = f"{median(ratios):.4g} ({min(ratios):.4g} to {max(ratios):.4g})"
        return [self.what, *medians, spread, str(len(ratios))]


class Bench:
    """A device, how often everything is repeated on it, and until when by the monotonic clock."""

    def __init__(self, device: str, repeats: int, end: float = math.inf):
        self.device, self.repeats, self.end = torch.device(device), repeats, end
        self.chip: Any = torch.cuda if self.device.type == "cuda" else CPU

    def allocated(self) -> float:
        """GiB of all tensors on the device; NaN where nothing counts them."""
        return self.chip.memory_allocated(self.device) / 2**30

    def rounds(self, *calls: Callable[[], object]) -> list[list[tuple[float, ...]]]:
        """Of each call, milliseconds and the GiB it added at its peak, over the repeats.

        The calls take turns, after a warm-up of each; TimeoutError when the time is over.
        """
        found: list[list[tuple[float, float]]] = [[] for _ in calls]
        for number in range(len(calls) * (self.repeats + 1)):
            if time.monotonic() >= self.end:
                raise TimeoutError("the minutes are over")
            self.chip.synchronize(self.device)
            self.chip.reset_peak_memory_stats(self.device)
            held, began = self.allocated(), time.perf_counter()
            calls[number % len(calls)]()
            self.chip.synchronize(self.device)
            taken = 1e3 * (time.perf_counter() - began)
            added = self.chip.max_memory_allocated(self.device) / 2**30 - held
            found[number % len(calls)].append((taken, added))
        return [[*zip(*own[1:], strict=True)] for own in found]

    def rows(self, parts: Iterable[tuple[str, Callable[[], Iterator[Row]]]]) -> Iterator[Row]:
        """All parts' rows; a part that fails, or has no time left, is a row that says so."""
        for name, part in parts:
            why = None if time.monotonic() < self.end else "the minutes are over"
            try:
                for row in () if why else part():
                    unknown = "not known here" if any(map(math.isnan, row.measured)) else None
                    yield Row(row.what, left_out=unknown) if unknown else row
            except Exception as error:  # whatever a part does, the others are measured
                why = f"{error!r:.200}".replace("|", "/")
            if why:
                yield Row(name, left_out=why)
            gc.collect()
            self.chip.empty_cache()


def make_model(device: torch.device, shape: Sequence[int]) -> Any:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    given = dict(zip((*names, "vocab_size"), shape, strict=True))
    config = transformers.Qwen2Config(**given, num_key_value_heads=2, tie_word_embeddings=True)
    with device:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def open_rooms() -> None:
    """Makes importable what is measured: without its rooms' extras, and what it need not import."""
    for name in ("common.console", "lab.pool", "lab.results", "stats", "stats.estimate"):
        sys.modules[f"openrlhf_js.{name}"] = MagicMock()
    for room in ("lab", "plugin", "reward_model", "sampling"):
        module = sys.modules[f"openrlhf_js.{room}"] = ModuleType(f"openrlhf_js.{room}")
        module.__path__ = [str(Path(openrlhf_js.__file__).parent / room)]


def estimator(bench: Bench, scale: SimpleNamespace) -> Iterator[Row]:
    for (n, m), dtype in product(scale.rewards, (torch.float64, torch.float32)):
        draws = [(torch.rand(n, m) + torch.rand(n, 1)).to(dtype) for _ in range(CALLS)]
        there, here = [x.to(bench.device) for x in draws], [x.double() for x in draws]
        calls = (lambda x=x: [advantage("js", each) for each in x] for x in (there, here))
        times = ([each / CALLS for each in taken] for taken, _ in bench.rounds(*calls))
        what = f"`js`, {n:,} x {m}, {str(dtype)[6:]}: "
        yield Row(f"{what}time, beside float64 on the CPU", "ms", *times)
        pairs = [(advantage("js", x), advantage("js", y)) for x, y in zip(there, here, strict=True)]
        off = [float((x.cpu() - y).abs().max()) for x, y in pairs]
        what += "largest difference from the CPU in float64, beside the epsilon"
        yield Row(what, "", off, [torch.finfo(dtype).eps] * CALLS)


def make_trainer(bench: Bench, scale: SimpleNamespace, name: str) -> SimpleNamespace:
    """What `GradientVariance` uses of upstream's trainer, DeepSpeed's engine and micro-batches."""
    model = make_model(bench.device, scale.shapes[name])
    ids = torch.randint(model.config.vocab_size, (math.prod(scale.step), scale.tokens))
    batch = [SimpleNamespace(action_mask=x) for x in ids.to(bench.device).split(scale.micro_batch)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    engine = SimpleNamespace(module=model, global_steps=0, zero_optimization_stage=lambda: 2)
    engine.get_global_grad_norm = lambda: engine.norm

    def training_step(experience: SimpleNamespace) -> None:
        ids = {"input_ids": experience.action_mask, "labels": experience.action_mask}
        (model(**ids, use_cache=False).loss / len(batch)).backward()
        if experience is batch[-1]:
            engine.norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            engine.global_steps += 1

    trainer = SimpleNamespace(actor=SimpleNamespace(model=engine), training_step=training_step)
    trainer.step = lambda: [trainer.training_step(each) for each in batch]
    return trainer


def training(bench: Bench, scale: SimpleNamespace, name: str) -> Iterator[Row]:
    trainer, rewards = make_trainer(bench, scale, name), torch.rand(scale.step)
    js = lambda: (advantage("js", rewards), diagnostics("js", rewards))  # noqa: E731
    (taken, _), (beside, _) = bench.rounds(js, trainer.step)
    yield Row(f"{name}, `js` and its logging, beside the training step", "ms", taken, beside)

    from openrlhf_js.plugin.gradient_variance import GradientVariance

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    trainer.actor.model.global_steps = 0  # every second step is measured, from the next one on
    recorder, squares = GradientVariance(trainer, every=2), list[float]()
    (on, on_added), (off, off_added) = bench.rounds(trainer.step, trainer.step)
    what = f"{name}, a training step with --js.gradient_variance"
    yield Row(f"{what}, beside one without: time", "ms", on, off)
    yield Row(f"{what}, beside one without: memory added", "GiB", on_added, off_added)
    for each in trainer.actor.model.module.parameters():
        each.register_hook(lambda g: squares.append(float(g.double().square().sum())))
    trainer.step()
    found = [recorder.sums.squares], [math.fsum(squares)]
    yield Row(f"{what}: sum of squares, beside float64", "", *found)


def lab_gradient(bench: Bench, scale: SimpleNamespace, name: str) -> Iterator[Row]:
    from openrlhf_js.lab import gradient
    from openrlhf_js.lab import policy_gradient as pg

    (n, m), names = scale.pool, ("rloo", "js")
    model, bare_model = (make_model(bench.device, scale.shapes[name]) for _ in range(2))
    ids = torch.randint(model.config.vocab_size, (n, m + 1, scale.tokens // 2)).tolist()
    pool = SimpleNamespace(prompts=[SimpleNamespace(tokens=each[0]) for each in ids])
    pool.response_tokens, pool.rewards = [x[1:] for x in ids], torch.rand(n, m).double().numpy()
    pool.greedy_rewards, pool.past, pool.settings = pool.rewards[:, 0], None, {"model_sha256": ""}
    batches = gradient.SmallBatches(pool, gradient.BatchPlan(2, n // 2, (2,)))
    terms = [*batches.halves(), *(batches.terms(b, 2, each) for b in (0, 1) for each in names)]
    with patch.object(pg, "_add", lambda total, each: setattr(each, "grad", None)):
        bare = pg.ScoreSum(bare_model, max_tokens=scale.micro_batch * scale.tokens)
    for total in bare.total:  # the passes alone
        total.untyped_storage().resize_(0)
    held = bench.allocated()
    scores = pg.ScoreSum(model, max_tokens=scale.micro_batch * scale.tokens)
    held = bench.allocated() - held

    def whole() -> None:
        with tempfile.TemporaryDirectory() as out:
            gradient.measure(scores, batches, names, Path(out))

    with patch.object(torch, "save"):  # of the two halves, each once
        (taken, peak), (beside, least) = bench.rounds(whole, lambda: [bare.add(x) for x in terms])
    yield Row(f"{name}, `lab gradient`, beside its passes alone: time", "ms", taken, beside)
    more = [held + a - b for a, b in zip(peak, least, strict=True)]
    vector = [sum(4 * each.numel() for each in model.parameters()) / 2**30] * len(more)
    yield Row(f"{name}, `lab gradient`: memory added to that, beside a vector", "GiB", more, vector)


def reward_server(bench: Bench, scale: SimpleNamespace, name: str) -> Iterator[Row]:
    from openrlhf_js.reward_model.model import RewardModel
    from openrlhf_js.reward_model.preferences import encode

    web = dict.fromkeys((*WEB, *WEB_PARTS), MagicMock(BaseModel=object, Server=object))
    with patch.dict(sys.modules, web):  # the scheduler alone is used
        from openrlhf_js.reward_model.server import Batcher, Batching
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "the": 2}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    backbone, longest = make_model(bench.device, scale.shapes[name]).model.eval(), scale.tokens // 2
    head = torch.nn.Linear(backbone.config.hidden_size, 1, False, bench.device, torch.bfloat16)
    model = RewardModel(backbone, head, tokenizer, None, {"max_len": longest})
    texts = ["the " * k for k in torch.randint(longest // 4, longest, (scale.texts,)).tolist()]
    ids = encode(tokenizer, texts, longest)

    async def served() -> None:
        batcher, left = Batcher(model.scores, Batching(BATCH, 0.0, len(texts))), iter(texts)

        async def client() -> None:
            for text in left:
                assert all(map(math.isfinite, await batcher.score([text])))

        running = asyncio.create_task(batcher.run())
        await asyncio.gather(*(client() for _ in range(2 * BATCH)))
        running.cancel()

    found = bench.rounds(
        lambda: asyncio.run(served()),
        lambda: [model._forward(ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)],
    )
    rates = ([1e3 * len(texts) / each for each in taken] for taken, _ in found)
    yield Row(f"{name}, reward scheduler, beside its model alone", "requests/s", *rates)
    missing = ", ".join(each for each in WEB if find_spec(each) is None)
    why = f"not installed: {missing}" if missing else "benchmarks/reward_serving.py measures it"
    yield Row(f"{name}, reward server over HTTP", left_out=why)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--minutes", type=float, default=8, help="what takes longer is left out")
    parser.add_argument("--out", type=Path, help="the rows, with every repeat, as JSON")
    args = parser.parse_args()
    torch.manual_seed(0)
    scale = TINY if args.tiny else FULL
    bench = Bench(args.device, scale.repeats, time.monotonic() + 60 * args.minutes)
    name = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else "CPU"
    versions = (f"{each.__name__} {each.__version__}" for each in (torch, transformers))
    about = ", ".join((name, *versions, str(date.today())))
    open_rooms()
    parts = [("the estimator", partial(estimator, bench, scale))]
    for shape, part in product(scale.shapes, (training, lab_gradient, reward_server)):
        parts.append((f"{shape}, {part.__name__}", partial(part, bench, scale, shape)))
    shown, kept = tee(bench.rows(parts))
    columns = (about, "median", "beside", "ratio (lowest to highest)", "repeats")
    print_table(columns, (row.cells() for row in shown))
    if args.out:
        rows = [row._asdict() for row in kept]
        args.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
