"""A training run from its start to its end: device, Ray, record, failures."""
