"""The inline engine: trains a tiny model in this process; `engine.py` is one run of it."""
