"""vLLM as an engine; beside `plugin`, the only file that knows vLLM.

Two runs agree but for the rounding of logits, which depends on what vLLM computes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from vllm import LLM, SamplingParams

from openrlhf_js.sampling.engines import Policy, Response


class Vllm:
    """vLLM on one device, everything given to it as one batch."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.llm = LLM(
            model=str(policy.folder),
            dtype=policy.dtype,  # type: ignore[arg-type]
            max_model_len=policy.longest_prompt + policy.max_new_tokens,
            generation_config="vllm",  # not the folder's own top_k or repetition penalty
            enforce_eager=policy.device == "cpu",
            seed=0,  # of what has no key
        )

    def sample(self, prompts: Sequence[Sequence[int]], keys: Sequence[int]) -> list[Response]:
        """As `Engine`: with a generator for each response."""
        settings = {"temperature": self.policy.temperature, "top_p": self.policy.top_p}
        return self._generate(prompts, [{**settings, "seed": key} for key in keys])

    def greedy(self, prompts: Sequence[Sequence[int]]) -> list[Response]:
        """As `Engine`."""
        return self._generate(prompts, [{"temperature": 0.0}] * len(prompts))

    def _generate(
        self, prompts: Sequence[Sequence[int]], settings: Sequence[dict[str, Any]]
    ) -> list[Response]:
        parameters = [
            SamplingParams(
                max_tokens=self.policy.max_new_tokens,
                stop_token_ids=list(self.policy.ends),
                detokenize=False,
                **each,
            )
            for each in settings
        ]
        asked: list[Any] = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        made = self.llm.generate(asked, parameters, use_tqdm=False)
        return [np.array(each.outputs[0].token_ids, dtype=np.int32) for each in made]
