"""Moved to `openrlhf_js.tasks.prompt_files`; for modules that still import it from here."""

from openrlhf_js.tasks.prompt_files import items, options_of, row, write

__all__ = ["items", "options_of", "row", "write"]
