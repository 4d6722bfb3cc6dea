"""One file per family of baselines, with its records; `catalogue` lists them all."""
