#!/usr/bin/env bash
# Build .venv from the lock files. Safe to call at any time: nothing is done when all of it stands.
#   bash scripts/setup.sh [cpu|gpu] [--with-flash-attn]
# Without a name it takes what .venv was built for, else gpu where nvidia-smi answers, else cpu.
# OPENRLHF_JS_PYTHON names the Python to use (3.10 to 3.12). pip fetches uv, which fetches the rest from
# the indexes that pip's settings name.
set -uo pipefail
export LC_ALL=C PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_USER
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
cd "$root" || exit 1
# shellcheck source=scripts/uv.sh
source scripts/uv.sh

venv=$root/.venv
stamp=$venv/setup.stamp # what is built here; "building" stands before it until it is whole
log=$venv/setup.log
cache=$venv/cache # of uv, until all is built: what a failed download cannot take back
flash_attn=flash-attn==2.8.3

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

parse_arguments() {
    mode='' with_flash_attn=''
    for argument in "$@"; do
        case "$argument" in
            cpu | gpu) mode=$argument ;;
            --with-flash-attn) with_flash_attn=yes ;;
            -h | --help) sed -n '2,/^[^#]/s/^# //p' scripts/setup.sh; exit ;;
            *) fail "unknown argument '$argument'; allowed are cpu, gpu and --with-flash-attn" ;;
        esac
    done
    if [ -z "$mode" ]; then
        mode=$(sed -n -E '1s/^(building )?(cpu|gpu) .*/\2/p' "$stamp" 2>/dev/null)
    fi
    if [ -z "$mode" ]; then
        if [[ $(nvidia-smi -L 2>/dev/null) == *GPU* ]]; then mode=gpu; else mode=cpu; fi
    fi
    [ -z "$with_flash_attn" ] || [ "$mode" = gpu ] || fail "--with-flash-attn needs a GPU: leave it out"
}

expected_stamp() { # a venv fits one mode, place and lock; its own Python is checked by running it
    printf '%s %s\n' "$mode" "$root"
    cat scripts/locks/"$mode"*.txt | sha256sum
}

built() { [ -f "$stamp" ] && [ "$(expected_stamp)" = "$(cat "$stamp")" ] && venv_works && python_as_named; }

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

python_as_named() {
    [ -z "${OPENRLHF_JS_PYTHON:-}" ] || [ "$(version_of "$OPENRLHF_JS_PYTHON")" = "$(version_of "$venv/bin/python")" ]
}

venv_works() {
    "$venv/bin/python" - >/dev/null 2>&1 <<'PYTHON'
import sys
from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("torch", "openrlhf", "vllm", "ray", "deepspeed", "pytest"))))
PYTHON
}

