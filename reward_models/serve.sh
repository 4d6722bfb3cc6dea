#!/usr/bin/env bash
# Serves the reward model of train_llama3_8b_rm.sh, for RLHF with
#   --reward.remote_url http://127.0.0.1:5000/get_reward
# from this machine. For others: OPENRLHF_JS_REWARD_TOKEN=... bash reward_models/serve.sh --host 0.0.0.0
#
# Usage:     bash reward_models/serve.sh [flags of `openrlhf-js rm serve`]
#            REWARD_MODEL=... names another folder, or a model on the hub.
# Hardware:  one GPU with 24 GB or more: 8B parameters in bf16 are 16 GB, and a batch comes on top.
# Time:      as long as reading 16 GB takes; then until SIGTERM.
# Paper:     gives no figure for serving; its reward model has 8B parameters too.
# Choices:   one that is not the default of `openrlhf-js rm serve`:
#   --data.max_len 8192   as in training (train_llama3_8b_rm.sh), so that texts are cut alike
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
exec "$root/.venv/bin/python" -m openrlhf_js.cli.rm serve \
    --reward.model_name_or_path "${REWARD_MODEL:-checkpoints/llama3_8b_rm}" \
    --data.max_len 8192 \
    "$@"
