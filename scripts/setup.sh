#!/usr/bin/env bash
# Build .venv from the lock files. Safe to call at any time: nothing is done when all of it stands.
#   bash scripts/setup.sh [cpu|gpu] [--with-flash-attn]
# Without a name it takes what .venv was built for, else gpu where nvidia-smi answers, else cpu.
# OPENRLHF_JS_PYTHON names the Python to use (3.10 to 3.12); pip's own settings are honoured.
set -uo pipefail
export LC_ALL=C PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_USER
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
cd "$root" || exit 1

venv=$root/.venv
stamp=$venv/setup.stamp # what is built here; "building" stands before it until it is whole
log=$venv/setup.log
batch=25 # packages per call of pip: what a failed download cannot take back
flash_attn=flash-attn==2.8.3

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

parse_arguments() {
    mode='' with_flash_attn=''
    for argument in "$@"; do
        case "$argument" in
            cpu | gpu) mode=$argument ;;
            --with-flash-attn) with_flash_attn=yes ;;
            *) fail "unknown argument '$argument'; allowed are cpu, gpu and --with-flash-attn" ;;
        esac
    done
    if [ -z "$mode" ]; then
        mode=$(sed -n -E '1s/^(building )?(cpu|gpu) .*/\2/p' "$stamp" 2>/dev/null)
    fi
    if [ -z "$mode" ]; then
        if nvidia-smi -L 2>/dev/null | grep -q GPU; then mode=gpu; else mode=cpu; fi
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

free_mb() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }'; }
disk_of() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print $1 }'; }

check_disk() { # megabytes: the venv less what stands of it, and the downloads of one call of pip
    local temporary=${TMPDIR:-/tmp} need have
    need=$((venv_mb - $(du -sm "$venv" 2>/dev/null | cut -f 1 | grep . || echo 0)))
    [ -d "$temporary" ] && [ -w "$temporary" ] ||
        fail "TMPDIR $temporary is no writable folder: set TMPDIR to one with $download_mb MB free"
    if [ "$(disk_of "$root")" = "$(disk_of "$temporary")" ]; then
        need=$((need + download_mb))
    else
        have=$(free_mb "$temporary")
        [ "$have" -ge "$download_mb" ] ||
            fail "$temporary has $have MB free, downloads need $download_mb MB: free some, or set TMPDIR to a folder with room"
    fi
    have=$(free_mb "$root")
    [ "$have" -ge "$need" ] ||
        fail "$root has $have MB free, the $mode stack needs $need MB: free some, or move the project to a bigger disk"
}

stop() { # Ctrl-C, or a kill
    [ -z "${job:-}" ] || kill -TERM -- "-$job" 2>/dev/null
    printf '\n' >&2
    printf 'setup: stopped; run again to go on with what is already fetched\n' >&2
    exit 130
}

packages_of() { sed 's/==.*//' scripts/locks/"$1".txt | sort -u | wc -l; }

progress() { # how far pip has come, from what stands in .venv
    local installed
    installed=$(find "$venv/lib" -maxdepth 3 -name '*.dist-info' 2>/dev/null | wc -l)
    printf '%s of %s packages, %s s, now %s' "$installed" "$total" $((SECONDS - began)) "$(package_in_hand)"
}

package_in_hand() {
    local package
    package=$(sed -n -E 's/^ *(Collecting|Building wheels? for collected packages:) ([^ ,]+).*/\2/p' "$log" | tail -n 1)
    printf '%s' "${package:-starting}"
}

pip_install() { # pip's noise goes to the log, the screen gets one line
    setsid "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off "$@" >>"$log" 2>&1 &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        if [ -t 1 ]; then
            printf '\r\033[Ksetup: %s' "$(progress)"
        elif [ $((SECONDS - shown)) -ge 10 ]; then
            shown=$SECONDS
            say "$(progress)"
        fi
        sleep 0.2
    done
    wait "$job"
    local status=$?
    job=''
    [ ! -t 1 ] || printf '\r\033[K'
    [ "$status" = 0 ] || explain_pip_failure
}

