#!/usr/bin/env bash
# Trains the race of docs/selection.md, cell by cell, the most telling ones first.
#   bash scripts/studies/race.sh    a quarter of an hour a cell; stopped, it resumes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

race() { # task, mix, responses, further flags
    .venv/bin/openrlhf-js study scripts/studies/race.yaml \
        --tasks "$1" --mixes "$2" --responses "$3" "${@:4}"
}

# A filter leaves fewer, larger steps: it is given a higher learning rate, too.
rates=(--learning_rates 2e-4 4e-4 8e-4)

cell() { # task, mix, responses; with two, grpo is rloo up to a factor
    local rivals=(rloo)
    [ "$3" = 2 ] || rivals=(rloo grpo)
    race "$@"
    [ "$3" = 2 ] || race "$@" --estimators grpo
    race "$@" --estimators "${rivals[@]}" --selection spo
    race "$@" --estimators "${rivals[@]}" --selection dynamic greso "${rates[@]}"
}

one_response() { # task, mix: rloo needs two, and so does a filter; noisier gradients, lower rates
    local lower=(--learning_rates 1e-4 2e-4 4e-4)
    race "$1" "$2" 1 --estimators bloo js_memory spo --reference bloo "${lower[@]}" "${@:3}"
    race "$1" "$2" 1 --estimators spo --selection spo "${lower[@]}" "${@:3}"
}

many_prompts=(--distinct 1024 --out runs/race_1024)

# A filter with a fourth of the groups in a step updates four times as often.
race sort mixed 2 --estimators rloo --selection dynamic greso --seeds 5 \
    --prompts 8 --steps 240 --out runs/race_small

for seeds in 5 10; do
    cell sort mixed 2 --seeds $seeds
    cell sort natural 2 --seeds $seeds
    cell countdown mixed 2 --seeds $seeds
    cell maze mixed 2 --seeds $seeds
    cell reverse mixed 2 --seeds $seeds # whose rewards are graded
    cell modsum mixed 2 --seeds $seeds
    one_response sort mixed --seeds $seeds
    cell sort mixed 4 --seeds $seeds
    cell sort mixed 2 --seeds $seeds "${many_prompts[@]}"
    cell countdown natural 2 --seeds $seeds
    cell maze natural 2 --seeds $seeds
    cell sort mixed 8 --seeds $seeds
done
