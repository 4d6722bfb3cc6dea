#!/usr/bin/env bash
# Build wheels and sdists of the three packages into dist/, check them, and run the estimators' doctests on the wheel.
#   bash scripts/release.sh                                  with the torch of .venv, offline
#   bash scripts/release.sh --torch 2.6.0 --torch 2.15.0     with these too, gigabytes each
#   bash scripts/release.sh --out FOLDER                     into another folder than dist/
set -euo pipefail
export LC_ALL=C PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH PYTHONHOME
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/uv.sh
source scripts/uv.sh

out=dist torches=()
while [ $# -gt 0 ]; do
    case "$1 ${2:-}" in
        "--torch "?*) torches+=("$2") ;;
        "--out "?*) out=$2 ;;
        "-h "* | "--help "*) sed -n '2,/^[^#]/s/^# //p' scripts/release.sh; exit ;;
        *) echo "release: unknown argument '$1'; allowed are --torch VERSION and --out FOLDER" >&2; exit 2 ;;
    esac
    shift 2
done
python=$PWD/.venv/bin/python uv=$PWD/.venv/bin/uv
[ -x "$uv" ] || { echo "release: .venv is missing: run 'bash scripts/setup.sh' first" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What is released: the folder of each package, and the package in it.
released=(".:openrlhf_js" "reward_models:answer_graders" "eval:paired_eval")

build() { # from copies, where no earlier build has left a list of files
    local each folder package tree
    mkdir -p "$out"
    for each in "${released[@]}"; do
        folder=${each%%:*} package=${each##*:} tree=$scratch/${each##*:}
        mkdir -p "$tree"
        cp -rL "$folder/$package" "$folder"/{pyproject.toml,README.md} LICENSE "$tree"
        "$uv" build --quiet --offline --no-build-isolation --python "$python" --out-dir "$scratch/dist" "$tree"
        check_files "$folder/$package" "$scratch/dist/$package"-*.tar.gz "$scratch/dist/$package"-*.whl
    done
}

check_files() {
    "$python" - "$@" <<'PYTHON'
import email, re, sys, tarfile, zipfile
from pathlib import Path

def first(pattern, file):
    found = re.search(pattern, Path(file).read_text(), re.MULTILINE)
    return found and found[1]

root, sdist, wheel = Path(sys.argv[1]), *sys.argv[2:]
with tarfile.open(sdist) as archive:
    inside = {sdist: [name.partition("/")[2] for name in archive.getnames()]}
with zipfile.ZipFile(wheel) as archive:
    inside[wheel] = archive.namelist()
    about = next(name for name in inside[wheel] if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(archive.read(about))
shipped = [root / "py.typed", *root.rglob("*.py"), *root.glob("*/templates/*")]
package = {str(path.relative_to(root.parent)) for path in shipped}
allowed = re.compile(rf"{root.name}(/|$)|{root.name}-[^/]*\.dist-info/|{root.name}\.egg-info|"
                     r"(LICENSE|PKG-INFO|README\.md|pyproject\.toml|setup\.cfg|)$")
versions = {
    f"the wheel of {root.name}": metadata["Version"],
    "CHANGELOG.md's first heading": first(r"^## \[?([^]\s]+)", "CHANGELOG.md"),
    "CITATION.cff": first(r"^version: (\S+)", "CITATION.cff"),
}
wrong = [f"{name} is missing in {file}" for file in inside for name in sorted(package - {*inside[file]})]
for file, names in inside.items():
    wrong += [f"{name} does not belong in {file}" for name in names
              if not allowed.match(name) or re.search(r"\.(png|svg|jpe?g|pyc|jsonl|xz)$", name)]
    if Path(file).stat().st_size > 1e6:
        wrong.append(f"{file} has more than 1 MB")
if len({*versions.values()}) > 1:
    wrong.append("versions differ: " + ", ".join(f"{file} says {v}" for file, v in versions.items()))
if wrong:
    sys.exit("release: " + "\nrelease: ".join(wrong))
for file in inside:
    print(f"{Path(file).name}  {len(inside[file])} files, {Path(file).stat().st_size / 1000:.0f} kB")
PYTHON
}

try() { # with what the folder's environment has: the doctests, and the error that names a package
    (cd / && "$1/bin/python" - "$1/bin/openrlhf-js") <<'PYTHON'
import doctest, importlib, pkgutil, subprocess, sys
import torch
from openrlhf_js import estimators

results = [doctest.testmod(importlib.import_module(f"openrlhf_js.estimators.{module.name}"))
           for module in pkgutil.iter_modules(estimators.__path__)]
failed, tried = map(sum, zip(*results))
if failed or not tried:
    sys.exit(f"release: {failed} of {tried} doctests failed")
for program, status, package in (("data build", 2, "answer-graders"), ("eval --help", 0, "paired-eval")):
    run = subprocess.run([sys.argv[1], *program.split()], capture_output=True, text=True)
    assert run.returncode == status and package in run.stdout + run.stderr, run
print(f"torch {torch.__version__}  {tried} lines of doctests pass; a missing package is named")
PYTHON
}

environment() { # folder, and what else to install
    "$python" -m venv --without-pip "$1"
    "$uv" pip install --quiet "${no_index[@]}" --python "$1/bin/python" "${@:2}" "$scratch"/dist/openrlhf_js-*.whl
}

build
uv_settings
environment "$scratch/own" --offline --no-deps
own=$("$scratch/own/bin/python" -c 'import site; print(site.getsitepackages()[0])')
theirs=$("$python" -c 'import site; print(site.getsitepackages()[0])')
for part in "$theirs"/{torch,torchgen,functorch,numpy,numpy.libs,typing_extensions.py,nvidia,triton}; do
    [ ! -e "$part" ] || ln -s "$part" "$own"
done
try "$scratch/own"
for torch in "${torches[@]}"; do
    environment "$scratch/torch-$torch" "torch==$torch"
    try "$scratch/torch-$torch"
    rm -rf "$scratch/torch-$torch"
done
cp "$scratch"/dist/*.tar.gz "$scratch"/dist/*.whl "$out"
