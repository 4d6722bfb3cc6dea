#!/usr/bin/env bash
# One card of 24 GB: Countdown with Qwen2.5-1.5B-Instruct, LoRA of rank 64, js_grad. Not of the paper.
# How to run it, and what all recipes share: paper.sh
#
# Hardware:  1 GPU of 24 GB, as computed: research/benchmarks/gpu_memory.py --model 1.5b --lora 64 --card 24 --tokens 4096
#            --length 1024. Nobody has run it yet. Other models and cards, and what to turn: docs/gpu.md
: "${GPUS:=1}" "${ESTIMATOR:=js_grad}"
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train countdown --split train --numbers 3 4 --count 20000
build test countdown --split test --numbers 3 4 --count 200
flags=(
    "${machine[@]}"
    --data.input_key input --data.label_key label --data.apply_chat_template
    --data.prompt_dataset "$data/train.jsonl" --eval.dataset "$data/test.jsonl"
    --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --reward.remote_url "$graders/countdown.py"
    --ds.lora.rank 64 --ds.lora.alpha 64 --actor.adam.lr 4e-5 # the paper's for LoRA on puzzles
    --actor.lr_scheduler constant --actor.lr_warmup_ratio 0 --algo.kl.init_coef 0 # no reference model
    --rollout.batch_size 64 --rollout.n_samples_per_prompt 4 --train.batch_size 256 # 1 update a step
    --data.max_len 1024 --rollout.max_new_tokens 768
    --train.micro_batch_size 4 --rollout.micro_batch_size 8 # 4 x 1,024 tokens: their logits are 9 GiB
    --vllm.gpu_memory_utilization 0.3 --ds.attn_implementation sdpa
    --eval.steps 20 --js.max_steps 200 --data.max_samples 19968 # 312 steps of 64
)
recipe "$@"
