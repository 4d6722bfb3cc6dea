#!/usr/bin/env bash
# A training over several nodes under Slurm: Ray on each node, and the run on the first.
#   sbatch --nodes 2 --gpus-per-node 8 scripts/cluster/slurm.sh --train.colocate_all --vllm.num_engines 16 ...
# Call it from the repository's folder. The arguments are those of `openrlhf-js train`; actor and reference
# get all nodes and GPUs of the job unless they say otherwise. The folder, the data and --ckpt.path must be on a disk
# that all nodes see. A requeued job resumes from its last checkpoint; a new job that goes on with an earlier one's needs
# --js.requeued and that job's --logger.wandb.run_name.
#SBATCH --job-name openrlhf_js
#SBATCH --ntasks-per-node 1
#SBATCH --exclusive
#SBATCH --requeue
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0"; exit ;; esac
cd "${SLURM_SUBMIT_DIR:-.}"
ray=$PWD/.venv/bin/ray
[ -x "$ray" ] || { echo "slurm.sh: $ray is missing: run 'bash scripts/setup.sh gpu', and sbatch, in the repository's folder" >&2; exit 2; }
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID # of this job alone: /tmp/ray would be the first user's
port=6379
gpus=${SLURM_GPUS_ON_NODE:-} # unset where the job asks for none

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=$(srun --nodes 1 --ntasks 1 --nodelist "${nodes[0]}" hostname -I | awk '{ print $1 }')

start() { # node, then the options of ray start
    local node=$1
    shift
    srun --nodes 1 --ntasks 1 --cpus-per-task "${SLURM_CPUS_ON_NODE:-1}" --nodelist "$node" --overlap \
        "$ray" start --block ${gpus:+--num-gpus "$gpus"} --disable-usage-stats "$@" &
    started+=($!)
}

end() { # of Ray on all nodes, and of its files
    kill "${started[@]}" 2>/dev/null || true
    srun --nodes "${#nodes[@]}" --ntasks-per-node 1 --overlap rm -rf "$RAY_TMPDIR" || true
}

alive() { "$ray" list nodes --format json 2>/dev/null | grep -o '"ALIVE"' | wc -l; }

wait_for() { # a number of nodes
    local deadline=$((SECONDS + 300))
    until [ "$(alive)" -ge "$1" ]; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "slurm.sh: $1 nodes of Ray did not start in 5 minutes" >&2; exit 1; }
        [ "$(jobs -rp | wc -l)" = ${#started[@]} ] || { echo "slurm.sh: Ray has ended on a node, as it says above" >&2; exit 1; }
        sleep 2
    done
}

started=()
trap end EXIT
start "${nodes[0]}" --head --node-ip-address "$head" --port "$port"
export RAY_ADDRESS=$head:$port
wait_for 1
for node in "${nodes[@]:1}"; do start "$node" --address "$RAY_ADDRESS"; done
wait_for "${#nodes[@]}"

layout=()
if [ -n "$gpus" ]; then
    for model in actor ref; do
        layout+=("--$model.num_nodes" "${#nodes[@]}" "--$model.num_gpus_per_node" "$gpus")
    done
fi
again=()
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || again=(--js.requeued)
name=(--logger.wandb.run_name "slurm-$SLURM_JOB_ID") # the same after each start, for one log and one curve
file=() # of settings, which must come first
case "${1:-}" in *.yaml | *.yml) file=("$1") && shift ;; esac
.venv/bin/openrlhf-js train "${file[@]}" "${layout[@]}" "${name[@]}" "$@" "${again[@]}"
