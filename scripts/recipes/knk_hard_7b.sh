#!/usr/bin/env bash
# Knights and Knaves with 6, 7 and 8 people: Qwen2.5-7B-Instruct, LoRA of rank 256.
# How to run it, and what all recipes share: paper.sh
#
# Paper:     test accuracy with 6 / 7 / 8 people: JS 42.13 / 32.50 / 25.38 %,
#            RLOO 39.50 / 30.00 / 16.75 %.
# Hardware:  4 GPUs of 80 GB; the paper's 4 GH200. About 3 hours (an estimate).
# Unclear:   the number of steps is "at least 200", and LoRA's alpha and layers are not given.
#            The text's gains of 4.8 to 15.2 % in pass@1 are 4.6 points (hard) and 15.9 (easy) in its table.
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train knights_knaves --split train --people 6 7 8 --count 30000 --wording paper
build test knights_knaves --split test --people 6 7 8 --count 300 --wording paper
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}"
    --actor.model_name_or_path Qwen/Qwen2.5-7B-Instruct
    --reward.remote_url "$graders/knights_knaves.py"
    --rollout.batch_size 32 --rollout.n_samples_per_prompt 8 --train.batch_size 128 # 2 updates a step
    --data.max_len 3072 --rollout.max_new_tokens 2048 # prompt 1024 and response
    --actor.adam.lr 4e-5 --actor.eps_clip 0.22 "${lora[@]}"
    --rollout.temperature 0.7 --eval.temperature 0.7 --eval.steps 25
    --js.max_steps 200 --data.max_samples 29984 # 937 steps of 32
)
recipe "$@"
