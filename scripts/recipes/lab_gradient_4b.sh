#!/usr/bin/env bash
# Appendix B.2: how far the policy gradients of baselines are from the true one, Qwen3-4B-Base.
# How to run it, and what all recipes share: paper.sh; of the variables it takes none
#
# Usage:     --gradient_dtype bf16 on a smaller GPU; sketches are float32 all the same
# Paper:     squared distance with JS below RLOO's: 12.5 / 8.6 / 5.7 % with 2 / 4 / 8 responses.
#            128 prompts of DAPO-17k, 256 responses each; 20 batches of 64 prompts, here 2000.
# Hardware:  1 GPU of 80 GB; the paper does not say. 4 hours (an estimate).
# Unclear:   nothing; `reduction_to_all_percent` is the paper's figure, without the true gradient's error.
recipe_data=math
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train math --split train --dataset dapo
flags=(
    --model Qwen/Qwen3-4B-Base
    --prompts "$data/train.jsonl" --reward "$graders/math.py" --apply_chat_template
    --prompts_count 128 --responses 256 --m 2 4 8 --batch_prompts 64
    --temperature 1.0 --max_new_tokens 3072
)
measure gradient "$@"
