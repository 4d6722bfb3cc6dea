#!/usr/bin/env bash
# Appendix B.1: how far baselines are from the prompts' values, over the training of Qwen3-4B-Base.
# How to run it, and what all recipes share: paper.sh; of the variables it takes none
#
# Usage:     first bash scripts/recipes/math_4b.sh --ckpt.save_hf --ckpt.max_num 5, then this. CHECKPOINTS="A B" others
# Paper:     MSE of JS below RLOO's: 39.4 / 25.1 / 13.4 % with 2 / 4 / 8 responses; REINFORCE++ and
#            ReMax are further. 128 responses to a prompt, 20 batches of 64 prompts of DAPO-17k, here 2000.
# Hardware:  1 GPU of 80 GB; the paper does not say. Half an hour a checkpoint (an estimate).
# Unclear:   how many prompts (here 128, as in B.2), and which checkpoints. Settings are those of math_4b.sh.
recipe_data=math
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
trained=runs/math_4b/js-0/checkpoints
build train math --split train --dataset dapo
read -ra checkpoints <<<"${CHECKPOINTS:-$(printf "$trained/global_step%d_hf " 50 100 150 200 250)}"
flags=(
    --model Qwen/Qwen3-4B-Base "${checkpoints[@]}"
    --prompts "$data/train.jsonl" --reward "$graders/math.py" --apply_chat_template
    --prompts_count 128 --responses 128 --m 2 4 8 --batch_prompts 64
    --temperature 1.0 --max_new_tokens 3072
)
measure mse "$@"
