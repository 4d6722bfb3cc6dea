#!/usr/bin/env bash
# Maze, 6x6 with ways of 4 to 8 moves: Ministral-8B-Instruct.
# How to run it, and what all recipes share: paper.sh
#
# Paper:     its figure alone has the test accuracies; the gains in pass@1 over all puzzles are 4.8 to 15.2 %.
# Hardware:  4 GPUs of 80 GB; the paper's 4 GH200. About 4 hours (an estimate).
# Unclear:   the number of steps is "at least 200"; which release of the model: 2410.
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train maze --split train --size 6 --lengths 4 5 6 7 8 --count 20000 --wording paper
build test maze --split test --size 6 --lengths 4 5 6 7 8 --count 200 --wording paper
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}" --ds.zero_stage 3
    --actor.model_name_or_path mistralai/Ministral-8B-Instruct-2410 --reward.remote_url "$graders/maze.py"
    --rollout.batch_size 32 --rollout.n_samples_per_prompt 8 --train.batch_size 128 # 2 updates a step
    --data.max_len 3072 --rollout.max_new_tokens 2048 # prompt 1024 and response
    --actor.adam.lr 3e-7 --actor.eps_clip 0.25
    --rollout.temperature 0.7 --eval.temperature 0.7 --eval.steps 25
    --js.max_steps 200 --data.max_samples 20000 # 625 steps of 32
)
recipe "$@"
