#!/usr/bin/env bash
# Appendix C.2: shrinkage where prompts are of two kinds and alike in difficulty, Qwen2.5-7B-Instruct.
# How to run it, and what all recipes share: paper.sh; of the variables it takes none
#
# Paper:     squared distance of the gradient at lambda 0.4 below RLOO's: 14.7 % on KnK with 4 people,
#            11.8 % on Countdown with 4 numbers, 5.3 % on half of each, where 0.4 is best, too.
#            Pass rates 13.35 and 14.62 %, lambda 0.43 and 0.41; 4 responses to a prompt.
# Hardware:  1 GPU of 140 GB; the paper does not say. 3 hours (an estimate).
# Unclear:   the numbers of prompts and batches: as in B.2, half of the prompts a batch.
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build knights_knaves knights_knaves --split train --people 4 --count 2000 --wording paper
build countdown countdown --split train --numbers 4 --count 2000 --wording paper
flags=(
    --model Qwen/Qwen2.5-7B-Instruct
    --prompts "$data/knights_knaves.jsonl" "$data/countdown.jsonl" --apply_chat_template
    --prompts_count 128 --responses 256 --m 4
    --temperature 1.0 --max_new_tokens 2048 --gradient_dtype bf16
)
measure heterogeneity "$@"
