"""How much GPU memory a run takes, term by term. Computed, not measured.

All sizes are for one GPU on which all models take turns (`SHARED`), in bfloat16. `docs/gpu.md`
describes the terms, `research/benchmarks/gpu_memory.py` prints them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

GIB = 2**30
CARDS = (24, 48, 80)  # GiB
SHARED = (  # the flags that the sums assume
    "train.colocate_all",
    "vllm.enable_sleep",
    "ds.enable_sleep",
    "actor.gradient_checkpointing_enable",
)
# Assumed: no run has been measured.
USABLE = 0.92  # of a card: the rest is lost to allocator fragmentation
CONTEXT = 0.6 * GIB  # CUDA and its libraries, in each process
VLLM_WORK = 2 * GIB  # activations and CUDA graphs of an engine
VLLM_ASLEEP = 1 * GIB  # what an engine does not give back
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # attributes of MoE configs

Terms = dict[str, float]  # bytes


class Model(NamedTuple):
    """The sizes in the configuration of a Qwen2, a Llama or a similar model."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    tie_word_embeddings: bool
    head_dim: int = 0  # of an attention head; 0: the heads share the hidden size

    @classmethod
    def of(cls, config: Any) -> Model | None:
        """The sizes in a configuration; None for a mixture of experts, or if a size is missing."""
        sizes: dict[str, Any] = {name: getattr(config, name, None) for name in cls._fields}
        sizes["head_dim"] = sizes["head_dim"] or 0
        has_experts = any(getattr(config, name, None) for name in EXPERTS)
        return None if has_experts or None in sizes.values() else cls(**sizes)

    @property
    def head_size(self) -> int:
        """The number of elements in one head's key."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def linear_layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a layer's matrices: q, k, v, o, gate, up, down."""
        hidden, inner = self.hidden_size, self.intermediate_size
        queries = self.head_size * self.num_attention_heads
        keys = self.head_size * self.num_key_value_heads
        attention = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
        return [*attention, (hidden, inner), (hidden, inner), (inner, hidden)]

    @property
    def parameters(self) -> int:
        matrices = sum(inputs * outputs for inputs, outputs in self.linear_layers)
        biases = sum(outputs for _, outputs in self.linear_layers[:3])
        norms = 2 * self.hidden_size
        vocabularies = 1 if self.tie_word_embeddings else 2
        layers = self.num_hidden_layers * (matrices + biases + norms)
        return layers + self.hidden_size + vocabularies * self.largest

    @property
    def largest(self) -> int:
        """The number of elements in the largest parameter, the embedding."""
        return self.vocab_size * self.hidden_size

    def adapters(self, rank: int) -> int:
        """The parameters of LoRA on all linear layers."""
        per_rank = sum(inputs + outputs for inputs, outputs in self.linear_layers)
        return self.num_hidden_layers * rank * per_rank

    @property
    def kv_bytes(self) -> int:
        """Bytes per token in the KV cache: keys and values of two bytes each."""
        return 2 * 2 * self.num_hidden_layers * self.head_size * self.num_key_value_heads


class Run(NamedTuple):
    """The settings that determine memory; `tokens` are per micro-batch, padding included."""

    model: Model
    rank: int = 0  # of LoRA; 0: all parameters are trained
    gpus: int = 1
    zero_stage: int = 2
    offload: bool = False  # --ds.adam_offload
    reference: bool = False  # --algo.kl.init_coef above 0
    flash_attn: bool = False
    tokens: int = 2048
    sequences: int = 32  # that vLLM generates at a time
    length: int = 2048  # --data.max_len

    @property
    def trained(self) -> int:
        return self.model.adapters(self.rank) if self.rank else self.model.parameters


def policy_weights(run: Run) -> Terms:
    """bfloat16. ZeRO 3 shards them, and gathers up to a billion (`max_live_parameters`)."""
    total = 2 * (run.model.parameters + (run.trained if run.rank else 0))
    if run.zero_stage < 3 or run.gpus == 1:
        return {"policy: weights": total}
    return {"policy: weights": total / run.gpus, "policy: gathered": min(total, 2e9)}


