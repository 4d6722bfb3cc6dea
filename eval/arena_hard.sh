#!/usr/bin/env bash
# Arena-Hard for a trained checkpoint: fetches, answers, judges, scores, and makes a page to look at.
#
#   bash eval/arena_hard.sh CHECKPOINT              answers, says what judging may cost, and stops
#   BUDGET=25 bash eval/arena_hard.sh CHECKPOINT    judges as well, for so many dollars at most
#   BUDGET=none ...                                 the same for a judge without a price
#   bash eval/arena_hard.sh --example               all of it in a minute, with a scripted judge
#
# The same command resumes, and pays for nothing twice. By environment variables:
#   BENCH        arena-hard-v2.0 (default: hard prompts and creative writing), or arena-hard-v0.1
#   CATEGORY     hard_prompt or creative_writing; default: both
#   NAME         the checkpoint's name in the results; default: the last two parts of its path
#                (a served model, CHECKPOINT=http://HOST:PORT/v1, needs one)
#   DATA         folder of questions, answers and judgments (default: data)
#   BASELINE     what answers are compared with, instead of the benchmark's own
#   FROM         a clone of github.com/lmarena/arena-hard-auto with its data, instead of the hub
#   TEXTS        a clone without its data: for the official judge's texts, which the hub lacks
#   MAX_NEW_TOKENS, TEMPERATURE        of an answer (default: 4096, 0)
#   SETTINGS     the judge's (default: eval/arena_hard_v2.0.yaml or eval/arena_hard_v0.1.yaml)
#   JUDGE        the endpoint's name of the judge; default: that of the settings
#   JUDGE_NAME   the judge's name in the results, such as gemini-2.5; default: JUDGE, or that of the settings
#   JUDGE_URL    where the judge is (default: https://api.openai.com/v1)
#   JUDGE_KEY    the environment variable of its key (default: OPENAI_API_KEY; none: no key)
#   GENERATE_FLAGS, JUDGE_FLAGS        more flags of `eval arena generate` and `judge`
#   RETRY_FAILED 1: asks games again that have no verdict, or were refused
#   OUT          folder of the results (default: runs/arena-hard/NAME)
#   COMPARE      another model that was judged: the paired difference to it
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-$root/.venv/bin/python}"
if [[ ${1:-} == --example ]]; then
    exec "$python" "$root/eval/arena_hard_example.py" "${OUT:-runs/arena-hard/example}"
fi
if [[ $# -ne 1 || $1 == -* ]]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    [[ $# -eq 1 && ($1 == -h || $1 == --help) ]] && exit 0
    exit 2
fi
checkpoint="${1%/}"
[[ $checkpoint != . ]] || checkpoint=$PWD # which has a name
if [[ $checkpoint == http*://* && -z ${NAME:-} ]]; then
    # Another checkpoint may be served there tomorrow.
    echo "A served model needs a name in the results: give it with NAME=js-step200." >&2
    exit 2
fi
bench="${BENCH:-arena-hard-v2.0}"
data="${DATA:-data}"
parent="$(basename "$(dirname "$checkpoint")")"
name="${NAME:-$([[ $parent == [./] ]] || echo "$parent-")$(basename "$checkpoint")}"
settings="${SETTINGS:-$root/eval/arena_hard_v${bench##*-v}.yaml}"
if [[ ! -f $settings ]]; then
    echo "There are no settings of a judge in $settings: give them with SETTINGS=FILE." >&2
    exit 2
fi
result="${JUDGE_NAME:-${JUDGE:-}}" # without one, the only judge there is scored
out="${OUT:-runs/arena-hard/$name}"
key="${JUDGE_KEY:-OPENAI_API_KEY}"

arena() {
    "$python" -m openrlhf_js.cli.main eval arena "$@" && return
    local status=$?
    [[ $status -eq 3 ]] || echo "Here a flag is a variable, such as TEXTS=... for --texts; only" \
        "--source is FROM, --url is JUDGE_URL, and the judge's --key_env is JUDGE_KEY. All others" \
        "go into GENERATE_FLAGS='...' and JUDGE_FLAGS='...'." >&2
    return "$status"
}

read -r -a generate_flags <<<"${GENERATE_FLAGS:-}"
read -r -a judge_flags <<<"${JUDGE_FLAGS:-}"
categories=(${CATEGORY:+--category "$CATEGORY"})
place=(--data "$data" --bench "$bench")
against=("${place[@]}" ${BASELINE:+--baseline "$BASELINE"})
judging=("${against[@]}" "${categories[@]}" --models "$name" --settings "$settings"
    ${JUDGE:+--judge "$JUDGE"} ${JUDGE_NAME:+--judge_name "$JUDGE_NAME"}
    ${RETRY_FAILED:+--retry_failed} "${judge_flags[@]}")
paying=(--url "${JUDGE_URL:-https://api.openai.com/v1}")
[[ $key == none ]] || paying+=(--key_env "$key")
[[ ${BUDGET:-none} == none ]] || paying+=(--budget "$BUDGET")
judge_folder="${result##*/}"
judged_files="$data/$bench/model_judgment/${judge_folder:-*}/${name##*/}.jsonl"

if [[ $bench == arena-hard-v* && ! -f $data/$bench/judge_prompts.json ]]; then
    # What is missing is said here, and looked for again by the next call.
    arena fetch "${place[@]}" ${BASELINE:+--baseline "$BASELINE"} ${FROM:+--source "$FROM"} \
        ${TEXTS:+--texts "$TEXTS"} || [[ $? -le 2 && -f $data/$bench/question.jsonl ]]
fi

# Unanswered questions do not keep the answered ones from being judged.
arena generate "${place[@]}" "${categories[@]}" --model "$checkpoint" --name "$name" \
    --max_new_tokens "${MAX_NEW_TOKENS:-4096}" --temperature "${TEMPERATURE:-0}" \
    "${generate_flags[@]}" &&
    answered=0 || answered=$?
[[ $answered -eq 0 || $answered -eq 3 ]] || exit "$answered"

arena judge "${judging[@]}" --dry_run
if [[ -z ${BUDGET:-} ]]; then
    echo "Not judged yet: give BUDGET=DOLLARS, or BUDGET=none for a judge without a price."
    exit "$answered"
fi
arena judge "${judging[@]}" "${paying[@]}" && judged=0 || judged=$?
[[ $judged -eq 0 ]] || { [[ $judged -eq 1 ]] && compgen -G "$judged_files" >/dev/null; } || exit "$judged"

mkdir -p "$out"
arena score "${against[@]}" "${categories[@]}" ${result:+--judge "$result"} \
    ${COMPARE:+--compare "$name" "$COMPARE"} --json "$out/scores.json" \
    --html "$out/arena.html"
echo "Every question with both answers and verdicts: $out/arena.html"
[[ $judged -eq 0 ]] || echo "What is open counts as missing: the same command resumes." >&2
exit "$judged"
