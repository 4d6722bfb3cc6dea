"""One file a family of baselines, each with its records; `catalogue` lists them all."""
