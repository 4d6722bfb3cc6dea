# Completes programs and flags of openrlhf-js in bash: `source scripts/completion.bash`.
# They are read from --help the first time that they are asked for. Files are completed by bash.
# shellcheck shell=bash

declare -A _openrlhf_js_known # by program

_openrlhf_js() {
    local current=${COMP_WORDS[COMP_CWORD]} program=() word key
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word != -* ]] || break
        program+=("$word")
    done
    key="${program[*]} "
    if [ -z "${_openrlhf_js_known[$key]:-}" ]; then
        # A flag begins a line, or one in a box; a program's name stands in a column of its own.
        _openrlhf_js_known[$key]=$(COLUMNS=200 "${COMP_WORDS[0]}" "${program[@]}" --help 2>/dev/null |
            sed -n -E -e 's/^(│ |  )(-h, )?(--[a-zA-Z][a-zA-Z0-9_.]*)( .*|$)/\3/p' -e 's/^  ([a-z][a-z0-9_]*)  .*/\1/p')
    fi
    mapfile -t COMPREPLY < <(compgen -W "${_openrlhf_js_known[$key]}" -- "$current")
}

complete -o bashdefault -o default -F _openrlhf_js openrlhf-js
