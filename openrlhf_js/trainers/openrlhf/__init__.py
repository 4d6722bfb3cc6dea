"""The shrinkage baseline inside OpenRLHF: the only room that knows upstream's inner names."""

from openrlhf_js import needs

needs("train", "openrlhf")
