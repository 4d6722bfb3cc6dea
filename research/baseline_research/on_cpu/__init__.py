"""Ray, DeepSpeed, vLLM and OpenRLHF on a machine without a GPU."""
