"""Claim: how much GPU memory a run takes, term by term. Computed, not measured.

    python research/benchmarks/gpu_memory.py  # the table of docs/gpu.md
    python research/benchmarks/gpu_memory.py --model 3b --card 24 --offload  # the terms of one run
    python research/benchmarks/gpu_memory.py --model FOLDER --gpus 4 --tokens 16384 --flash_attn

The share of one GPU on which all models take turns: `--train.colocate_all --vllm.enable_sleep
--ds.enable_sleep --actor.gradient_checkpointing_enable`, in bfloat16. The dry run of
`openrlhf-js train` also computes it, for its own flags.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from openrlhf_js.trainers.openrlhf.gpu_memory import (
    CARDS,
    GIB,
    USABLE,
    Model,
    Run,
    fits,
    host,
    phases,
    utilization,
)

MICRO_BATCHES = (32, 16, 8, 4, 2, 1)
LORA_RANK = 64
MODELS = {  # config.json of Qwen2.5
    "0.5b": Model(896, 4864, 24, 14, 2, 151_936, True),
    "1.5b": Model(1536, 8960, 28, 12, 2, 151_936, True),
    "3b": Model(2048, 11_008, 36, 16, 2, 151_936, True),
    "7b": Model(3584, 18_944, 28, 28, 4, 152_064, False),
}


def largest_micro_batch(run: Run, card: int) -> str:
    """The most sequences in a micro-batch, and whether Adam must be offloaded to fit even one."""
    for offload in (False, True):
        for size in MICRO_BATCHES:
            if fits(run._replace(offload=offload, tokens=size * run.length), card):
                return f"{size}, offloaded" if offload else f"{size}"
    return "-"


def table_rows() -> Iterator[list[str]]:
    for name, model in MODELS.items():
        for rank in (0, LORA_RANK):
            run = Run(model, rank=rank)
            cells = [largest_micro_batch(run, card) for card in CARDS]
            needed_on_host = max(host(run._replace(offload="offloaded" in cell)) for cell in cells)
            trained = f"LoRA {rank}" if rank else "full"
            yield [name.upper(), trained, *cells, f"{needed_on_host / GIB:.0f}"]


def print_run(run: Run, card: int | None) -> None:
    for phase, terms in phases(run).items():
        print(f"{phase:34}{sum(terms.values()) / GIB:7.1f} GiB")
        for name, size in terms.items():
            print(f"    {name:30}{size / GIB:7.1f}")
    print(f"memory of the machine, for each GPU {host(run) / GIB:6.1f} GiB")
    if card:
        verdict = "fits" if fits(run, card) else "does not fit"
        print(f"{verdict} on {card} GiB, of which {USABLE * card:.1f} are counted on")
        print(f"--vllm.gpu_memory_utilization {utilization(run, card):.2f}")


def read_model(name: str) -> Model:
    """One of MODELS, or a folder with the config.json of such a model."""
    if name in MODELS:
        return MODELS[name]
    config = json.loads(Path(name, "config.json").read_text(encoding="utf-8"))
    model = Model.of(SimpleNamespace(**config))
    if model is None:
        raise SystemExit(
            f"{name} is no model whose memory is known: it has experts, or other names"
        )
    return model


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help=f"{', '.join(MODELS)}, or a folder with a config.json")
    parser.add_argument("--card", type=int, help="GiB of the GPU")
    parser.add_argument("--lora", type=int, default=0, help="--ds.lora.rank")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--zero_stage", type=int, default=2, help="--ds.zero_stage")
    parser.add_argument("--offload", action="store_true", help="--ds.adam_offload")
    parser.add_argument("--kl", action="store_true", help="--algo.kl.init_coef above 0")
    parser.add_argument("--flash_attn", action="store_true", help="flash-attn is installed")
    parser.add_argument("--tokens", type=int, default=2048, help="in a micro-batch of training")
    parser.add_argument("--sequences", type=int, default=32, help="that vLLM writes at a time")
    parser.add_argument("--length", type=int, default=2048, help="--data.max_len")
    options = parser.parse_args(argv)
    if not options.model:
        from baseline_research.markdown_table import print_table

        columns = ["model", "trained", *(f"{card} GB" for card in CARDS), "machine, GiB"]
        print_table(columns=columns, rows=table_rows())
        return
    run = Run(
        model=read_model(options.model),
        rank=options.lora,
        gpus=options.gpus,
        zero_stage=options.zero_stage,
        offload=options.offload,
        reference=options.kl,
        flash_attn=options.flash_attn,
        tokens=options.tokens,
        sequences=options.sequences,
        length=options.length,
    )
    print_run(run, options.card)


if __name__ == "__main__":
    main()
