"""A model, a tokenizer and a verifiable task that are small enough for a laptop."""

from openrlhf_js import needs

needs("lab", "psutil", "transformers")
