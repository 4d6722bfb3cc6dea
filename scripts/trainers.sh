#!/usr/bin/env bash
# Run an adapter's tests with the trainer's own package, on CPUs.
#   bash scripts/trainers.sh skyrl               needs Python 3.12: OPENRLHF_JS_PYTHON=/path/to/python3.12
#   bash scripts/trainers.sh areal -k ranks      with any pytest arguments
#   bash scripts/trainers.sh swift
#   bash scripts/trainers.sh verifiers           beside the packages of .venv: OpenRLHF, vLLM and TRL
# The environment lies in .venv/alone/ (0.4 to 8 GB) and is kept until a pyproject.toml or this file changes.
# UV_FIND_LINKS, UV_INDEX or pip's settings may name a place with PyTorch for CPUs, which then comes in place of NVIDIA's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/uv.sh
source scripts/uv.sh

# What the tested modules import without, and what is large or needs a GPU, is left out.
ours=(-e . -e reward_models)
instead=() # of pins that do not fit ours
case "${1:-}" in
    skyrl)
        python=${OPENRLHF_JS_PYTHON:-python3.12}
        needed=("skyrl[skyrl-train]==0.4.0" torch==2.13.0 aiohttp)
        left_out=(flash-attn nixl vllm-router s5cmd s3fs gcsfs wandb debugpy)
        ;;
    areal)
        python=${OPENRLHF_JS_PYTHON:-.venv/bin/python}
        needed=(areal==1.0.4)
        instead=("math-verify>=0.9,<0.10" "rich>=14.0")
        left_out=(torchaudio torchvision qwen-agent claude-agent-sdk litellm openhands langchain langchain-openai
            swanboard awex seaborn matplotlib cookiecutter h5py mathruler nltk distro-info python-debian)
        ;;
    swift)
        python=${OPENRLHF_JS_PYTHON:-.venv/bin/python}
        needed=(ms-swift==4.6.0 torch==2.13.0 msgspec)
        left_out=()
        ;;
    verifiers)
        python=${OPENRLHF_JS_PYTHON:-.venv/bin/python}
        ours=()
        needed=("verifiers[ta]==0.4.0" renderers==0.1.12)
        left_out=()
        ;;
    *) sed -n '2,/^[^#]/s/^# //p' scripts/trainers.sh; [ "${1:-}" = --help ] || [ "${1:-}" = -h ] || exit 2; exit ;;
esac
name=$1
shift

overrides() { # a marker that no Python fulfils takes a package out
    for package in "${left_out[@]}"; do echo "$package ; python_version < '3'"; done
    printf '%s\n' "${instead[@]}"
}

files=(pyproject.toml reward_models/pyproject.toml)
alone "$name" "$python" --prerelease if-necessary-or-explicit --override <(overrides) "${ours[@]}" "${needed[@]}"
if [ "$name" = verifiers ]; then # its packages come before those of .venv, which has the trainers
    purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    echo "import site; site.addsitedir('$(.venv/bin/python -c "$purelib")')" \
        >"$("$venv/bin/python" -c "$purelib")/project.pth"
fi
exec "$venv/bin/pytest" tests/trainers/test_"$name"*.py "$@"
