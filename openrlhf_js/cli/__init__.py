"""The programs: one thin module each, named as in `openrlhf.cli` where both exist."""
