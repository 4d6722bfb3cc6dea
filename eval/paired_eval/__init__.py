"""Evaluation that decides which of two models is better, and says how sure it is."""

__version__ = "0.5.0.dev0"
