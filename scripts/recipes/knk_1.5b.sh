#!/usr/bin/env bash
# Knights and Knaves with 2 and 3 people: Qwen2.5-1.5B-Instruct, 1000 steps.
# How to run it, and what all recipes share: paper.sh
#
# Paper:     its figure alone has the curves of reward and test accuracy; JS is above RLOO.
# Hardware:  4 GPUs of 80 GB, as the paper's 4 H100. About 7 hours (an estimate).
# Unclear:   the number of problems: 10,000 for each number of people to train and 300 to test, as in KnK-Easy.
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train knights_knaves --split train --people 2 3 --count 20000 --wording paper
build test knights_knaves --split test --people 2 3 --count 300 --wording paper
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}"
    --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct
    --reward.remote_url "$graders/knights_knaves.py"
    --rollout.batch_size 32 --rollout.n_samples_per_prompt 8 --train.batch_size 128 # 2 updates a step
    --data.max_len 3072 --rollout.max_new_tokens 2048 # prompt 1024 and response
    --actor.adam.lr 5e-7 --actor.eps_clip 0.22
    --rollout.temperature 0.7 --eval.temperature 0.7 --eval.steps 25
    --js.max_steps 1000 --train.num_episodes 2 --data.max_samples 20000 # 625 steps of 32
)
recipe "$@"
