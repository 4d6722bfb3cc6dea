"""Many training runs, paired by seed, and what they show."""

from openrlhf_js import needs

needs("lab", "psutil", "scipy")
