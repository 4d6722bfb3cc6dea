"""Cases of `ranks.py`: our trainer on real DeepSpeed, each stage and loss that is measured.

Each case trains two optimizer steps on 8 responses each with a learning rate of 0, and prints one
line of JSON: the values that `GradientVariance` measured, and those of plain PyTorch, which stores
the gradient of every micro-batch.
"""

import copy
import json
from typing import Any

import torch
import torch.distributed as dist
from kit import noisy, qwen
from openrlhf.models import Actor
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.utils import get_strategy
from peft import LoraConfig, get_peft_model

from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser, validate_upstream
from openrlhf_js.trainers.openrlhf.learner.actors import OurPolicyTrainer

RESPONSES = 16
STEPS = 2
PROMPT_TOKENS = 3
CLIP = 0.2
DYNAMIC = ("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "20")
SEQUENCES = ("--actor.loss_agg_mode", "seq-mean-token-mean")
FLAGS = (
    "--actor.model_name_or_path policy --data.prompt_dataset prompts --reward.remote_url reward.py "
    "--vllm.num_engines 1 --ds.attn_implementation sdpa --algo.advantage.estimator rloo "
    f"--rollout.batch_size {RESPONSES // 4} --rollout.n_samples_per_prompt 4 "
    f"--train.batch_size {RESPONSES // STEPS} --train.micro_batch_size 2 "
    "--actor.adam.lr 0 --actor.max_norm 0.01"  # a norm far below every gradient here
)

# name -> ZeRO stages, flags, and how the model differs from a plain one in float32
CASES: dict[str, tuple[tuple[int, ...], tuple[str, ...], dict[str, Any]]] = {
    "plain": ((1, 2, 3), (), {}),
    "tied-checkpointing": ((3,), (), {"tied": True, "reentrant": False}),
    "dynamic": ((2,), DYNAMIC, {}),
    "dynamic-sequences-lora": ((1, 3), (*DYNAMIC, *SEQUENCES), {"lora": True}),
    "reentrant-unclipped": ((2,), ("--actor.max_norm", "0"), {"tied": True, "reentrant": True}),
    "bf16-summed-in-fp32": ((1,), ("--ds.grad_accum_dtype", "fp32"), {"dtype": "bf16"}),
}


def arguments(stage: int, extra: tuple[str, ...], dtype: str) -> Any:
    """Upstream's nested arguments; it offers no float32, but its strategy takes it."""
    parser = upstream_parser()
    flags.add_flags(parser)
    args = validate_upstream(
        parser.parse_args([*FLAGS.split(), f"--ds.zero_stage={stage}", *extra])
    )
    args.ds.param_dtype = dtype
    return args


def make_policy(tied: bool, lora: bool, dtype: str) -> Actor:
    model = qwen(
        vocab_size=30, tie_word_embeddings=tied, use_cache=False, attn_implementation="sdpa"
    )
    if lora:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    noisy(model)  # LoRA's zeros would leave half its gradients 0
    policy = Actor(model.to(torch.bfloat16 if dtype == "bf16" else torch.float32))
    policy.packing_samples = policy.is_vlm = False
    return policy


def make_response(generator: torch.Generator) -> Experience:
    """One response of 3 to 11 tokens with an advantage, as the replay buffer takes it."""
    length = int(torch.randint(3, 12, (1,), generator=generator))
    tokens = PROMPT_TOKENS + length
    action_mask = torch.zeros(1, tokens - 1, dtype=torch.bool)
    action_mask[:, -length:] = True
    old = torch.randn(1, tokens - 1, generator=generator) * 0.1 - 3.4
    advantages = action_mask * torch.randn((), generator=generator)
    return Experience(
        sequences=torch.randint(0, 30, (1, tokens), generator=generator),
        attention_mask=torch.ones(1, tokens, dtype=torch.long),
        action_mask=action_mask,
        action_log_probs=old,
        advantages=advantages,
        returns=advantages,
        total_length=torch.tensor([tokens]),
        prompts=["prompt"],
        labels=["label"],
    )


def explicit(policy: Actor, batches: list[Experience], by_sequence: bool) -> dict[str, float]:
    """The step's moments from the gradient of each micro-batch, by the definition."""
    tokens = sum(int(e.action_mask.sum()) for e in batches)
    sequences = sum(len(e.action_mask) for e in batches)
    trained = [p for p in policy.parameters() if p.requires_grad]
    gradients = []
    for e in batches:
        log_probs = policy(e.sequences, e.action_mask, attention_mask=e.attention_mask)
        ratio = (log_probs - e.action_log_probs).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        loss = -torch.min(ratio * e.advantages, clipped * e.advantages) * e.action_mask
        per_sequence = loss.sum(1) / e.action_mask.sum(1)
        total = per_sequence.sum() / sequences if by_sequence else loss.sum() / tokens
        found = torch.autograd.grad(total, trained, allow_unused=True)
        gradients.append(torch.cat([g.flatten() for g in found if g is not None]).double())
    h = torch.stack(gradients)
    shares = torch.tensor([len(e.action_mask) / sequences for e in batches], dtype=torch.float64)
    whole = h.sum(0)
    m = len(h)
    equal = shares.unique().numel() == 1
    if equal:  # the paper's estimator, in its own words
        g = m * h
        variance = (g - g.mean(0)).square().sum() / (m * (m - 1))
    else:
        concentration = shares.square().sum()
        variance = (h.square().sum() - concentration * whole.square().sum()) / (1 - concentration)
    return {
        "variance": variance.item(),
        "mean_square": (whole.square().sum() - variance).item(),
        "equal": float(equal),
    }


def trainer_of(strategy: Any, policy: Any) -> Any:
    """Our trainer of a policy on a DeepSpeed engine."""
    args = strategy.args
    settings = {
        "optim": "adam",
        "muon": vars(args.actor.muon),
        "adam": vars(args.actor.adam),
        "lr_scheduler": "constant",
        "max_norm": args.actor.max_norm,
        "scheduler_steps": 100,
    }
    policy, optimizer, scheduler = strategy.prepare((policy, settings))
    return OurPolicyTrainer(
        strategy,
        policy,
        None,
        optimizer,
        scheduler,
        micro_train_batch_size=2,
        dataloader_pin_memory=False,
    )


def train(stage: int, extra: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Trains two steps, and returns the two sets of numbers, each the mean over the steps."""
    dtype = options.get("dtype", "fp32")
    args = arguments(stage, ("--js.gradient_variance", *extra), dtype)
    strategy = get_strategy(args)
    strategy.setup_distributed()
    policy = make_policy(options.get("tied", False), options.get("lora", False), dtype)
    plain = copy.deepcopy(policy)
    if "reentrant" in options:
        policy.gradient_checkpointing_enable({"use_reentrant": options["reentrant"]})
        if options.get("lora") or options["reentrant"]:
            policy.model.enable_input_require_grads()
    trainer = trainer_of(strategy, policy)
    policy = trainer.actor

    batches: list[list[Experience]] = [[] for _ in range(STEPS)]
    measured = trainer.training_step

    def remember(experience: Experience, *rest: Any) -> Any:
        batches[policy.model.global_steps].append(copy.deepcopy(experience))
        return measured(experience, *rest)

    trainer.training_step = remember
    generator = torch.Generator().manual_seed(5)
    responses = [make_response(generator) for _ in range(RESPONSES)]
    share = RESPONSES // dist.get_world_size()
    for response in responses[dist.get_rank() * share :][:share]:
        trainer.replay_buffer.append(response)
    trainer.ppo_train(0.0)

    steps = []
    for mine in batches:
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, mine)
        everyone = [experience for rank in ranks for experience in rank]
        steps.append(explicit(plain, everyone, by_sequence=set(SEQUENCES) <= set(extra)))
    expected = {name: sum(step[name] for step in steps) / STEPS for name in steps[0]}
    return {"measured": trainer.gradient_variance.metrics(), "expected": expected}


def late_collectives() -> int:
    """How often the last of two collectives did not end last, which ZeRO-3 takes for granted."""
    late = 0
    for _ in range(20):
        large = torch.zeros(2 * 1_000_000)
        small = torch.zeros(2)
        dist.all_gather_into_tensor(large, torch.ones(1_000_000), async_op=True)
        dist.all_gather_into_tensor(small, torch.ones(1), async_op=True).wait()
        late += not bool(large.all())
        dist.barrier()
    return late


def run_cases() -> None:
    print("LATE", late_collectives(), flush=True)
    for name, (stages, extra, options) in CASES.items():
        for stage in stages:
            found = train(stage, extra, options)
            print("GRADIENT", json.dumps({"case": f"{name} {stage}", **found}), flush=True)
