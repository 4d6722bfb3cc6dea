"""One way to sample text, whether an engine in this process or an endpoint answers.

sampler = settings.sampler(model)  # of `ServerSettings`
sampler.make_room(requests, parameters)  # for everything that will be asked
sampler.run(requests, parameters, on_samples)
"""

from __future__ import annotations

import base64
import math
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from openrlhf_js.common.model_folders import model_folder
from openrlhf_js.common.processors import IMAGE_TAG, check_images
from openrlhf_js.sampling.endpoint import Endpoint, NoReply
from openrlhf_js.sampling.engines import Engine, key
from openrlhf_js.sampling.models import model_files, model_fingerprint
from openrlhf_js.sampling.prompts import Form, Prompt, asked
from openrlhf_js.sampling.run_all import run_all
from openrlhf_js.sampling.settings import EngineSettings, PromptForm

OPEN_THOUGHT = re.compile(r"(<(think|thinking|thought|reasoning|seed:think)>|\[THINK\])\s*\Z")
SEED_SHIFT = 32  # leaves 31 bits, which every server takes
# Of a sampler's identity: which model it is.
MODEL_IDENTITY = ("model_sha256", "served_model", "served_root", "greedy_answers")


class Parameters(NamedTuple):
    """How one response is sampled; temperature 0 is greedy, None leaves it to the endpoint."""

    temperature: float | None
    top_p: float | None
    max_new_tokens: int
    seed: int


class Request(NamedTuple):
    """One response that is wanted.

    `number` and `draw`, with the seed, determine its random numbers. Each `<image>` in a message
    stands for one of `images`, which are paths.
    """

    number: int
    draw: int
    messages: Sequence[dict[str, Any]]
    images: Sequence[str] = ()


class Sampled(NamedTuple):
    """One response as text."""

    text: str
    thinking: str  # where an endpoint returns it apart from the text
    finish_reason: str  # "stop", or "length" where it was cut off
    tokens: int | None  # of the response; None where the endpoint does not say
    seed: int


Samples = list[tuple[Request, Sampled | NoReply]]
OnSamples = Callable[[Samples], None]


class LocalSampler:
    """A folder or hub id, sampled in this process.

    `name` is for people; `identity` is what samples depend on, besides the parameters.
    """

    same_model = False

    def __init__(self, settings: EngineSettings, model: str, prompt_form: PromptForm = "auto"):
        self.name, self.settings = model, settings
        trust = settings.trust_remote_code
        self.files = model_files(model_folder(model, trust), trust)
        self.tokenizer = self.files.tokenizer
        has_template = bool(getattr(self.tokenizer, "chat_template", None))
        if prompt_form == "chat" and not has_template:
            raise ValueError(f"{model} has no chat template; take --prompt_form text")
        self.chat = has_template and prompt_form != "text"
        self.identity = {
            "model": model,
            "model_sha256": model_fingerprint(self.files.folder),
            "prompt_form": "chat" if self.chat else "text",
            **settings.engine_identity(),
        }
        self._engine: Engine | None = None
        self._room = 0  # tokens of prompt and response together

    def make_room(self, requests: Sequence[Request], parameters: Parameters) -> None:
        """Checks requests that will be made; the engine is loaded with room for the longest."""
        for _, prompt in self._asked(requests):
            needed = len(prompt.tokens) + parameters.max_new_tokens
            if needed <= (self.files.context or needed):
                self._room = max(self._room, needed)

    def run(
        self, requests: Sequence[Request], parameters: Parameters, on_samples: OnSamples
    ) -> None:
        """Samples, and hands over batch after batch; NoReply for a prompt that is too long."""
        room = (self.files.context or math.inf) - parameters.max_new_tokens
        pairs, long = [], []
        for request, prompt in self._asked(requests):
            if len(prompt.tokens) <= room:
                pairs.append((request, prompt))
                continue
            said = (
                f"the prompt has {len(prompt.tokens)} tokens, and --max_new_tokens leaves room for "
                f"{room:.0f} in the model's context of {self.files.context}"
            )
            long.append((request, NoReply(said, refused=True)))
        if long:
            on_samples([*long])
        for start in range(0, len(pairs), self.settings.rows):
            on_samples(self._batch(pairs[start : start + self.settings.rows], parameters))

    def _asked(self, requests: Sequence[Request]) -> list[tuple[Request, Prompt]]:
        """Requests with their prompts."""
        form = Form(label_key=None, apply_chat_template=self.chat)
        found: dict[int, Prompt] = {}
        for number, _, messages, images in requests:
            if number not in found:
                plain = "\n\n".join(str(each["content"]) for each in messages)
                given = list(messages) if self.chat else plain
                row = {"input": given, "images": images}
                (found[number],) = asked([row], form, self.tokenizer, self.files.processor)
        return [(request, found[request.number]) for request in requests]

    def _batch(self, pairs: Sequence[tuple[Request, Prompt]], parameters: Parameters) -> Samples:
        temperature, top_p, most, _ = parameters
        longest = max(self._room, *(len(each.tokens) + most for _, each in pairs)) - most
        drawing = {"temperature": temperature or 1.0, "top_p": 1.0 if top_p is None else top_p}
        policy = self.settings.policy(self.files, longest, max_new_tokens=most, **drawing)
        if self._engine is None:
            self._engine = self.settings.load(policy)
        self._engine.policy = policy
        seeds = [key(parameters.seed, request.number, request.draw) for request, _ in pairs]
        prompts = [prompt.tokens for _, prompt in pairs]
        images = [request.images for request, _ in pairs]
        responses = self._engine.sample(prompts, None if temperature == 0 else seeds, images)
        found: Samples = []
        for (request, prompt), response, seed in zip(pairs, responses, seeds, strict=True):
            tokens = response.tolist()
            ended = bool(tokens) and tokens[-1] in policy.ends
            text = str(self.tokenizer.decode(tokens[:-1] if ended else tokens))
            opening = OPEN_THOUGHT.search(prompt.text)  # as some chat templates end
            text = (opening[0].strip() if opening else "") + text
            reason = "stop" if ended else "length"
            found.append((request, Sampled(text, "", reason, len(tokens), seed)))
        return found


