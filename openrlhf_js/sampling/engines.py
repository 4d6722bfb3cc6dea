"""Engines that sample in this process, from tokens to tokens: transformers, and vLLM.

Every response has random numbers of its own, so that it depends neither on the rest of its batch
nor on what was sampled before, except for the rounding of logits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from openrlhf_js.common.processors import FORBIDDEN, load_processor, media_tokens

Response = NDArray[np.int32]  # token ids, with the end token where the model ended
Images = Sequence[Sequence[str]]  # of each prompt, the paths of its images
VLLM_ON_CPU = {  # as `plugin.cpu` sets it, whose replacements vLLM loads as a plugin
    "OPENRLHF_JS_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process, whose seeds and threads it sets
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True)
class Policy:
    """A model and how responses are sampled from it.

    `dtype` is torch's name; `temperature` is above 0; `ends` are the tokens that end a response;
    `longest_prompt` is in tokens; `trust_remote_code` lets the folder's own Python run.
    """

    folder: Path
    device: str
    dtype: str
    temperature: float
    top_p: float
    max_new_tokens: int
    ends: tuple[int, ...]
    longest_prompt: int
    trust_remote_code: bool = False


class Transformers:
    """transformers on one device; what it is given is one batch.

    `policy` may be replaced by one that samples from the same model in another way, with prompts
    and responses that together are no longer.
    """

    def __init__(self, policy: Policy):
        import transformers

        trust = policy.trust_remote_code
        config = transformers.AutoConfig.from_pretrained(policy.folder, trust_remote_code=trust)
        sees = hasattr(config, "vision_config")
        kind = "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM"
        load = getattr(transformers, kind).from_pretrained
        dtype = getattr(torch, policy.dtype)
        model = load(policy.folder, dtype=dtype, trust_remote_code=trust)
        self.processor: Any = load_processor(policy.folder, trust) if sees else None
        self.policy = policy
        self.model: Any = model.to(policy.device).eval()
        # Not the folder's own settings, which may hold a top_k or a repetition penalty.
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=list(policy.ends) or None,
            pad_token_id=policy.ends[0] if policy.ends else 0,
            suppress_tokens=media_tokens(model.config) or None,
        )

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[Sequence[int]], keys: Sequence[int] | None, images: Images = ()
    ) -> list[Response]:
        """A random response to each prompt (token ids), or the greedy one without keys.

        The same key gives the same response: each token inverts the distribution at a uniform
        number.
        """
        policy, width = self.policy, max(map(len, prompts))
        tokens = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, prompt in enumerate(prompts):  # padded on the left
            tokens[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        draws = [np.random.default_rng(key).random(policy.max_new_tokens) for key in keys or ()]
        uniform = torch.tensor(np.array(draws), device=policy.device)

        def choose(tokens: Tensor, logits: Tensor) -> Tensor:
            place = tokens.shape[1] - width
            chosen = invert(logits, uniform[:, place], policy.temperature, policy.top_p)
            return torch.full_like(logits, -torch.inf).scatter_(1, chosen[:, None], 0.0)

        seen = {}
        if pictures := [Image.open(path) for own in images for path in own]:
            seen = {**self.processor.image_processor(pictures, return_tensors="pt")}
            if "image_grid_thw" in seen:  # Qwen's positions depend on where images are
                seen["mm_token_type_ids"] = (tokens == self.processor.image_token_id).int()
        made = self.model.generate(
            **{name: value.to(policy.device) for name, value in seen.items()},
            input_ids=tokens.to(policy.device),
            attention_mask=mask.to(policy.device),
            max_new_tokens=policy.max_new_tokens,
            do_sample=False,  # the most likely token, which `choose` has made the sampled one
            logits_processor=[] if keys is None else [choose],
        )
        return [cut(row, policy.ends) for row in made[:, width:].int().cpu().numpy()]


class Vllm:
    """vLLM on one device, used as `Transformers`."""

    def __init__(self, policy: Policy):
        for name, value in (VLLM_ON_CPU if policy.device == "cpu" else {}).items():
            os.environ.setdefault(name, value)  # before vLLM is imported
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM

        self.policy, preloaded = policy, os.environ.get("LD_PRELOAD", "")
        self.llm = LLM(
            model=str(policy.folder),
            dtype=policy.dtype,  # type: ignore[arg-type]
            max_model_len=policy.longest_prompt + policy.max_new_tokens,
            generation_config="vllm",  # not the folder's own top_k or repetition penalty
            enforce_eager=policy.device == "cpu",
            trust_remote_code=policy.trust_remote_code,
            seed=0,
        )
        os.environ["LD_PRELOAD"] = preloaded  # what vLLM adds is for processes of its own

    def sample(
        self, prompts: Sequence[Sequence[int]], keys: Sequence[int] | None, images: Images = ()
    ) -> list[Response]:
        """A random response to each prompt, with a generator for each; greedy without keys."""
        from vllm import SamplingParams

        how = {"temperature": self.policy.temperature, "top_p": self.policy.top_p}
        greedy: list[dict[str, Any]] = [{"temperature": 0.0}] * len(prompts)
        settings = greedy if keys is None else [{**how, "seed": key} for key in keys]
        media = media_tokens(self.llm.model_config.hf_config)
        parameters = [
            SamplingParams(
                logit_bias=dict.fromkeys(media, FORBIDDEN) or None,
                max_tokens=self.policy.max_new_tokens,
                stop_token_ids=list(self.policy.ends),
                detokenize=False,
                **each,
            )
            for each in settings
        ]
        given: list[Any] = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        for each, own in zip(given, images, strict=False):
            if own:  # vLLM itself repeats the token that stands for an image
                pairs = pairwise([None, *each["prompt_token_ids"]])
                kept = [now for last, now in pairs if now != last or now not in media]
                shown = {"image": [Image.open(path) for path in own]}
                each.update(prompt_token_ids=kept, multi_modal_data=shown)
        made = self.llm.generate(given, parameters, use_tqdm=False)
        return [np.array(each.outputs[0].token_ids, dtype=np.int32) for each in made]


Engine: TypeAlias = Transformers | Vllm
ENGINES: dict[str, type[Engine]] = {"transformers": Transformers, "vllm": Vllm}


def invert(logits: Tensor, uniform: Tensor, temperature: float, top_p: float) -> Tensor:
    """Tokens (b,) drawn from softmax(logits / temperature): where its cumulative sum passes u.

    `logits` are (b, V), `uniform` (b,) float64 in [0, 1); with `top_p` below 1 the least likely
    tokens beyond this probability are left out.
    """
    probabilities = (logits.double() / temperature).softmax(-1)
    if top_p < 1:
        descending, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = descending.cumsum(-1) - descending
        tail = (before >= top_p).gather(-1, order.argsort(-1))
        probabilities = probabilities.masked_fill(tail, 0.0)
    cumulative = probabilities.cumsum(-1)
    passed = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, passed, right=True)[:, 0]


def key(seed: int, prompt: int, draw: int) -> int:
    """The seed of one response, different for each, below 2^63."""
    return int(np.random.SeedSequence([seed, prompt, draw]).generate_state(1, np.uint64)[0] >> 1)


def cut(tokens: NDArray[np.int32], ends: Sequence[int]) -> Response:
    """The tokens up to and with the first end; all of them if there is none."""
    found = np.flatnonzero(np.isin(tokens, ends))
    return tokens[: found[0] + 1].copy() if len(found) else tokens.copy()
