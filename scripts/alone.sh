#!/usr/bin/env bash
# Run the tests of a package in an environment with that package and its dependencies alone, at the locked versions.
#   bash scripts/alone.sh reward_models            the graders
#   bash scripts/alone.sh eval -k passk            the evaluation, with any pytest arguments
#   bash scripts/alone.sh . tests/estimators       the product, with the tests that it shall run
# The environment lies in .venv/alone/ and is kept until a pyproject.toml or a lock changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
    reward_models) needed=("./reward_models[data]") editable=(-e reward_models) tests=(reward_models/tests) ;;
    eval) needed=(./eval) editable=(-e reward_models -e eval) tests=(eval/tests) ;;
    .) needed=(".[reward-model]" tensorboard) editable=(-e reward_models -e .) tests=() ;;
    *) sed -n '2,/^[^#]/s/^# //p' "$0"; [ "${1:-}" = --help ] || [ "${1:-}" = -h ] || exit 2; exit ;;
esac
package=$1
shift
tests+=("$@")
[ -x .venv/bin/uv ] || { echo "alone: .venv is missing: run 'bash scripts/setup.sh' first" >&2; exit 2; }

venv=.venv/alone/${package/#./openrlhf_js}
stamp=$(cat {.,reward_models,eval}/pyproject.toml scripts/locks/cpu*.txt "$0" | sha256sum)
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$venv"
    .venv/bin/uv venv --quiet --python .venv/bin/python "$venv"
    UV_INDEX_STRATEGY=unsafe-best-match .venv/bin/uv pip install --quiet --python "$venv/bin/python" \
        --constraint scripts/locks/cpu.txt --constraint scripts/locks/cpu-torch.txt \
        "${editable[@]}" "${needed[@]}" hypothesis psutil pytest pytest-timeout pytest-xdist
    echo "$stamp" >"$venv/stamp"
fi
exec "$venv/bin/pytest" "${tests[@]}" # `python -m pytest` would find the folders that lie here
