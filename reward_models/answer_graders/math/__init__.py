"""Whether two mathematical answers are the same: read, compared exactly, or else numerically."""
