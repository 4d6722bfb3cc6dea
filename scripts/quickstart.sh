#!/usr/bin/env bash
# Makes a tiny model and trains it by reinforcement learning, after the set-up that this needs.
#   bash scripts/quickstart.sh             some 5 minutes on two cores
#   bash scripts/quickstart.sh --seeds 0   the real stack alone
# Once .venv is built, --help says more.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
case "${1:-}" in -h | --help)
    [ -x "$root/.venv/bin/python" ] || exec sed -n '2,/^[^#]/s/^# //p' "$root/scripts/quickstart.sh" ;;
esac
bash "$root/scripts/setup.sh"
exec "$root/.venv/bin/python" -m openrlhf_js.cli.main quickstart "$@"
