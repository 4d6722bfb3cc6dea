"""The laboratory: the error of baselines, studies of many runs, tiny models, runs on CPU."""
