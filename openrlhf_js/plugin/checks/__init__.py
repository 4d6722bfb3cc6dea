"""Checks before a training run: flags and local files, all problems at once, no model loaded.

Checked are mistakes that upstream would answer late, unclearly, or by silently training something
else. Names on a hub, and what upstream's own validation says, are left to upstream.
"""
