#!/usr/bin/env bash
# Stands in for a whole Python: `-m venv` copies it, `-m uv pip install` does what FAKE_UV says.
case "$*" in
    *version_info*) echo "${FAKE_VERSION:-3.11}" ;;
    *ensurepip*) [ -z "${FAKE_NO_VENV:-}" ] ;;
    "-m venv "*) mkdir -p "$3/bin" "$3/lib" && cp "$0" "$3/bin/python" ;;
    "-m pip --version") echo "pip 25.0 from somewhere (python 3.11)" ;;
    "-m pip config list") echo "global.extra-index-url='file:///one file:///two'" ;;
    "-m pip install"*) echo call >>"$FAKE_CALLS" ;;
    "-m uv pip install"*)
        echo "call $UV_INDEX" >>"$FAKE_CALLS"
        case "${FAKE_UV:-}" in
            fail) echo "  x Failed to download \`ray==2.55.0\`"; echo "  connection broken"; exit 1 ;;
            full) echo "OSError: [Errno 28] No space left on device"; exit 1 ;;
            slow) until [ -e "$FAKE_CALLS.go" ]; do sleep 0.05; done ;;
            hang) touch "$FAKE_CALLS.hanging"; exec sleep 60 ;;
        esac ;;
esac
