"""Our estimators inside OpenRLHF: the only package that uses upstream's internal names."""

from openrlhf_js import needs

needs("openrlhf", "openrlhf")
