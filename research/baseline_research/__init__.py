"""The laboratory: baselines against the truth, studies of many runs, tiny models, runs on CPU."""
