"""What a GPU must hold, against numbers by hand, torch's account, and a real engine's states."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from openrlhf_js.trainers.openrlhf import gpu_memory as memory

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "research/benchmarks"
PAGE = ROOT / "docs" / "gpu.md"
GB = 1e9

# Prints the parameters of a model that DeepSpeed has prepared and trained for a step, and the bytes
# of all tensors that are left.
ENGINE = """
import gc
import torch
import gradient_variance_cost as benchmark
from openrlhf_js.trainers.openrlhf.run.device import prepare_device

prepare_device("cpu")
import openrlhf.utils

def get_strategy(args, made=openrlhf.utils.get_strategy):
    args.ds.param_dtype = "bf16"
    return made(args)

openrlhf.utils.get_strategy = get_strategy
benchmark.VOCABULARY = 1000
benchmark.start_process_group()
trainer = benchmark.make_trainer(benchmark.Size(256, 768, 4))
for step in range(benchmark.MICRO_BATCHES):
    trainer.training_step(benchmark.random_experience(), 0.0, step)
gc.collect()
storages = [one.untyped_storage() for one in gc.get_objects() if type(one) is torch.Tensor]
storages += [p.untyped_storage() for p in trainer.actor.parameters()]
sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
print("found", sum(p.numel() for p in trainer.actor.parameters()), sum(sizes.values()))
"""


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as for a script
    import gpu_memory

    return gpu_memory


def test_the_terms_are_those_computed_by_hand(benchmark):
    parameters = {name: model.parameters for name, model in benchmark.MODELS.items()}
    assert parameters == {  # as published
        "0.5b": 494_032_768,
        "1.5b": 1_543_714_304,
        "3b": 3_085_938_688,
        "7b": 7_615_616_512,
    }
    phases = memory.phases(memory.Run(benchmark.MODELS["0.5b"], sequences=10, length=1000))
    assert phases["generate"]["vLLM: KV cache"] == 10 * 1000 * 12_288  # K and V, 24 x 2 x 64 x 2
    backward = phases["backward"]
    assert backward["policy: weights"] == pytest.approx(0.988 * GB, rel=1e-3)
    assert backward["optimizer states"] == pytest.approx(5.928 * GB, rel=1e-3)
    assert backward["gradients"] == pytest.approx(1.976 * GB, rel=1e-3)
    assert backward["activations: logits"] == 2048 * 151_936 * 16
    assert backward["activations: layer inputs"] == 2048 * 24 * 896 * 2
    assert phases["update"]["gradients: three copies"] == pytest.approx(3.952 * GB, rel=1e-3)
    lora = memory.phases(
        memory.Run(benchmark.MODELS["0.5b"], rank=64, offload=True, reference=True)
    )
    assert "optimizer states" not in lora["backward"]
    assert lora["update"]["reference: weights"] == pytest.approx(0.988 * GB, rel=1e-3)
    # 64 x (inputs and outputs of q, k, v, o, gate, up, down)
    assert benchmark.MODELS["0.5b"].adapters(64) == 24 * 64 * (2 * 1792 + 2 * 1024 + 3 * 5760)
    shared = memory.Run(benchmark.MODELS["7b"], gpus=8, zero_stage=3)
    assert memory.policy_weights(shared)["policy: weights"] == 2 * 7_615_616_512 / 8
    assert memory.optimizer_states(shared)["optimizer states"] == 12 * 7_615_616_512 / 8


def test_torch_counts_as_many_activations():
    """In OpenRLHF's own forward pass, backwards too, of tensors without memory."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from openrlhf_js.trainers.openrlhf.run.device import prepare_device

    prepare_device("cpu")
    from openrlhf.models import Actor

    model = memory.Model(256, 512, 2, 4, 2, 50_000, True)
    run = memory.Run(model, tokens=2 * 1024)
    sizes = {name: size for name, size in model._asdict().items() if size}
    config = Qwen2Config(**sizes, use_cache=False, dtype=torch.bfloat16)
    with FakeTensorMode():
        policy = Qwen2ForCausalLM._from_config(config)
        policy.train()
        policy.gradient_checkpointing_enable({"use_reentrant": False})
        actor = Actor(policy)
        actor.packing_samples, actor.temperature = False, 1.0
        ones = torch.ones((2, 1024), dtype=torch.long)
        tracker = MemTracker()
        with tracker:
            log_probs, _output = actor(ones, ones[:, 1:], ones, return_output=True)
            log_probs.sum().backward()
    (peak,) = [found["Total"] for found in tracker.get_tracker_snapshot("peak").values()]
    counted = peak - 2 * model.parameters
    # torch chooses its kernels by the CPU, and some keep 4 % more
    assert counted == pytest.approx(sum(memory.activations(run).values()), rel=0.05)


def test_deepspeed_holds_as_many_states():
    """A policy in bfloat16 after a step of OpenRLHF's trainer: ZeRO 2, one rank."""
    made = subprocess.run(
        [sys.executable, "-c", ENGINE], cwd=BENCHMARKS, capture_output=True, text=True
    )
    assert "found" in made.stdout, made.stderr[-2000:]
    parameters, held = map(int, made.stdout.split("found")[1].split())
    model = memory.Model(256, 768, 4, 8, 8, 1000, True)
    assert parameters == model.parameters
    run = memory.Run(model)
    states = memory.policy_weights(run) | memory.optimizer_states(run)
    assert held == pytest.approx(sum(states.values()), rel=0.02)


def test_the_page_has_the_printed_table_and_flags_that_exist(benchmark, capsys):
    from openrlhf_js.trainers.openrlhf.flags import add_flags
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    benchmark.main([])
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + 2 * len(benchmark.MODELS)
    page = PAGE.read_text()
    assert all(row in page for row in rows)
    parser = upstream_parser()
    add_flags(parser)
    flags = set(re.findall(r"--\w+\.[\w.]+", page))
    assert len(flags) > 20
    assert flags <= parser._option_string_actions.keys()
