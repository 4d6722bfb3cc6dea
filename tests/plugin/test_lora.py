"""LoRA: what vLLM gets, what trains, what is saved, on real DeepSpeed; and what is refused."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from openrlhf_js.plugin import checks, flags
from openrlhf_js.plugin.lora import describe_lora, merged_weight
from openrlhf_js.plugin.parser import upstream_parser
from openrlhf_js.tiny import model as tiny
from openrlhf_js.tiny.tasks import TASKS

RANKS_PROGRAM = Path(__file__).with_name("lora_ranks.py")
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LAYERS, LAYER = 2, 16 * 16 + 2 * 8 * 16 + 16 * 16 + 3 * 16 * 24  # elements of the matrices


def make_policy(tied: bool = False):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def with_lora(*targets: str, tied: bool = False, rank: int = 2, alpha: int = 6):
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, target_modules=list(targets)
    )
    return get_peft_model(make_policy(tied), settings)


# --- one matrix ---------------------------------------------------------------------------------


def test_a_merged_weight_by_hand():
    layer = with_lora("q_proj").base_model.model.model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.base_layer.weight.fill_(1.0)
        layer.lora_A["default"].weight.copy_(torch.arange(32.0).reshape(2, 16))
        layer.lora_B["default"].weight.fill_(1.0)
        merged = merged_weight(layer)
    # alpha / r = 3 times the sum of A's two rows, in every row
    expected = 1 + 3 * (torch.arange(16.0) + torch.arange(16.0, 32.0))
    assert torch.equal(merged, expected.expand(16, 16))
    assert torch.equal(layer.base_layer.weight, torch.ones(16, 16))


def test_the_log_states_rank_alpha_and_what_trains():
    # rank 2 on a 16 x 16 and a 16 x 24 matrix in each of two layers
    trained = LAYERS * 2 * (16 + 16 + 16 + 24)
    total = sum(p.numel() for p in make_policy().parameters()) + trained
    assert describe_lora(with_lora("q_proj", "down_proj")) == (
        "LoRA of rank 2 with alpha 6 (B A counts alpha / rank = 3) on 2 q_proj, 2 down_proj: "
        f"{trained} of {total:,} parameters train"
    )


def test_an_adapter_on_tied_embeddings_is_refused():
    assert "1 lm_head" in describe_lora(with_lora("q_proj", "lm_head"))
    for end in ("embed_tokens", "lm_head"):
        with pytest.raises(ValueError, match="leave out embed_tokens and lm_head"):
            describe_lora(with_lora("q_proj", end, tied=True))
    assert "2 q_proj" in describe_lora(with_lora("q_proj", tied=True))


# --- flags --------------------------------------------------------------------------------------


def test_all_linear_is_no_name_of_a_module():
    parse = upstream_parser().parse_args
    for line, expected in {
        "": "all-linear",
        "--ds.lora.target_modules all-linear": "all-linear",
        "--ds.lora.target_modules q_proj v_proj": ["q_proj", "v_proj"],
    }.items():
        assert vars(parse(line.split()))["ds.lora.target_modules"] == expected


@pytest.mark.parametrize(
    "more", ["--ds.load_in_4bit", "--ds.tensor_parallel_size 2", "--train.enable_ema"]
)
def test_what_does_not_work_with_lora_is_refused(more):
    parser = upstream_parser()
    flags.add_flags(parser)
    line = f"--actor.model_name_or_path org/name {more}"
    assert list(checks._models(vars(parser.parse_args(line.split())))) == []
    lora = parser.parse_args([*line.split(), "--ds.lora.rank", "8"])
    (problem,) = checks._models(vars(lora))
    assert problem.startswith(f"--ds.lora.rank does not work with {more.split()[0]}")


# --- real engines -------------------------------------------------------------------------------


@pytest.mark.integration
def test_on_deepspeed_vllm_gets_what_the_actor_is_and_only_adapters_train(tmp_path):
    """Every case in one start, since a start of the stack is what takes the time."""
    make_policy().save_pretrained(tmp_path / "policy")
    tiny.make_tokenizer(TASKS["sort"]).save_pretrained(tmp_path / "policy")
    process = subprocess.Popen(
        [sys.executable, RANKS_PROGRAM, tmp_path],
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # the threads of three ranks spin otherwise
    )
    try:
        status = process.wait(280)
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    logs = [path.read_text(errors="replace") for path in sorted(tmp_path.glob("rank *"))]
    assert status == 0, "\n".join(log[-1500:] for log in logs)
    cases = [
        json.loads(line.split("FOUND")[1])
        for log in logs
        for line in log.splitlines()
        if "FOUND" in line
    ]
    names = [case["case"] for case in cases]
    assert {f"{r} ZeRO-{s}" for r in ("1 rank", "2 ranks") for s in range(4)} <= set(names)
    for case in cases:
        check(case)


def check(case: dict) -> None:
    name = case["case"]
    exact = 2e-2 if "bf16" in name else 1e-5
    named = "1 rank" in name
    matrices = {"q_proj", "down_proj"} if named else set(MATRICES)
    assert len(case["sent"]) == LAYERS * len(matrices), name
    assert {key.split(".")[-2] for key in case["sent"]} == matrices, name
    assert all(key.startswith("model.layers.") for key in case["sent"]), name
    # every adapter trains and nothing else does
    assert all("lora_" in key for key in case["changed by training"]), name
    assert len(case["changed by training"]) == 2 * len(case["sent"]), name
    assert case["changed by the sync"] == [], name

    assert case["largest change"] > 0.02, name
    assert case["merge error"] < exact / 4, name
    assert case["gap to the start"] > 0.05, name
    assert case["gap to vLLM"] < exact, name
    if "ZeRO-3" in name:
        adapters = 4 * sum(
            rows + columns
            for matrix, rows, columns in (
                *(("q_proj", 16, 16), ("k_proj", 8, 16), ("v_proj", 8, 16), ("o_proj", 16, 16)),
                *(("gate_proj", 24, 16), ("up_proj", 24, 16), ("down_proj", 16, 24)),
            )
            if matrix in matrices
        )
        layer = 16 * 16 + 16 * 24 if named else LAYER
        biases = 16 if named else 16 + 8 + 8
        assert case["gathered"] == layer + biases + adapters, name  # one decoder layer
    if "resumed otherwise" in case:
        assert case["gap when colocated"] == 0, name
        assert case["changed by resuming"] == case["resumed otherwise"] == [], name
        assert case["sent when resumed"] == 0, name
        assert len(case["changed by going on"]) == 2 * len(case["sent"]), name
        assert case["gap to the merged checkpoint"] <= exact / 4, name
        assert case["gap to PEFT"] < exact, name
    if name == "full width":  # by chance a cosine is 0 with a deviation of 1 / sqrt(numbers)
        assert case["cosine"] * math.sqrt(case["numbers"]) > 10
