"""A model, a tokenizer and a verifiable task that are small enough for a laptop."""
