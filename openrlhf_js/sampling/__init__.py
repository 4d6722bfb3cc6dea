"""Responses sampled from a policy: prompts as training gives them, and the engines that answer."""
