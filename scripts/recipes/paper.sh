# shellcheck shell=bash
# What the recipes of the paper share. A recipe sources this file, sets `flags` and calls `recipe`:
#
#   bash scripts/recipes/NAME.sh              builds its data and trains; more flags may follow, the last wins
#   bash scripts/recipes/NAME.sh --dry_run    checks every flag and shows the run on one screen; no GPU, no network
#   bash scripts/recipes/NAME.sh --tiny       the same flags, tiny model and data, CPU, under 2 minutes
#
# ESTIMATOR=rloo, bloo, remax, js_grad, group_norm (GRPO), reinforce (REINFORCE++) ...; default js
# SEED=1 another seed, of data order and sampling; default 0     GPUS=8 other hardware
# Results are in runs/NAME/ESTIMATOR-SEED, data in runs/data/NAME. `tensorboard --logdir` shows its curves.
#
# shellcheck disable=SC2034  # the recipes use the arrays
set -euo pipefail
case "${1:-}" in -h | --help)
    sed -s -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "${BASH_SOURCE[-1]}" "${BASH_SOURCE[0]}"
    exit ;;
esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
name="$(basename "${BASH_SOURCE[1]}" .sh)${recipe_variant:-}"
graders="$root/reward_models" data="runs/data/${recipe_data:-$name}"
flags=()
tried="$*"

# Where OpenRLHF's defaults differ from the paper (its tables, its equations), or from verl, with a
# fork of which it was made, where the paper is silent.
paper=(
    --algo.kl.init_coef 0               # tables; OpenRLHF 0.01
    --js.loss sequence_mean             # equation of PPO, 1/|y| for each response; OpenRLHF token_mean
    --actor.lr_scheduler constant       # verl; OpenRLHF cosine_with_min_lr
    --actor.lr_warmup_ratio 0           # verl; OpenRLHF 0.03
    --actor.adam.betas 0.9 0.999        # verl; OpenRLHF 0.9 0.95
    --actor.adam.weight_decay 0.01      # verl; OpenRLHF 0
    --actor.dual_clip 3                 # verl; OpenRLHF none
    --eval.n_samples_per_prompt 16      # tables, all but GSM8K's; OpenRLHF 4
    --ckpt.best_metric_key none         # the paper reports the last checkpoint
    --js.gradient_variance              # the paper's figure of the gradient's variance
    --data.input_key input --data.label_key label --data.apply_chat_template
    --data.prompt_dataset "$data/train.jsonl" --eval.dataset "$data/test.jsonl"
)
lora=(--ds.lora.rank 256 --ds.lora.alpha 256) # rank: tables; alpha: not given, the rank; OpenRLHF 16

# All models share the GPUs in turn.
machine=(
    --actor.num_gpus_per_node "${GPUS:=4}" --ref.num_gpus_per_node "$GPUS"
    --reward.num_gpus_per_node "$GPUS" --vllm.num_engines "$GPUS"
    --train.colocate_all --vllm.enable_sleep --ds.enable_sleep --vllm.gpu_memory_utilization 0.5
    --actor.gradient_checkpointing_enable
    --ckpt.save_steps 50
)
packed=(--ds.packing_samples --train.dynamic_batch_enable --train.max_tokens_per_gpu 16384) # text only

# build NAME TASK FLAGS...: makes the prompt file $data/NAME.jsonl if it is missing
build() {
    [[ " $tried " =~ " --dry"[_-]"run "|" --tiny " || -e "$data/$1.jsonl" ]] ||
        "$root/.venv/bin/openrlhf-js" data build "${@:2}" --out "$data" --name "$1"
}

# measure PROGRAM FLAGS...: runs a program of `openrlhf-js lab` with `flags` and these
measure() {
    exec "$root/.venv/bin/python" -m baseline_research.cli.recipe "$1" "${flags[@]}" --out "runs/$name" "${@:2}"
}

# recipe FLAGS...: trains with `flags` and these, unless the file that sources a recipe knows better
declare -F recipe >/dev/null || recipe() {
    local run="${ESTIMATOR:=js}-${SEED:=0}"
    exec "$root/.venv/bin/python" -m baseline_research.cli.recipe train "${flags[@]}" \
        --algo.advantage.estimator "$ESTIMATOR" --train.seed "$SEED" \
        --ckpt.output_dir "runs/$name/$run/model" --ckpt.path "runs/$name/$run/checkpoints" \
        --logger.tensorboard_dir "runs/$name/tensorboard" --logger.wandb.run_name "$run" "$@"
}
