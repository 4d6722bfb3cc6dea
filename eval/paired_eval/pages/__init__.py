"""Plots and summaries from the files that runs have saved; nothing here imports a model."""

from openrlhf_js import needs

needs("eval", "jinja2", "altair", "vl_convert")
