#!/usr/bin/env bash
# The paper's table of baselines on GSM8K: six estimators, M = 2, 4, 8, five seeds: 90 runs of gsm8k_0.5b.sh.
#
#   bash scripts/recipes/gsm8k_table.sh             # trains what has not finished, one run after the other
#   bash scripts/recipes/gsm8k_table.sh --print     # for Slurm: writes the commands, one a line, into
#                                                   # runs/gsm8k_table/commands.txt (docs/studies.md)
#   .venv/bin/python scripts/recipes/gsm8k_table.py # the paper's table, from the runs that are whole
#
# More flags of `openrlhf-js study` may follow; the last wins: --seeds 1, --responses 2, --estimators rloo js.
# Paper:     see gsm8k_0.5b.sh. `grpo` and `reinforce++` are OpenRLHF's group_norm and reinforce.
# Hardware:  1 GPU of 80 GB; 90 x 1.5 hours (an estimate).
recipe() {
    shift "${#by_run[@]}"
    exec "$root/.venv/bin/openrlhf-js" study --engine stack --estimators rloo js bloo remax grpo reinforce++ \
        --responses 2 4 8 --seeds 5 --learning_rates 1e-6 --prompts 64 --steps 500 \
        --out runs/gsm8k_table "$@" -- "${flags[@]}"
}
# shellcheck source=scripts/recipes/gsm8k_0.5b.sh
source "$(dirname "${BASH_SOURCE[0]}")/gsm8k_0.5b.sh"
