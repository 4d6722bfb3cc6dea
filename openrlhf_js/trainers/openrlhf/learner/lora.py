"""LoRA: the adapters train, and vLLM gets the merged weights.

Upstream sends vLLM every parameter under its name inside PEFT's wrapper, which vLLM does not know.
Here each adapted matrix is sent merged, under its name in the base model:
    W' = W + (alpha / r) B A    (Hu et al. 2021, arXiv:2106.09685, section 4.1)
All other weights are frozen, and vLLM has read them from the same checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import deepspeed  # type: ignore[import-untyped]
import torch
from peft.tuners.lora import LoraLayer

ADAPTER = "default"  # PEFT's name for a model's first adapter


def adapted_layers(model: Any) -> dict[str, Any]:
    """The layers of a PEFT model that have an adapter, by their names in the base model."""
    modules = model.get_base_model().named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLayer)}


def merged_weight(layer: Any) -> torch.Tensor:
    """W + (alpha / r) B A of one layer, a new tensor in the dtype of W."""
    weight = layer.get_base_layer().weight
    return (weight + layer.get_delta_weight(ADAPTER)).to(weight.dtype)


@torch.no_grad()
def merged_layers(model: Any, zero_stage: int) -> Iterator[dict[str, torch.Tensor]]:
    """The merged weights of a PEFT model by their names in the base model, layer by layer.

    Under ZeRO-3 the parameters are gathered one decoder layer at a time, and sharded again before
    that layer's weights are yielded.
    """
    layers = adapted_layers(model)
    for _, group in groupby(layers, key=_decoder_layer):
        names = list(group)
        parameters = [p for name in names for p in layers[name].parameters()]
        with deepspeed.zero.GatheredParameters(parameters, enabled=zero_stage == 3):
            weights = {f"{name}.weight": merged_weight(layers[name]) for name in names}
        for weight in weights.values():
            weight.ds_shape = weight.shape  # type: ignore[attr-defined]  # read under ZeRO-3
        yield weights


def _decoder_layer(name: str) -> str:
    """`model.layers.0.` of `model.layers.0.mlp.up_proj`; empty outside the decoder layers."""
    prefix = re.match(r".*?\.\d+\.", name)
    return prefix[0] if prefix else ""


def refuse_tied(model: Any) -> None:
    """Raises ValueError if an adapter is on embeddings that are also the output layer.

    The actor would apply it to one of the two, and vLLM holds one matrix for both.
    """
    base = model.get_base_model()
    ends = base.get_input_embeddings(), base.get_output_embeddings()
    adapted = any(isinstance(end, LoraLayer) for end in ends)
    if adapted and base.config.get_text_config().tie_word_embeddings:
        raise ValueError(
            "--ds.lora.target_modules: this model's input embeddings are its output layer, too: "
            "leave out embed_tokens and lm_head"
        )
