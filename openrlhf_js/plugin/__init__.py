"""The shrinkage baseline inside OpenRLHF: the only room that knows upstream's inner names."""
