#!/usr/bin/env bash
# Makes a tiny model and trains it by reinforcement learning; see --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bash "$root/scripts/setup.sh"
exec "$root/.venv/bin/python" -m openrlhf_js.cli.main quickstart "$@"
