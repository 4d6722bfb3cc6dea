"""Prompt files with verifiable answers: written, read, checked."""
