#!/usr/bin/env bash
# Write the lock files of scripts/locks anew, or check them. Needs uv (in .venv after setup, or on PATH).
#   bash scripts/lock.sh             keep every pin that still fits the inputs
#   bash scripts/lock.sh --upgrade   take the newest versions that fit together
#   bash scripts/lock.sh --check     change nothing: a dry run that resolves both locks as a whole
set -euo pipefail
export LC_ALL=C UV_PYTHON_DOWNLOADS=never
cd "$(dirname "${BASH_SOURCE[0]}")/.."

locks=scripts/locks
case "${1:-}" in
    "" | --check | --upgrade) mode=${1:-} ;;
    -h | --help) sed -n '2,/^[^#]/s/^# //p' scripts/lock.sh; exit ;;
    *) echo "lock: unknown argument '$1'; allowed are --check and --upgrade" >&2; exit 2 ;;
esac
upgrade=()
[ "$mode" != --upgrade ] || upgrade=(--upgrade)
if [ -x .venv/bin/uv ]; then uv=.venv/bin/uv
elif ! uv=$(command -v uv); then
    echo "lock: uv is missing: run 'bash scripts/setup.sh' first" >&2
    exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

resolve() { # name, then the inputs: uv keeps the pins that it finds in the output file
    local name=$1
    shift
    cp "$locks/$name.txt" "$scratch/$name.txt" 2>/dev/null || true
    "$uv" pip compile --quiet --universal --python-version 3.10 "${upgrade[@]}" \
        --no-header --no-annotate -o "$scratch/$name.txt" "$@" >/dev/null
    # Every pin would repeat the platform that pyproject.toml restricts all of them to.
    sed -i -E -e "s/ and platform_machine == 'x86_64' and sys_platform == 'linux'$//" \
        -e "s/ (;|and) python_full_version < '3.13'$//" "$scratch/$name.txt"
}

projects=({.,reward_models,eval,research}/pyproject.toml)
own=() # installed from their folders, and in no lock
for name in openrlhf-js answer-graders paired-eval baseline-research; do own+=(--no-emit-package "$name"); done

inputs_of() { # the arguments that say what a lock is made from, one per line
    local extras=(--extra dev --extra data --extra local)
    case "$1" in
        cpu) printf '%s\n' "${own[@]}" "${extras[@]}" --override "$locks/cpu.overrides" "${projects[@]}" "$locks/cpu.in" ;;
        gpu) printf '%s\n' "${own[@]}" "${extras[@]}" --extra openrlhf --override "$locks/gpu.overrides" "${projects[@]}" ;;
    esac
}

compile() {
    mapfile -t cpu < <(inputs_of cpu)
    mapfile -t gpu < <(inputs_of gpu)
    resolve gpu "${gpu[@]}"
    resolve cpu "${cpu[@]}" --no-emit-package torch
    # What torch's build for NVIDIA carries along, should a CPU machine's registry offer only that one.
    grep '^torch==' "$scratch/gpu.txt" >"$scratch/torch.in"
    resolve cpu-torch "$scratch/torch.in" --constraint "$scratch/cpu.txt"
}

dry_run() { # lock, Python: resolve for released files alone, bound by the lock; nothing may be missing from it
    mapfile -t inputs < <(inputs_of "$1")
    "$uv" pip compile --quiet "${inputs[@]}" --constraint "$locks/$1.txt" --python-version "$2" \
        --python-platform x86_64-manylinux_2_31 --only-binary :all: \
        --no-binary deepspeed --no-binary transformers-stream-generator \
        --no-header --no-annotate 2>"$scratch/errors" >"$scratch/pins" || { cat "$scratch/errors" >&2; return 1; }
    sed 's/ *;.*//' "$locks/$1.txt" | sort -u >"$scratch/locked"
    [ "$1" = gpu ] || grep '^torch==' "$locks/cpu-torch.txt" >>"$scratch/locked"
    if grep -vxFf "$scratch/locked" "$scratch/pins" >"$scratch/missing"; then
        echo "lock: $1.txt lacks for Python $2: $(tr '\n' ' ' <"$scratch/missing")" >&2
        return 1
    fi
    printf '%s.txt  Python %s  %s packages fit together, each with a file for Linux x86-64\n' \
        "$1" "$2" "$(wc -l <"$scratch/pins")"
}

compile
if [ "$mode" != --check ]; then
    mv "$scratch"/{cpu,cpu-torch,gpu}.txt "$locks/"
    exit
fi
for name in cpu cpu-torch gpu; do
    if ! diff -u "$locks/$name.txt" "$scratch/$name.txt"; then
        echo "lock: $name.txt does not fit its inputs any more: run 'bash scripts/lock.sh'" >&2
        exit 1
    fi
done
for name in cpu gpu; do
    for python in 3.10 3.11 3.12; do dry_run "$name" "$python"; done
done