explain_pip_failure() {
    local package
    package=$(package_in_hand)
    if grep -q 'No space left on device' "$log"; then
        fail "the disk filled up at $package: free $venv_mb MB, or set TMPDIR to a folder with $download_mb MB, and run again (log: $log)"
    elif grep -qE 'Failed (to build|building)|metadata-generation-failed' "$log"; then
        fail "building $package failed: read the end of $log, then run again"
    fi
    fail "downloading $package failed (log: $log): check the network and run again, it resumes"
}

clear_the_ground() { # keep a half-built venv of this very lock and Python, so that a second call goes on
    [ -e "$venv" ] || return 0
    [ -f "$stamp" ] || fail "$venv was not built by this script: move it away or remove it, then run again"
    if [ "$(cat "$stamp")" = "building $(expected_stamp)" ] && "$venv/bin/python" -m pip --version 2>/dev/null |
        grep -q "(python $python_version)"; then
        say "going on with a .venv that is half-built"
        # pip writes INSTALLER when all other files stand: without it a package was cut short.
        find "$venv/lib" -maxdepth 3 -name '*.dist-info' -exec sh -c '[ -f "$1/INSTALLER" ] || rm -rf "$1"' _ {} \;
    else
        say "removing a .venv that is broken or out of date"
        rm -rf "$venv"
    fi
}

build() {
    check_platform
    find_python
    clear_the_ground
    # `du -sm .venv` with torch's build for NVIDIA, and room for pip's cache, which often shares the disk.
    if [ "$mode" = cpu ]; then venv_mb=9000 download_mb=3000; else venv_mb=14000 download_mb=3000; fi
    check_disk
    total=$(packages_of "$mode") began=$SECONDS shown=$SECONDS
    { mkdir -p "$venv" && printf 'building %s\n' "$(expected_stamp)" >"$stamp" && : >"$log"; } 2>/dev/null ||
        fail "$root cannot be written: change its permissions and run again"
    say "building .venv for $mode with Python $python_version; details in $log"
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" >>"$log" 2>&1 || fail "$python -m venv failed: read $log"
    # Torch alone comes in two builds with needs of their own, and pip's settings decide which one
    # a machine without a GPU gets. The lock is complete, so pip need not resolve the rest.
    [ "$mode" = gpu ] || pip_install "$(grep '^torch==' scripts/locks/cpu-torch.txt)" --constraint scripts/locks/cpu-torch.txt
    local pins first
    mapfile -t pins <scripts/locks/"$mode".txt
    for ((first = 0; first < ${#pins[@]}; first += batch)); do
        DS_BUILD_OPS=0 pip_install --no-deps --use-pep517 "${pins[@]:first:batch}"
    done
    venv_works || fail "the new .venv cannot find its packages: read $log, then run again"
    expected_stamp >"$stamp"
}

install_project() { # entry points live in pyproject.toml: the project goes in anew when that changes
    local installed=$venv/project.stamp
    [ "$(cat "$installed" 2>/dev/null)" != "$(sha256sum <pyproject.toml)" ] || return 0
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --no-build-isolation -e . >>"$log" 2>&1 ||
        fail "installing openrlhf_js itself failed: read the end of $log"
    sha256sum <pyproject.toml >"$installed"
}

settle_flash_attn() {
    [ "$mode" = gpu ] || return 0
    ! "$venv/bin/python" -c 'import sys, importlib.util as u; sys.exit(not u.find_spec("flash_attn"))' || return 0
    if [ -z "$with_flash_attn" ]; then
        say "flash-attn is not installed: attention falls back to sdpa (setup.sh --with-flash-attn adds it)"
        return
    fi
    total=$(packages_of gpu) began=$SECONDS shown=$SECONDS
    say "compiling $flash_attn: this takes long and needs the CUDA toolkit"
    pip_install --no-deps --no-build-isolation "$flash_attn"
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
say "ready: .venv for $mode"
