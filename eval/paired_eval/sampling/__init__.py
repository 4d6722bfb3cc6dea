"""Responses of a model: prompts, engines in this process, OpenAI-compatible endpoints."""

from openrlhf_js import needs

needs("eval", "openai")
