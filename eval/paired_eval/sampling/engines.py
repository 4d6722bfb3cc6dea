"""Engines that sample in this process, token ids in and out: transformers, and vLLM.

Every response has its own random numbers, so that it depends neither on the rest of its batch
nor on what was sampled before, except for the rounding of logits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.common.environment import VLLM_ON_CPU, or_as_set
from openrlhf_js.common.processors import FORBIDDEN, media_tokens
from paired_eval.sampling.models import ModelFiles
from paired_eval.sampling.parameters import Images, Parameters, Response
from paired_eval.sampling.settings import EngineSettings

VLLM_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR"}
VLLM_IN_THIS_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # whose seeds and threads it sets


class Transformers:
    """transformers on one device; each call of `sample` is one batch.

    `room` is the most tokens of a prompt and its response together.
    """

    def __init__(self, files: ModelFiles, settings: EngineSettings, room: int):
        import transformers

        self.ends = files.ends()
        self.device = settings.device_name
        self.processor = files.processor
        auto_model: Any = transformers.AutoModelForCausalLM
        if self.processor:
            auto_model = transformers.AutoModelForImageTextToText
        model = auto_model.from_pretrained(
            files.folder,
            dtype=getattr(torch, settings.dtype_name),
            trust_remote_code=settings.trust_remote_code,
        )
        self.model: Any = model.to(self.device).eval()
        # Not the folder's own settings, which may hold a top_k or a repetition penalty.
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=list(self.ends) or None,
            pad_token_id=self.ends[0] if self.ends else 0,
            suppress_tokens=media_tokens(model.config) or None,
        )

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        parameters: Parameters,
        seeds: Sequence[int] | None,
        images: Images = (),
    ) -> list[Response]:
        """A random response to each prompt (token ids), or the greedy one without seeds.

        The same seed gives the same response: each token is drawn by inverting the cumulative
        distribution at the seed's next uniform number.
        """
        tokens = _padded([torch.tensor(prompt, dtype=torch.long) for prompt in prompts])
        mask = _padded([torch.ones(len(prompt), dtype=torch.long) for prompt in prompts])
        inputs = {"input_ids": tokens, "attention_mask": mask, **self._seen(images, tokens)}
        width = tokens.shape[1]
        generated = self.model.generate(
            **{name: value.to(self.device) for name, value in inputs.items()},
            max_new_tokens=parameters.max_new_tokens,
            do_sample=False,  # the most likely token, which `_choice` has made the sampled one
            logits_processor=[] if seeds is None else [self._choice(parameters, seeds, width)],
        )
        responses = generated[:, width:].int().cpu().numpy()
        return [cut(response, self.ends) for response in responses]

    def _choice(
        self, parameters: Parameters, seeds: Sequence[int], width: int
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """A logits processor that leaves only the token that each seed draws.

        `width` is the number of prompt tokens.
        """
        numbers = [np.random.default_rng(seed).random(parameters.max_new_tokens) for seed in seeds]
        uniform = torch.tensor(np.array(numbers), device=self.device)

        def choose(tokens: Tensor, logits: Tensor) -> Tensor:
            place = tokens.shape[1] - width
            chosen = invert(logits, uniform[:, place], parameters.temperature, parameters.top_p)
            return torch.full_like(logits, -torch.inf).scatter_(1, chosen[:, None], 0.0)

        return choose

    def _seen(self, images: Images, tokens: Tensor) -> dict[str, Tensor]:
        """The model's inputs for the images of all prompts; {} without any."""
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
    """vLLM on one device, with the interface of `Transformers`."""

    def __init__(self, files: ModelFiles, settings: EngineSettings, room: int):
        on_cpu = settings.device_name == "cpu"
        for_cpu = VLLM_ON_CPU | VLLM_IN_THIS_PROCESS if on_cpu else {}
        os.environ.update(or_as_set(VLLM_QUIET | for_cpu))  # before vLLM is imported
        from vllm import LLM

        self.ends = files.ends()
        preloaded = os.environ.get("LD_PRELOAD", "")
        self.llm = LLM(
            model=str(files.folder),
            dtype=settings.dtype_name,  # type: ignore[arg-type]
            max_model_len=room,
            generation_config="vllm",  # not the folder's own top_k or repetition penalty
            enforce_eager=on_cpu,
            trust_remote_code=settings.trust_remote_code,
            seed=0,
        )
        os.environ["LD_PRELOAD"] = preloaded  # what vLLM adds is meant for its own processes

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        parameters: Parameters,
        seeds: Sequence[int] | None,
        images: Images = (),
    ) -> list[Response]:
        """A random response to each prompt, with a generator for each; greedy without seeds."""
        media = media_tokens(self.llm.model_config.hf_config)
        seed_of_each = [None] * len(prompts) if seeds is None else seeds
        sampling = [self._sampling(parameters, seed, media) for seed in seed_of_each]
        image_paths = images or [()] * len(prompts)
        inputs: list[Any] = []
        for prompt, paths in zip(prompts, image_paths, strict=True):
            inputs.append(_vllm_input(prompt, paths, media))
        requests = self.llm.generate(inputs, sampling, use_tqdm=False)
        return [np.array(request.outputs[0].token_ids, dtype=np.int32) for request in requests]

    def _sampling(self, parameters: Parameters, seed: int | None, media: Sequence[int]) -> Any:
        """vLLM's parameters for a response with this seed; None: for the greedy one."""
        from vllm import SamplingParams

        greedy = seed is None
        return SamplingParams(
            temperature=0.0 if greedy else parameters.temperature,
            top_p=1.0 if greedy else parameters.top_p,
            seed=seed,
            logit_bias=dict.fromkeys(media, FORBIDDEN) or None,
            max_tokens=parameters.max_new_tokens,
            stop_token_ids=list(self.ends),
            detokenize=False,
        )


def _vllm_input(
    prompt: Sequence[int], image_paths: Sequence[str], media: Sequence[int]
) -> dict[str, Any]:
    """A prompt with its images for vLLM; a run of image tokens becomes one, which vLLM repeats."""
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


def cut(tokens: NDArray[np.int32], ends: Sequence[int]) -> Response:
    """The tokens up to and including the first end token; all of them if there is none."""
    places = np.flatnonzero(np.isin(tokens, ends))
    length = places[0] + 1 if len(places) else len(tokens)
    return tokens[:length].copy()
