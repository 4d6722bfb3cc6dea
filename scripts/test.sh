#!/usr/bin/env bash
# Set up, check the code, run every test.
#   bash scripts/test.sh                        everything, each package also alone: 25 to 35 minutes on two cores
#   bash scripts/test.sh --fast                 without the runs of Ray, DeepSpeed and vLLM
#   bash scripts/test.sh research/tests/lab -k gradient  any pytest arguments
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# //p' scripts/test.sh; exit ;; esac
bash scripts/setup.sh || exit
# The tools find each other, and the tests the right Python, wherever this was called from. Nothing
# else is set: tests have a user's environment.
export PATH=$PWD/.venv/bin:$PATH
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE # with the last, each start would compile PyTorch anew

arguments=()
for argument in "$@"; do
    if [ "$argument" = --fast ]; then arguments+=(-m "not integration"); else arguments+=("$argument"); fi
done

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

mapfile -t shell_files < <(find .ci/run scripts eval reward_models research -name '*.sh' -o -name '*.bash' -o -name run 2>/dev/null)
exec {types}< <(mypy --no-color-output 2>&1) # beside the tests
stage ruff-check ruff check
stage ruff-format ruff format --check
stage import-linter lint-imports
stage shellcheck shellcheck "${shell_files[@]}"
stage hadolint hadolint scripts/Dockerfile

# All of it: each package alone, and then what needs more than one, or the stack.
if [ $# -eq 0 ]; then
    stage graders bash scripts/alone.sh reward_models -n 2 --dist loadfile
    stage evaluation bash scripts/alone.sh eval -n 2 --dist loadfile
    stage product bash scripts/alone.sh . tests/estimators tests/reward_model -n 2 --dist loadfile
    arguments+=(reward_models/tests/test_{reasoning_gym,rewards,thought_rewards}.py research/tests tests)
    arguments+=(eval/tests/test_eval_{arena,passk}.py eval/tests/sampling/test_{engines,sampler}.py)
    arguments+=(--ignore tests/estimators)
    for file in tests/reward_model/test_*.py; do
        [[ $file == */test_eval_cli.py ]] || arguments+=(--ignore "$file")
    done
fi

# Whole files go to two processes, those that run the stack first.
printf '%-13s two at a time\n' pytest
python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "${arguments[@]}" || failed+=(pytest)
stage mypy awk '{ print } /^Success/ { ok = 1 } END { exit !ok }' <&"$types"

if [ ${#failed[@]} -gt 0 ]; then
    printf 'test: failed: %s\n' "${failed[*]}" >&2
    exit 1
fi
