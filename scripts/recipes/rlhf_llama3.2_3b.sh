#!/usr/bin/env bash
# RLHF: Llama-3.2-3B-Instruct with an 8B Bradley-Terry reward model.
# How to run it, and what recipes share: paper.sh
#
# Paper:     win rates on Arena-Hard v0.1 / v2.0 / creative writing: JS 56.7 / 7.4 / 23.4 %,
#            RLOO 55.3 / 5.6 / 20.2 %, before 26.2 / 2.4 / 5.2 %. eval/arena_hard.sh measures them.
# Hardware:  4 GPUs of 80 GB. About a day (an estimate: 2,789 steps of some 30 s).
# Unclear:   there is no table. Given are policy, reward model, prompts and one epoch; what is marked
#            below is open, and the schedule is OpenRLHF's own.
# shellcheck source=scripts/recipes/paper.sh
source "$(dirname "${BASH_SOURCE[0]}")/paper.sh"
flags=(
    "${machine[@]}" "${packed[@]}" --ds.zero_stage 3 --ckpt.save_steps 200 --ckpt.save_hf
    --actor.model_name_or_path meta-llama/Llama-3.2-3B-Instruct
    --reward.model_name_or_path OpenRLHF/Llama-3-8b-rm-700k
    --data.prompt_dataset OpenRLHF/prompt-collection-v0.1
    --data.input_key context_messages --data.apply_chat_template
    --train.num_episodes 1 --data.max_samples 178496 # 2,789 steps of 64
    # Open; as in most tables: 64 prompts, 4 responses, 2 updates a step.
    --rollout.batch_size 64 --rollout.n_samples_per_prompt 4 --train.batch_size 128
    --actor.adam.lr 1e-6 # open; as the paper's other 3B model
    # Open; prompt and response in 2048 tokens, a response in 1024, as OpenRLHF's RLHF example.
    --data.max_len 2048 --rollout.max_new_tokens 1024 --rollout.temperature 1.0
    # Open; as OpenRLHF's RLHF example: a learned reward can be gamed, a verifiable one cannot.
    --algo.kl.init_coef 0.01
    # Open; in units of the reward model's own spread, which decides how much the KL term weighs.
    --reward.normalize_enable
)
recipe "$@"
