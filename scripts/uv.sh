# shellcheck shell=bash
# What scripts that install with uv share. To be sourced in the repository's folder.

of_pip() { # the values of a setting of pip, from the environment or else its files
    sed -n -E "s/^[^=]*\.$1=['\"](.*)['\"]$/\1/p" <<<"$pip_config" | head -n 1 | sed 's/\\n/ /g'
}

from_pip() { # a setting of pip becomes uv's variable: its name, the variable, what parts the values
    local values
    read -ra values <<<"$(of_pip "$1")"
    local IFS=${3:- }
    [ ${#values[@]} = 0 ] || export "$2=${!2:-${values[*]}}"
}

uv_settings() { # those of pip, where uv has none of its own
    pip_config=$(.venv/bin/python -m pip config list 2>/dev/null)
    from_pip index-url UV_DEFAULT_INDEX
    from_pip extra-index-url UV_INDEX
    from_pip find-links UV_FIND_LINKS ,
    from_pip trusted-host UV_INSECURE_HOST
    from_pip cert SSL_CERT_FILE
    from_pip proxy HTTPS_PROXY
    from_pip proxy HTTP_PROXY
    export UV_INDEX_STRATEGY=unsafe-best-match # as pip: the newest release of all indexes
    no_index=()                                # which is no variable of uv
    [[ ! $(of_pip no-index) =~ ^(1|[Tt]|[Yy]|on) ]] || no_index=(--no-index)
}

alone() { # makes $venv in .venv/alone/, anew when one of $files changes: its name, its Python, what is installed
    local program stamp
    program=$(basename "$0" .sh)
    [ -x .venv/bin/uv ] || { echo "$program: .venv is missing: run 'bash scripts/setup.sh' first" >&2; exit 2; }
    venv=.venv/alone/$1
    # shellcheck disable=SC2154  # the caller's
    stamp=$(cat "${files[@]}" "scripts/$program.sh" scripts/uv.sh | sha256sum)
    [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    rm -rf "$venv"
    .venv/bin/uv venv --quiet --python "$2" "$venv"
    uv_settings
    .venv/bin/uv pip install --quiet "${no_index[@]}" --python "$venv/bin/python" "${@:3}" \
        hypothesis pytest pytest-timeout
    echo "$stamp" >"$venv/stamp"
}
