"""Cases of `ranks.py`: LoRA in upstream's actor and our trainer on real DeepSpeed.

The policy is in the folder of a case. Rank 0 prints one line of JSON per case. vLLM is a
dictionary that keeps what upstream sends.
"""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import torch.multiprocessing.reductions
from gradient_variance_cases import arguments, make_response, trainer_of
from openrlhf.cli import lora_combiner
from openrlhf.models import Actor
from openrlhf.trainer.ray import ppo_actor
from openrlhf.utils import get_strategy, utils
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

NAMED = ("--ds.lora.target_modules", "q_proj", "down_proj")
LORA = ("--ds.lora.rank", "4", "--ds.lora.alpha", "8")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

# name -> ranks, ZeRO stage, flags, dtype
CASES: dict[str, tuple[int, int, tuple[str, ...], str]] = {
    **{f"1 rank ZeRO-{stage}": (1, stage, (*LORA, *NAMED), "fp32") for stage in range(4)},
    **{f"2 ranks ZeRO-{stage}": (2, stage, LORA, "fp32") for stage in range(4)},
    "bf16 ZeRO-3": (2, 3, LORA, "bf16"),
}
Weights = dict[str, torch.Tensor]


def make_trainer(args: Any, folder: Path) -> Any:
    """Our trainer as upstream's `PolicyModelActor` makes it; ZeRO-3 shards small tensors, too."""
    strategy = get_strategy(args)
    configure = strategy.get_ds_train_config

    def sharded(*positional: Any, **named: Any) -> dict[str, Any]:
        config = configure(*positional, **named)
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
        return config

    strategy.get_ds_train_config = sharded
    strategy.setup_distributed()
    policy = Actor(
        str(folder / "policy"),
        attn_implementation="sdpa",
        param_dtype=args.ds.param_dtype,
        lora_rank=args.ds.lora.rank,
        lora_alpha=args.ds.lora.alpha,
        target_modules=args.ds.lora.target_modules,
        ds_config=strategy.get_ds_train_config(),
    )
    return trainer_of(strategy, policy)


def train(trainer: Any, seed: int) -> None:
    """Two optimizer steps."""
    torch.manual_seed(seed)  # of the shuffle
    responses = drawn(16, seed)
    share = len(responses) // dist.get_world_size()
    for response in responses[dist.get_rank() * share :][:share]:
        trainer.replay_buffer.append(response)
    trainer.ppo_train(0.0)
    trainer.replay_buffer.clear()


def drawn(count: int, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [make_response(generator) for _ in range(count)]


def all_weights(trainer: Any) -> Weights:
    named = dict(trainer.actor.model.module.named_parameters())
    sharded = trainer.strategy.args.ds.zero_stage == 3
    with deepspeed.zero.GatheredParameters(list(named.values()), enabled=sharded):
        return {name: p.detach().clone() for name, p in named.items()}


def sent_to_vllm(trainer: Any, colocated: bool = False) -> tuple[Weights, int]:
    """What a sync sends, and the most elements that it gathers at a time under ZeRO-3."""
    sent: Weights = {}
    gathered: list[int] = []
    announced: list[tuple[str, torch.dtype, torch.Size]] = []

    def receive(tensor: torch.Tensor) -> None:
        name, dtype, shape = announced.pop()
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        assert name not in sent
        sent[name] = tensor.clone()

    def update(name: str, dtype: torch.dtype, shape: torch.Size, empty_cache: bool) -> None:
        announced.append((name, dtype, shape))

    def update_ipc(name: str, dtype: Any, shape: Any, ipc_handles: Any, empty_cache: bool) -> None:
        assert sorted(ipc_handles) == list(range(dist.get_world_size()))
        first, *others = ipc_handles.values()
        assert all(torch.equal(first, other) for other in others)
        announced.append((name, dtype, shape))
        receive(first)

    class Recorded(deepspeed.zero.GatheredParameters):  # type: ignore[name-defined, misc]
        def __init__(self, params: Any, *positional: Any, **named: Any):
            gathered.append(sum(getattr(p, "ds_numel", 0) for p in params))
            super().__init__(params, *positional, **named)

    engine = {"update_weight": update, "update_weight_cuda_ipc": update_ipc}
    trainer.vllm_engines = [
        SimpleNamespace(**{n: SimpleNamespace(remote=call) for n, call in engine.items()})
    ]
    trainer._model_update_group = SimpleNamespace(broadcast=lambda tensor, **_: receive(tensor))
    trainer.use_cuda_ipc = colocated
    plain = deepspeed.zero.GatheredParameters
    deepspeed.zero.GatheredParameters = Recorded
    try:
        trainer.broadcast_to_vllm()
    finally:
        deepspeed.zero.GatheredParameters = plain
    return sent, max(gathered)


def log_probs(policy: Any, responses: list[Any]) -> torch.Tensor:
    found = []
    with torch.no_grad():
        for e in responses:
            row = policy(e.sequences, e.action_mask, attention_mask=e.attention_mask)
            found.append(row[e.action_mask].float())
    return torch.cat(found)


def as_policy(model: Any) -> Actor:
    policy = Actor(model.eval())
    policy.packing_samples = policy.is_vlm = False
    return policy


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one.double() - other.double()).abs().max().item()


