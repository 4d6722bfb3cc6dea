"""pass@k: k responses of a model to each benchmark item, graded, with intervals by item."""
