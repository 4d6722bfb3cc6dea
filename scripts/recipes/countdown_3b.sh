#!/usr/bin/env bash
# Countdown with 3 and 4 numbers: Qwen2.5-3B.
# How to run it, and what all recipes share: paper.sh
#
# Paper:     its figure alone has the test accuracies; the gains in pass@1 over all puzzles are 4.8 to 15.2 %.
# Hardware:  2 GPUs of 80 GB; the paper's 2 GH200. About 2 hours (an estimate).
# Unclear:   the number of steps is "at least 200".
: "${GPUS:=2}"
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train countdown --split train --numbers 3 4 --count 20000 --wording paper
build test countdown --split test --numbers 3 4 --count 200 --wording paper
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}"
    --actor.model_name_or_path Qwen/Qwen2.5-3B --reward.remote_url "$graders/countdown.py"
    --rollout.batch_size 64 --rollout.n_samples_per_prompt 5 --train.batch_size 160 # 2 updates a step
    --data.max_len 1536 --rollout.max_new_tokens 1024 # prompt 512 and response
    --actor.adam.lr 1e-6 --actor.eps_clip 0.22
    --rollout.temperature 0.7 --eval.temperature 0.7 --eval.steps 10
    --js.max_steps 200 --data.max_samples 19968 # 312 steps of 64
)
recipe "$@"