def other_models(run: Run) -> Terms:
    """CUDA contexts, and the reference model, which exists only with a KL term."""
    terms = {"CUDA contexts": CONTEXT * (3 if run.reference else 2)}
    if run.reference:
        shared = run.gpus if run.zero_stage == 3 else 1
        terms["reference: weights"] = 2 * run.model.parameters / shared
    return terms


def optimizer_states(run: Run) -> Terms:
    """Adam's two averages and a copy of the weights, in float32 (deepspeed stage_1_and_2.py)."""
    return {} if run.offload else {"optimizer states": 12 * run.trained / run.gpus}


def gradients(run: Run) -> Terms:
    """bfloat16: the running sum, the last micro-batch's gradients, and `reduce_bucket_size` 5e8.

    With --ds.adam_offload they go to the host, through two buffers of the largest parameter's size.
    """
    kept = 2 * 2 * run.model.largest if run.offload else 2 * 2 * run.trained / run.gpus
    return {"gradients": kept, "gradients: bucket": 2 * 5e8}


def activations(run: Run) -> Terms:
    """Each layer's input in bfloat16 (gradient checkpointing), and the logits.

    OpenRLHF's Actor.forward holds the logits in float32 (4 bytes) until the backward pass ends.
    Their gradients through `gather` and `logsumexp` take 4 bytes each, and so does the sum: 16 in
    all. The loss of flash-attn has one gradient, and its copy in bfloat16: 10. What one layer
    recomputes comes later, and takes less.
    """
    model = run.model
    inputs = run.tokens * 2 * model.hidden_size * model.num_hidden_layers
    logits = run.tokens * model.vocab_size * (10 if run.flash_attn else 16)
    return {"activations: layer inputs": inputs, "activations: logits": logits}


def update(run: Run) -> Terms:
    """Gradients in DeepSpeed's step: parts and flat copy in bfloat16, flat copy in float32."""
    if run.offload:
        return {}
    return {"gradients: three copies": (2 + 2 + 4) * run.trained / run.gpus}


def engine(run: Run) -> Terms:
    """vLLM awake; adapters are merged into its weights."""
    return {
        "vLLM: weights": 2 * run.model.parameters,
        "vLLM: KV cache": run.sequences * run.length * run.model.kv_bytes,
        "vLLM: work": VLLM_WORK,
    }


def phases(run: Run) -> dict[str, Terms]:
    """What is on a GPU in each phase of a step; the largest sum decides."""
    policy, others, states = policy_weights(run), other_models(run), optimizer_states(run)
    asleep = {"vLLM: asleep": VLLM_ASLEEP}
    sent = {
        "vLLM: weights": 2 * run.model.parameters,
        "vLLM: asleep": VLLM_ASLEEP,
        "one parameter": 2 * run.model.largest,
    }
    return {
        "generate": engine(run) | policy | others,
        "backward": asleep | policy | states | gradients(run) | activations(run) | others,
        "update": asleep | policy | states | update(run) | others,
        "send weights": sent | policy | others,
    }


def peak(run: Run) -> float:
    return max(sum(terms.values()) for terms in phases(run).values())


def host(run: Run) -> float:
    """Host memory per GPU: sleeping or offloaded states, and vLLM's sleeping weights.

    With --ds.adam_offload, DeepSpeed also keeps gradients and a copy of the weights there.
    """
    return run.trained / run.gpus * (20 if run.offload else 12) + 2 * run.model.parameters


def utilization(run: Run, card: int) -> float:
    """--vllm.gpu_memory_utilization: the engine's share of the card, in steps of 0.05."""
    return math.ceil(20 * sum(engine(run).values()) / (card * GIB)) / 20


def fits(run: Run, card: int) -> bool:
    return peak(run) <= USABLE * card * GIB
