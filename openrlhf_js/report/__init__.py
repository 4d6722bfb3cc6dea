"""Plots and summaries from the files that runs have saved; nothing here imports a model."""
