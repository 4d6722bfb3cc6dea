#!/usr/bin/env bash
# RLHF of Llama-3.2-3B-Instruct with an 8B Bradley-Terry reward model and the RLOO baseline, to compare js with.
#
#   bash scripts/recipes/rlhf_llama3.2_3b_rloo.sh              trains; more flags may follow, the last wins
#   bash scripts/recipes/rlhf_llama3.2_3b_rloo.sh --dry_run    prints and checks every flag; needs no GPU
#   bash scripts/recipes/rlhf_llama3.2_3b_rloo.sh --tiny       the same flags, tiny model, CPU, about 2 minutes
#
# Hardware: 4 GPUs of 80 GB; the paper's runs of this size took 4 H100 or GH200.
# Time:     about a day. An estimate (2,789 steps of some 30 s); it has not been measured.
# Paper:    win rates of RLOO, Arena-Hard v0.1 / v2.0 / creative writing: 55.3 / 5.6 / 20.2 %.
#           Before training: 26.2 / 2.4 / 5.2 %. JS: 56.7 / 7.4 / 23.4 %.
# Choices:  each one that is no default stands with its reason in rlhf_llama3.2_3b_common.sh.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# shellcheck source=scripts/recipes/rlhf_llama3.2_3b_common.sh
source "$root/scripts/recipes/rlhf_llama3.2_3b_common.sh"
exec "$root/.venv/bin/python" -m openrlhf_js.cli.recipe train "${flags[@]}" \
    --algo.advantage.estimator rloo \
    --ckpt.output_dir runs/rlhf_llama3.2_3b_rloo/model \
    --ckpt.path runs/rlhf_llama3.2_3b_rloo/checkpoints \
    --logger.tensorboard_dir runs/rlhf_llama3.2_3b_rloo/tensorboard \
    "$@"
