"""The inline engine: trains a tiny model in this process; `engine.py` trains one run."""