class ServedSampler:
    """A model behind a connected endpoint, used as `LocalSampler`.

    What it is known by: the name and the folder that the server gives, and a few greedy answers,
    since two checkpoints may have both in common. `same_model` has the user vouch for it instead.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        concurrency: int = 64,
        max_tokens_name: str = "max_tokens",
        same_model: bool = False,
    ):
        self.endpoint = endpoint
        self.concurrency = concurrency
        self.max_tokens_name = max_tokens_name
        self.same_model = same_model
        self.name = f"{endpoint.base_url}#{endpoint.model}"
        self.identity = {
            "served_model": endpoint.model,
            "served_root": endpoint.root,
            "greedy_answers": endpoint.greedy_fingerprint(max_tokens_name),
            "url": endpoint.base_url,
        }

    def make_room(self, requests: Sequence[Request], parameters: Parameters) -> None:
        """Checks requests that will be made: images must exist."""
        for request in requests:
            messages_of(request)

    def run(
        self, requests: Sequence[Request], parameters: Parameters, on_samples: OnSamples
    ) -> None:
        """Samples many at the same time; NoReply where there is no response."""

        async def ask(request: Request) -> Sampled:
            seed = key(parameters.seed, request.number, request.draw) >> SEED_SHIFT
            given = {"temperature": parameters.temperature, "top_p": parameters.top_p}
            given |= {self.max_tokens_name: parameters.max_new_tokens, "seed": seed}
            reply = await self.endpoint.chat(messages_of(request), **given)
            return Sampled(*reply[:3], reply.completion_tokens, seed)

        run_all(self.endpoint, requests, ask, on_samples, self.concurrency)


Sampler: TypeAlias = LocalSampler | ServedSampler


def model_differences(recorded: Mapping[str, Any], sampler: Sampler) -> list[str]:
    """In what the model of records is not the sampler's, in words; [] where it is the same."""
    if sampler.same_model:
        return []
    return [
        f"{name} was {recorded.get(name)!r:.80} and is {sampler.identity[name]!r:.80}"
        for name in MODEL_IDENTITY
        if name in sampler.identity and recorded.get(name) != sampler.identity[name]
    ]


def identity_notes(sampler: Sampler) -> tuple[str, ...]:
    """What of the identity may differ from that of records (`Store`)."""
    return ("model", "url", "device", *(MODEL_IDENTITY if sampler.same_model else ()))


def messages_of(request: Request) -> list[dict[str, Any]]:
    """The messages of a request, with its image files where they say `<image>`."""
    if not request.images:
        return list(request.messages)
    check_images(request.messages, request.images)
    images = map(Path, request.images)

    def part(text: str) -> dict[str, Any]:
        if text != IMAGE_TAG:
            return {"type": "text", "text": text}
        path = next(images)
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        url = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    pieces = (re.split(f"({IMAGE_TAG})", each["content"]) for each in request.messages)
    contents = [[part(text) for text in each if text.strip()] for each in pieces]
    return [{**m, "content": c} for m, c in zip(request.messages, contents, strict=True)]
