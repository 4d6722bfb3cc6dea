"""Responses of a model: prompts, engines in this process, OpenAI-compatible endpoints."""

from openrlhf_js import needs

needs("eval", "openai")

VLLM_ON_CPU = {  # environment variables, to be set before vLLM is imported
    "OPENRLHF_JS_DEVICE": "cpu",  # loads the replacements of `plugin.cpu`
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",  # else vLLM compiles a sampler, which wants a C++ compiler
}
