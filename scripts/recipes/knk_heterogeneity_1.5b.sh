#!/usr/bin/env bash
# Knights and Knaves, prompts of alike or unlike difficulty: Qwen2.5-1.5B-Instruct, 800 steps.
# How to run it, and what all recipes share: paper.sh
#
# Usage:     PEOPLE="4 5" (low heterogeneity, the default), "3 7" (medium) or "2 9" (high)
# Paper:     test accuracy low / medium / high: JS 25.69 / 23.85 / 34.25 %, RLOO 20.25 / 17.69 / 31.13 %;
#            the shrinkage falls as heterogeneity rises (js/shrinkage).
# Hardware:  4 GPUs of 80 GB; the paper does not say. About 5 hours each (an estimate).
# Unclear:   it has no table: all settings are those of knk_1.5b.sh, the same model. "800 gradient steps"
#            are taken as steps; if updates are meant, of which a step has 2, --js.max_steps 400.
read -ra people <<<"${PEOPLE:-4 5}"
printf -v recipe_variant '_%s' "${people[@]}"
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
build train knights_knaves --split train --people "${people[@]}" --count 20000 --wording paper
build test knights_knaves --split test --people "${people[@]}" --count 200 --wording paper
flags=(
    "${paper[@]}" "${machine[@]}" "${packed[@]}"
    --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct
    --reward.remote_url "$graders/knights_knaves.py"
    --rollout.batch_size 32 --rollout.n_samples_per_prompt 8 --train.batch_size 128 # 2 updates a step
    --data.max_len 3072 --rollout.max_new_tokens 2048 # prompt 1024 and response
    --actor.adam.lr 5e-7 --actor.eps_clip 0.22
    --rollout.temperature 0.7 --eval.temperature 0.7 --eval.steps 25
    --js.max_steps 800 --train.num_episodes 2 --data.max_samples 20000 # 625 steps of 32
)
recipe "$@"
