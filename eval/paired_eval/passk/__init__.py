"""pass@k: k samples of a model to each item of a benchmark, graded, with intervals by item."""
