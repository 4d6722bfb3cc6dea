"""Evaluation that decides which of two models is better, and says how sure it is."""
