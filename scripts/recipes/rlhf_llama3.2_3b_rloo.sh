#!/usr/bin/env bash
# rlhf_llama3.2_3b.sh with ESTIMATOR=rloo, under its former name.
ESTIMATOR=rloo
# shellcheck source=scripts/recipes/rlhf_llama3.2_3b.sh
source "$(dirname "${BASH_SOURCE[0]}")/rlhf_llama3.2_3b.sh"
