"""Evaluation that decides which of two models is better, and says how sure it is."""

from openrlhf_js import needs

needs("eval", "openai", "scipy")
