"""Many training runs, paired by seed, and what they show."""
