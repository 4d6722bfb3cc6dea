"""Engines that sample in this process, from tokens to tokens: transformers, and vLLM.

Every response has random numbers of its own, so that it depends neither on the rest of its batch
nor on what was sampled before, except for the rounding of logits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.common.processors import FORBIDDEN, load_processor, media_tokens
from openrlhf_js.sampling import VLLM_ON_CPU

Response = NDArray[np.int32]  # token ids, with the end token where the model ended
Images = Sequence[Sequence[str]]  # of each prompt, the paths of its images
IN_THIS_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # whose seeds and threads vLLM sets


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
        self.processor: Any = None
        auto_model: Any = transformers.AutoModelForCausalLM
        if hasattr(config, "vision_config"):
            self.processor = load_processor(policy.folder, trust)
            auto_model = transformers.AutoModelForImageTextToText
        dtype = getattr(torch, policy.dtype)
        model = auto_model.from_pretrained(policy.folder, dtype=dtype, trust_remote_code=trust)
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
        tokens = _padded([torch.tensor(prompt, dtype=torch.long) for prompt in prompts])
        mask = _padded([torch.ones(len(prompt), dtype=torch.long) for prompt in prompts])
        inputs = {"input_ids": tokens, "attention_mask": mask, **self._seen(images, tokens)}
        width = tokens.shape[1]
        generated = self.model.generate(
            **{name: value.to(self.policy.device) for name, value in inputs.items()},
            max_new_tokens=self.policy.max_new_tokens,
            do_sample=False,  # the most likely token, which `_choice` has made the sampled one
            logits_processor=[] if keys is None else [self._choice(keys, width)],
        )
        responses = generated[:, width:].int().cpu().numpy()
        return [cut(response, self.policy.ends) for response in responses]

    def _choice(self, keys: Sequence[int], width: int) -> Callable[[Tensor, Tensor], Tensor]:
        """Has the next token, behind `width` of the prompt, be the one that its key draws."""
        policy = self.policy
        numbers = [np.random.default_rng(key).random(policy.max_new_tokens) for key in keys]
        uniform = torch.tensor(np.array(numbers), device=policy.device)

        def choose(tokens: Tensor, logits: Tensor) -> Tensor:
            place = tokens.shape[1] - width
            chosen = invert(logits, uniform[:, place], policy.temperature, policy.top_p)
            return torch.full_like(logits, -torch.inf).scatter_(1, chosen[:, None], 0.0)

        return choose

    def _seen(self, images: Images, tokens: Tensor) -> dict[str, Tensor]:
        """The model's inputs that show it the images of all prompts; {} without any."""
        pictures = [Image.open(path) for paths in images for path in paths]
        if not pictures:
            return {}
        inputs = dict(self.processor.image_processor(pictures, return_tensors="pt"))
        if "image_grid_thw" in inputs:  # Qwen's positions depend on where images are
            inputs["mm_token_type_ids"] = (tokens == self.processor.image_token_id).int()
        return inputs


def _padded(rows: list[Tensor]) -> Tensor:
    """(b, T) from rows of different lengths, with zeros on the left."""
    return pad_sequence(rows, batch_first=True, padding_side="left")


class Vllm:
    """vLLM on one device, used as `Transformers`."""

    def __init__(self, policy: Policy):
        environment = {"VLLM_LOGGING_LEVEL": "ERROR"}
        if policy.device == "cpu":
            environment |= VLLM_ON_CPU | IN_THIS_PROCESS
        for name, value in environment.items():
            os.environ.setdefault(name, value)  # before vLLM is imported
        from vllm import LLM

        self.policy = policy
        preloaded = os.environ.get("LD_PRELOAD", "")
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
        media = media_tokens(self.llm.model_config.hf_config)
        seeds = [None] * len(prompts) if keys is None else keys
        parameters = [self._parameters(seed, media) for seed in seeds]
        image_paths = images or [()] * len(prompts)
        inputs: list[Any] = []
        for prompt, paths in zip(prompts, image_paths, strict=True):
            inputs.append(_vllm_input(prompt, paths, media))
        requests = self.llm.generate(inputs, parameters, use_tqdm=False)
        return [np.array(request.outputs[0].token_ids, dtype=np.int32) for request in requests]

    def _parameters(self, seed: int | None, media: Sequence[int]) -> Any:
        """vLLM's parameters of a response with this seed; None: of the greedy one."""
        from vllm import SamplingParams

        greedy = seed is None
        return SamplingParams(
            temperature=0.0 if greedy else self.policy.temperature,
            top_p=1.0 if greedy else self.policy.top_p,
            seed=seed,
            logit_bias=dict.fromkeys(media, FORBIDDEN) or None,
            max_tokens=self.policy.max_new_tokens,
            stop_token_ids=list(self.policy.ends),
            detokenize=False,
        )


def _vllm_input(
    prompt: Sequence[int], image_paths: Sequence[str], media: Sequence[int]
) -> dict[str, Any]:
    """A prompt with its images as vLLM takes it, which itself repeats the tokens of images."""
    if not image_paths:
        return {"prompt_token_ids": list(prompt)}
    tokens = []
    for before, token in pairwise([None, *prompt]):
        if token != before or token not in media:
            tokens.append(token)
    images = [Image.open(path) for path in image_paths]
    return {"prompt_token_ids": tokens, "multi_modal_data": {"image": images}}


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
    state = np.random.SeedSequence([seed, prompt, draw]).generate_state(1, np.uint64)
    return int(state[0] >> 1)


def cut(tokens: NDArray[np.int32], ends: Sequence[int]) -> Response:
    """The tokens up to and with the first end; all of them if there is none."""
    places = np.flatnonzero(np.isin(tokens, ends))
    length = places[0] + 1 if len(places) else len(tokens)
    return tokens[:length].copy()
