"""The old place of the vLLM engine."""

from openrlhf_js.sampling.engines import Vllm as Vllm