check_platform() {
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
        fail "this machine is $(uname -s) $(uname -m), OpenRLHF is released for Linux x86_64 only: use such a machine or container"
    local glibc
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || fail "this Linux has no glibc: use one that has (Debian, Ubuntu, Fedora, ...)"
    [ "$(printf '2.31\n%s\n' "${glibc#glibc }" | sort -V | head -n 1)" = 2.31 ] ||
        fail "$glibc is too old, 2.31 is needed: use a newer Linux (Debian 11, Ubuntu 20.04 or later)"
}

find_python() { # a pyenv shim may exist and fail, so each candidate has to answer
    local candidates=(python3 python3.12 python3.11 python3.10) seen='' candidate version
    [ -z "${OPENRLHF_JS_PYTHON:-}" ] || candidates=("$OPENRLHF_JS_PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(version_of "$candidate") || continue
        case "$version" in
            3.10 | 3.11 | 3.12) python=$candidate; python_version=$version; break ;;
        esac
        seen="$seen, $candidate is $version"
    done
    [ -n "${python:-}" ] ||
        fail "Python 3.10, 3.11 or 3.12 is needed and not found (${candidates[0]} first${seen}): install one, or name it: OPENRLHF_JS_PYTHON=/path/to/python3.11 bash scripts/setup.sh"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module: install it (Debian, Ubuntu: sudo apt install python$python_version-venv) and run again"
}

check_disk() { # megabytes: the venv less what stands of it
    local have need
    need=$((venv_mb - $(du -sm "$venv" 2>/dev/null | cut -f 1 | grep . || echo 0)))
    have=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$have" -ge "$need" ] ||
        fail "$root has $have MB free, the $mode stack needs $need MB: free some, or move the project to a bigger disk"
}

stop() { # Ctrl-C, or a kill
    [ -z "${job:-}" ] || kill -TERM -- "-$job" 2>/dev/null
    printf 'setup: stopped; run again to go on with what is already fetched\n' >&2
    exit 130
}

in_background() { # its output is the log; a signal need not wait for it
    setsid "$@" >"$log" 2>&1 &
    job=$!
    wait "$job"
    local status=$?
    job=''
    [ "$status" = 0 ] || explain_failure
}

uv_install() {
    uv_settings
    UV_CACHE_DIR=$cache UV_PYTHON_DOWNLOADS=never DS_BUILD_OPS=0 \
        in_background "$venv/bin/python" -m uv pip install "${no_index[@]}" --python "$venv/bin/python" "$@"
}

explain_failure() {
    local package
    package=$(sed -n -E "s/.*Failed to (download|build|fetch)[^\`]*\`([^\`]+)\`.*/\\2/p" "$log" | tail -n 1)
    if grep -q 'No space left on device' "$log"; then
        fail "the disk filled up: free ${venv_mb:-some thousand} MB and run again (log: $log)"
    elif grep -q 'Failed to build' "$log"; then
        fail "building $package failed: read the end of $log, then run again"
    fi
    fail "fetching ${package:-packages} failed (log: $log): check the network and run again, it resumes"
}

clear_the_ground() { # keep a venv of this mode, place and Python: half-built, or of another lock, whose packages stay
    [ -e "$venv" ] || return 0
    [ -f "$stamp" ] || fail "$venv was not built by this script: move it away or remove it, then run again"
    local was
    was=$(head -n 1 "$stamp")
    if [ "$was" = "$mode $root" ] && venv_works && python_as_named; then
        say "bringing .venv up to the new lock"
    elif [ "$was" = "building $mode $root" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && python_as_named; then
        say "going on with a .venv that is half-built"
        # INSTALLER is written when all other files stand: without it a package was cut short.
        find "$venv/lib" -maxdepth 3 -name '*.dist-info' -exec sh -c '[ -f "$1/INSTALLER" ] || rm -rf "$1"' _ {} \;
    else
        say "removing a .venv that is broken, or of another Python, place or kind"
        rm -rf "$venv"
    fi
}

build() {
    check_platform
    find_python
    clear_the_ground
    # `du -sm .venv` with torch's build for NVIDIA, and room for what is being unpacked
    if [ "$mode" = cpu ]; then venv_mb=12000; else venv_mb=17000; fi
    check_disk
    { mkdir -p "$venv" && printf 'building %s\n' "$(expected_stamp)" >"$stamp" && : >"$log"; } 2>/dev/null ||
        fail "$root cannot be written: change its permissions and run again"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" >>"$log" 2>&1 || fail "$python -m venv failed: read $log"
    say "building .venv for $mode with Python $(version_of "$venv/bin/python"); details in $log"
    # Torch alone comes in two builds with needs of their own, and the indexes decide which one
    # a machine without a GPU gets. The lock is complete, so that nothing else is resolved.
    in_background "$venv/bin/python" -m pip install --disable-pip-version-check "$(grep '^uv==' scripts/locks/"$mode".txt)"
    if [ "$mode" = cpu ]; then
        say "torch"
        uv_install "$(grep '^torch==' scripts/locks/cpu-torch.txt)" --constraint scripts/locks/cpu-torch.txt
    fi
    say "the $(wc -l <scripts/locks/"$mode".txt) packages of scripts/locks/$mode.txt"
    uv_install --no-deps --requirement scripts/locks/"$mode".txt
    venv_works || fail "the new .venv cannot find its packages: read $log, then run again"
    expected_stamp >"$stamp"
}

install_project() { # the four packages, anew when one says otherwise what it is
    local folders=(. reward_models eval research) stamp_of_project=$venv/project.stamp folder wanted editable=()
    wanted=$(cat "${folders[@]/%//pyproject.toml}" | sha256sum)
    [ "$(cat "$stamp_of_project" 2>/dev/null)" != "$wanted" ] || return 0
    for folder in "${folders[@]}"; do editable+=(-e "$folder"); done
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --no-build-isolation \
        "${editable[@]}" >>"$log" 2>&1 || fail "installing the project itself failed: read the end of $log"
    printf '%s\n' "$wanted" >"$stamp_of_project"
}

settle_flash_attn() {
    [ "$mode" = gpu ] || return 0
    ! "$venv/bin/python" -c 'import sys, importlib.util as u; sys.exit(not u.find_spec("flash_attn"))' || return 0
    if [ -z "$with_flash_attn" ]; then
        say "flash-attn is not installed: attention falls back to sdpa (setup.sh --with-flash-attn adds it)"
        return
    fi
    say "compiling $flash_attn: this takes long and needs the CUDA toolkit"
    uv_install --no-deps --no-build-isolation "$flash_attn"
}

parse_arguments "$@"
trap stop INT TERM HUP
if ! built; then
    exec 9>"$root/.setup.lock" || fail "$root cannot be written: change its permissions and run again"
    if ! flock -n 9; then
        say "another setup is at work here: waiting for it"
        flock 9
    fi
    built || build
fi
install_project
settle_flash_attn
rm -rf "$cache"
say "ready: .venv for $mode"
