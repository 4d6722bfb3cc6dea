#!/usr/bin/env bash
# Run the tests of a package in an environment with that package and its dependencies alone, at the locked versions.
#   bash scripts/alone.sh reward_models            the graders
#   bash scripts/alone.sh eval -k passk            the evaluation, with any pytest arguments
#   bash scripts/alone.sh . tests/estimators       the product, with the tests that it shall run
# The environment lies in .venv/alone/ and is kept until a pyproject.toml or a lock changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/uv.sh
source scripts/uv.sh

case "${1:-}" in
    reward_models) needed=("./reward_models[data]") editable=(-e reward_models) tests=(reward_models/tests) ;;
    eval) needed=(./eval) editable=(-e reward_models -e eval) tests=(eval/tests) ;;
    .) needed=(".[reward-model]" tensorboard) editable=(-e reward_models -e .) tests=() ;;
    *) sed -n '2,/^[^#]/s/^# //p' scripts/alone.sh; [ "${1:-}" = --help ] || [ "${1:-}" = -h ] || exit 2; exit ;;
esac
package=$1
shift
tests+=("$@")

files=({.,reward_models,eval}/pyproject.toml scripts/locks/cpu*.txt)
alone "${package/#./openrlhf_js}" .venv/bin/python \
    --constraint scripts/locks/cpu.txt --constraint scripts/locks/cpu-torch.txt \
    "${editable[@]}" "${needed[@]}" psutil pytest-xdist
exec "$venv/bin/pytest" "${tests[@]}" # `python -m pytest` would find the folders that lie here
