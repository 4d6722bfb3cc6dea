"""The variance lab: how close baselines are to true values, and gradients to the true gradient."""
