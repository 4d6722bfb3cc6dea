#!/usr/bin/env bash
# RLHF on the stack, in pairs: a Bradley-Terry reward model of the task `sort` is trained on
# preferences, and served; rloo and js_grad train on its scores. Resumes.
#   bash research/studies/rlhf.sh [FOLDER]          # default runs/rlhf; needs port 5000
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0"; exit ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(realpath -m "${1:-$root/runs/rlhf}")
export PATH=$root/.venv/bin:$PATH
export OMP_NUM_THREADS=1

[ -f "$folder/prompts_held_out.jsonl" ] || python "$root/research/studies/rlhf.py" "$folder"
start=("$folder"/warm_start/sort-*)

if [ ! -d "$folder/reward_model" ]; then
    openrlhf-js rm train --js.device cpu --model.model_name_or_path "${start[0]}" \
        --data.dataset "$folder/pairs_train.jsonl" --data.prompt_key prompt --data.max_len 24 \
        --train.batch_size 64 --train.micro_batch_size 64 --train.max_epochs 2 --adam.lr 1e-3 \
        --ckpt.path "$folder/checkpoints" --ckpt.output_dir "$folder/reward_model"
    openrlhf-js rm eval "$folder/pairs_held_out.jsonl" --model "$folder/reward_model" \
        --prompt_key prompt --out "$folder/reward_model/eval"
fi

health=http://127.0.0.1:5000/health
if curl --silent --fail --output /dev/null $health; then
    echo "rlhf.sh: another server answers on port 5000: stop it first" >&2
    exit 1
fi
openrlhf-js rm serve --reward.model_name_or_path "$folder/reward_model" --device cpu &
server=$!
trap 'kill $server' EXIT
until curl --silent --fail --output /dev/null $health; do
    kill -0 $server
    sleep 1
done

openrlhf-js study --engine stack --estimators rloo js_grad --prompts 64 --responses 2 --steps 50 \
    --learning_rates 3e-4 --seeds 3 --out "$folder/study" -- \
    --js.device cpu --actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --vllm.num_engines 1 \
    --vllm.enforce_eager --ds.zero_stage 2 --ds.attn_implementation sdpa \
    --actor.model_name_or_path "${start[0]}" --reward.remote_url http://127.0.0.1:5000/get_reward \
    --data.prompt_dataset "$folder/prompts_train.jsonl" --data.max_len 18 --rollout.max_new_tokens 6 \
    --rollout.micro_batch_size 128 --train.micro_batch_size 32 --actor.lr_scheduler constant \
    --actor.lr_warmup_ratio 0 --algo.kl.init_coef 0 --ckpt.best_metric_key none \
    --eval.dataset "$folder/prompts_held_out.jsonl" --eval.steps 10 --eval.temperature 1.0 \
    --eval.n_samples_per_prompt 2
python "$root/research/studies/rlhf.py" "$folder" "$folder/study"
