"""The variance lab: how close baselines come to the true value, and gradients to the true one."""
