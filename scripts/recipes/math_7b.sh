#!/usr/bin/env bash
# Mathematics: Qwen2.5-Math-7B on DAPO-17k, LoRA of rank 256.
# How to run it, and what all recipes share: paper.sh
#
# Paper:     pass@1 on MATH500, AMC23 and OlympiadBench 2.3 to 5.5 % above RLOO's, relative, over all three
#            models. The accuracies themselves are in its figure alone.
# Hardware:  4 GPUs of 80 GB; the paper's 4 GH200. About 10 hours (an estimate).
# Unclear:   as in math_1.5b.sh; LoRA's alpha and layers are not given: alpha 256, all linear ones.
recipe_data=math
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train math --split train --dataset dapo
for test in math500 amc23 olympiadbench; do build "$test" math --split test --dataset "$test"; done
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}"
    --actor.model_name_or_path Qwen/Qwen2.5-Math-7B --reward.remote_url "$graders/math.py"
    --eval.dataset "$data/math500.jsonl,$data/amc23.jsonl,$data/olympiadbench.jsonl"
    --rollout.batch_size 64 --rollout.n_samples_per_prompt 4 --train.batch_size 128 # 2 updates a step
    --data.max_len 3072 --rollout.max_new_tokens 2048 # prompt 1024 and response
    --actor.adam.lr 2e-5 --actor.eps_clip 0.22 "${lora[@]}"
    --rollout.temperature 0.8 --eval.temperature 0.8 --eval.steps 50
    --data.max_samples 17856 # 279 steps of 64
)
recipe "$@"
