#!/usr/bin/env bash
# The reward model of the RLHF recipes: Bradley-Terry, 8B parameters, 700k preference pairs.
#
#   bash reward_models/train_llama3_8b_rm.sh              trains; more flags may follow, the last wins
#   bash reward_models/train_llama3_8b_rm.sh --dry_run    prints and checks every flag and every pair; no GPU
#   bash reward_models/train_llama3_8b_rm.sh --tiny       the same flags, tiny model, CPU, about a minute
#
# Hardware: 8 GPUs of 80 GB.
# Time:     about a day. An estimate (some 1.2 billion tokens through 8B parameters); not measured.
# Paper:    gives no figure for the reward model. It takes OpenRLHF/Llama-3-8b-rm-700k, which was
#           trained like this by its authors; take that one if you do not need your own.
# Choices:  each flag below is one; where nothing else is said, it is that of OpenRLHF's own example
#           for this model.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
flags=(
    --model.model_name_or_path OpenRLHF/Llama-3-8b-sft-mixture
    --data.dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku
    --data.apply_chat_template
    --data.max_len 8192
    --train.max_epochs 1
    --train.batch_size 256
    --train.micro_batch_size 1
    --adam.lr 9e-6
    --ds.zero_stage 3
    --ds.packing_samples
    --model.gradient_checkpointing_enable
    --ckpt.output_dir checkpoints/llama3_8b_rm
    # Ours: a run of a day can be resumed (--ckpt.load_enable).
    --ckpt.path runs/llama3_8b_rm/checkpoints
    --ckpt.save_steps 200
    --logger.tensorboard_dir runs/llama3_8b_rm/tensorboard
)
exec "$root/.venv/bin/python" -m baseline_research.cli.recipe rm-train "${flags[@]}" "$@"
