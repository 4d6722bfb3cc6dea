"""Responses of a model: prompts, engines in this process, OpenAI-compatible endpoints."""
