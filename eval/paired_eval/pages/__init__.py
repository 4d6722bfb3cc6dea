"""Pictures and pages from the files that evaluations have saved."""