def largest_gap(one: Weights, other: Weights) -> float:
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return max(gap(one[name], other[name]) for name in one)


def changed(before: Weights, after: Weights) -> list[str]:
    return sorted(name for name in before if not torch.equal(before[name], after[name]))


def by_hand(weights: Weights, scale: float) -> Weights:
    """W + scale B A in double precision, by the names in the base model."""
    merged = {}
    for name, a in weights.items():
        if "lora_A" in name:
            module = name.partition(".lora_A")[0]
            w, b = (
                weights[f"{module}.{part}.weight"].double()
                for part in ("base_layer", "lora_B.default")
            )
            plain = module.removeprefix("base_model.model.")
            merged[f"{plain}.weight"] = w + scale * b @ a.double()
    return merged


def check(name: str, folder: Path) -> dict[str, Any]:
    ranks, stage, extra, dtype = CASES[name]
    common = ("--actor.adam.lr", "0.02", "--actor.max_norm", "1")
    args = arguments(stage, (*common, *extra), dtype)
    trainer = make_trainer(args, folder)
    start = all_weights(trainer)
    train(trainer, seed=1)
    trained = all_weights(trainer)
    sent, gathered = sent_to_vllm(trainer)
    responses = drawn(8, seed=9)
    of_actor = log_probs(trainer.actor.eval(), responses)
    found: dict[str, Any] = {
        "changed by training": changed(start, trained),
        "changed by the sync": changed(trained, all_weights(trainer)),
        "gathered": gathered,
    }
    policy = folder / "policy"

    def load(path: Path) -> Any:
        return AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype])

    if dist.get_rank() == 0:
        merged = by_hand(trained, scale=args.ds.lora.alpha / args.ds.lora.rank)
        plain = load(policy)
        base = load(policy)
        of_base = log_probs(as_policy(base), responses)
        assert not plain.load_state_dict(sent, strict=False).unexpected_keys
        found |= {
            "sent": sorted(sent),
            "merge error": largest_gap(sent, merged),
            "largest change": largest_gap(sent, {n: base.state_dict()[n] for n in sent}),
            "gap to vLLM": gap(of_actor, log_probs(as_policy(plain), responses)),
            "gap to the start": gap(of_actor, of_base),
        }
    if ranks == 2:
        handed_over, _ = sent_to_vllm(trainer, colocated=True)
        found["gap when colocated"] = largest_gap(handed_over, sent) if sent else 0.0
        found |= resume(trainer, args, folder, sent) | save(trainer, folder, sent, of_actor, load)
    return found


def resume(trainer: Any, args: Any, folder: Path, sent: Weights) -> dict[str, Any]:
    """A second trainer from the first one's checkpoint, and what both make of the next steps."""
    path = str(folder / "checkpoint")
    trainer.strategy.save_ckpt(trainer.actor.model, path, "step", client_state={"steps": 2})
    second = make_trainer(args, folder)
    _, states = second.strategy.load_ckpt(second.actor.model, path)
    assert states["steps"] == 2
    found = {"changed by resuming": changed(all_weights(trainer), all_weights(second))}
    again, _ = sent_to_vllm(second)
    found["sent when resumed"] = largest_gap(again, sent) if sent else 0.0  # rank 0 alone sends
    before = all_weights(second)
    for each in (trainer, second):
        train(each, seed=2)
    after = all_weights(second)
    found["changed by going on"] = changed(before, after)
    found["resumed otherwise"] = changed(all_weights(trainer), after)
    # the checks of saved adapters are about the weights that were sent
    second.strategy.load_ckpt(trainer.actor.model, path)
    return found


def save(trainer: Any, folder: Path, sent: Weights, of_actor: Any, load: Any) -> dict[str, Any]:
    """The adapter as upstream saves it, loaded by PEFT, and merged."""
    policy, adapter, merged = (str(folder / name) for name in ("policy", "adapter", "merged"))
    tokenizer = AutoTokenizer.from_pretrained(policy)
    trainer.strategy.save_model(trainer.actor, tokenizer, adapter)
    if dist.get_rank():
        return {}
    dtype = trainer.strategy.args.ds.param_dtype
    lora_combiner.apply_lora(policy, adapter, merged, False, dtype)
    weights = load(Path(merged)).state_dict()
    model = PeftModel.from_pretrained(load(Path(policy)), adapter)
    return {
        "gap to the merged checkpoint": largest_gap(sent, {n: weights[n] for n in sent}),
        "gap to PEFT": gap(of_actor, log_probs(as_policy(model), drawn(8, seed=9))),
    }


def run_cases(ranks: int, top: Path) -> None:
    # no actor of Ray and no GPU is there
    ppo_actor.ray = SimpleNamespace(get=list)
    ppo_actor.get_physical_gpu_id = dist.get_rank
    torch.multiprocessing.reductions.reduce_tensor = copy.copy
    # upstream's parser offers no float32
    utils.convert_to_torch_dtype = lora_combiner.convert_to_torch_dtype = DTYPES.__getitem__
    for name in (name for name, case in CASES.items() if case[0] == ranks):
        found = check(name, top / name)
        if dist.get_rank() == 0:
            print("LORA", json.dumps({"case": name, **found}), flush=True)
