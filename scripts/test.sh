#!/usr/bin/env bash
# Set up, check the code, run every test: bash scripts/test.sh [pytest arguments]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

bash scripts/setup.sh || exit
# The tools find each other, and the tests the right Python, wherever this was called from.
PATH=$PWD/.venv/bin:$PATH
export PATH PYTHONNOUSERSITE=1 HF_HUB_OFFLINE=1
unset PYTHONPATH PYTHONHOME

failed=()
stage() { # name, command: its output shows only when it fails
    local began=$SECONDS output
    printf '%-13s ' "$1"
    if output=$("${@:2}" 2>&1); then
        printf 'ok      %3s s\n' $((SECONDS - began))
    else
        printf 'FAILED  %3s s\n%s\n' $((SECONDS - began)) "$output"
        failed+=("$1")
    fi
}

mapfile -t shell_files < <(find .ci/run scripts eval reward_models -name '*.sh' -o -name run 2>/dev/null)
stage ruff-check ruff check
stage ruff-format ruff format --check
stage mypy mypy openrlhf_js
stage import-linter lint-imports
stage shellcheck shellcheck "${shell_files[@]}"

printf '%-13s the fast tests first, then the real stack\n' pytest
python -m pytest "$@" || failed+=(pytest)

if [ ${#failed[@]} -gt 0 ]; then
    printf 'test: failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
