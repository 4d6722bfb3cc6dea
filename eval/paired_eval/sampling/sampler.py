"""Samples text, from an engine in this process or from a server, through one interface.

sampler = sampler_of(settings, model)
sampler.make_room(requests, parameters)  # for everything that will be asked
sampler.run(requests, parameters, hand_over)
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from answer_graders.labels import IMAGE_TAG, check_images
from answer_graders.marks import marks_of_template, name_marks, opening_mark
from answer_graders.programs.console import say
from answer_graders.programs.model_folders import model_fingerprint, model_folder
from answer_graders.programs.store import Record, Store, read_store
from paired_eval.sampling.complete import HandOver, in_batches
from paired_eval.sampling.endpoint import Endpoint, NoReply
from paired_eval.sampling.models import ModelFiles, model_files
from paired_eval.sampling.parameters import Images, Parameters, Response, key
from paired_eval.sampling.prompts import Form, Prompt, asked
from paired_eval.sampling.run_all import run_all
from paired_eval.sampling.settings import EngineSettings, PromptForm, ServerSettings

if TYPE_CHECKING:
    from paired_eval.sampling.engines import Engine

SEED_SHIFT = 32  # leaves 31 bits, which every server takes
# The fields of a sampler's identity that tell which model it is.
MODEL_IDENTITY = ("model_sha256", "url", "served_model", "served_root", "responses_sha256")
RECORDED_AT_ONCE = 256
NOTES = ("model", "device")


class Request(NamedTuple):
    """One response to sample.

    `uid` names the prompt in a store. Its `number` and `draw`, with the seed, determine the
    random numbers. Each `<image>` in a message stands for one of `images`, which are paths.
    """

    uid: str
    number: int
    draw: int
    messages: Sequence[dict[str, Any]]
    images: Sequence[str] = ()


class Sampled(NamedTuple):
    """One response as text."""

    text: str
    thinking: str  # where an endpoint returns it apart from the text
    finish_reason: str  # "stop", "length" if it was cut off, or "" if unknown
    tokens: int | None  # of the response; None if the endpoint does not say
    seed: int


class SampledResponse(NamedTuple):
    """One response as tokens, and whether the model ended it."""

    tokens: Response
    ended: bool


class LocalEngine:
    """An engine in this process, loaded at its first use.

    `room` is the most tokens of a prompt and its response together; it grows until the engine is
    loaded.
    """

    def __init__(self, settings: EngineSettings, files: ModelFiles):
        if find_spec("torch") is None:
            raise ValueError(
                "a model in this process needs paired-eval[local] (docs/install.md, Four "
                "packages); or give --model the address of a server"
            )
        self.settings = settings
        self.files = files
        self.room = 0
        self._engine: Engine | None = None

    def respond(
        self,
        prompts: Sequence[Sequence[int]],
        parameters: Parameters,
        seeds: Sequence[int] | None,
        images: Images = (),
    ) -> list[SampledResponse]:
        """A response to each prompt (token ids) from its seed; greedy ones without seeds."""
        longest_prompt = max(len(prompt) for prompt in prompts)
        self.room = max(self.room, longest_prompt + parameters.max_new_tokens)
        if self._engine is None:
            name = self.settings.engine_name
            device = self.settings.device_name
            say(f"loading {self.files.folder} for {name} on {device} ...", error=True)
            from paired_eval.sampling.engines import ENGINES  # loads torch

            self._engine = ENGINES[name](self.files, self.settings, self.room)
        ends = self.files.ends()
        samples = []
        for tokens in self._engine.sample(prompts, parameters, seeds, images):
            ended = len(tokens) > 0 and tokens[-1] in ends
            samples.append(SampledResponse(tokens, ended))
        return samples


class LocalSampler:
    """A model from a folder or the hub, sampled in this process.

    `name` is for display; `identity` is what samples depend on, besides the parameters.
    """

    same_model = False

    def __init__(self, settings: EngineSettings, model: str, prompt_form: PromptForm = "auto"):
        self.name = model
        trust = settings.trust_remote_code
        self.files = model_files(model_folder(model, trust), trust)
        has_template = bool(getattr(self.files.tokenizer, "chat_template", None))
        if prompt_form == "chat" and not has_template:
            raise ValueError(f"{model} has no chat template; take --prompt_form text")
        self.chat = has_template and prompt_form != "text"
        if self.chat:
            name_marks(marks_of_template(self.files.tokenizer))
        self.batch_size = settings.rows
        self.engine = LocalEngine(settings, self.files)
        self.identity: Record = {
            "model": model,
            "model_sha256": model_fingerprint(self.files.folder),
            "prompt_form": "chat" if self.chat else "text",
            **settings.engine_identity(),
        }

    def make_room(self, requests: Sequence[Request], parameters: Parameters) -> None:
        """Checks requests that will be made; the engine is loaded with room for the longest."""
        for prompt in self._prompts(requests).values():
            if self._refusal(prompt, parameters) is None:
                room = len(prompt.tokens) + parameters.max_new_tokens
                self.engine.room = max(self.engine.room, room)

    def run(self, requests: Sequence[Request], parameters: Parameters, hand_over: HandOver) -> None:
        """Samples, and hands over each batch; then NoReply for each prompt that is too long."""
        prompts = self._prompts(requests)
        fitting = []
        refused = []
        for request in requests:
            refusal = self._refusal(prompts[request.number], parameters)
            if refusal is None:
                fitting.append(request)
            else:
                refused.append((request, refusal))

        def sample(batch: Sequence[Request]) -> list[Sampled]:
            batch_prompts = [prompts[request.number] for request in batch]
            return self._sample(batch, batch_prompts, parameters)

        in_batches(self.batch_size, sample)(fitting, hand_over)
        if refused:
            hand_over(refused)

    def _prompts(self, requests: Sequence[Request]) -> dict[int, Prompt]:
        """The prompts of requests, by their number."""
        form = Form(label_key=None, apply_chat_template=self.chat)
        prompts: dict[int, Prompt] = {}
        for request in requests:
            if request.number not in prompts:
                content: Any = list(request.messages)
                if not self.chat:
                    content = "\n\n".join(str(message["content"]) for message in request.messages)
                row = {"input": content, "images": request.images}
                (prompt,) = asked([row], form, self.files.tokenizer, self.files.processor)
                prompts[request.number] = prompt
        return prompts

    def _refusal(self, prompt: Prompt, parameters: Parameters) -> NoReply | None:
        """Why a prompt gets no response; None if it fits into the model's context."""
        context = self.files.context
        length = len(prompt.tokens)
        if context is None or length + parameters.max_new_tokens <= context:
            return None
        room = context - parameters.max_new_tokens
        if room <= 0:
            message = (
                f"--max_new_tokens {parameters.max_new_tokens} alone fills the model's context"
            )
            return NoReply(f"{message} of {context} tokens", refused=True)
        return NoReply(
            f"the prompt has {length} tokens, and --max_new_tokens leaves room for {room} in the "
            f"model's context of {context}",
            refused=True,
        )

    def _sample(
        self, requests: Sequence[Request], prompts: Sequence[Prompt], parameters: Parameters
    ) -> list[Sampled]:
        """The responses to one batch."""
        seeds = [key(parameters.seed, request.number, request.draw) for request in requests]
        responses = self.engine.respond(
            prompts=[prompt.tokens for prompt in prompts],
            parameters=parameters,
            seeds=None if parameters.temperature == 0 else seeds,
            images=[request.images for request in requests],
        )
        samples = []
        for prompt, response, seed in zip(prompts, responses, seeds, strict=True):
            sample = Sampled(
                text=self._text(prompt, response),
                thinking="",
                finish_reason="stop" if response.ended else "length",
                tokens=len(response.tokens),
                seed=seed,
            )
            samples.append(sample)
        return samples

    def _text(self, prompt: Prompt, response: SampledResponse) -> str:
        """A response's text without its end token, after a thinking mark that its prompt opens."""
        tokens = response.tokens.tolist()
        if response.ended:
            tokens.pop()
        return opening_mark(prompt.text) + str(self.files.tokenizer.decode(tokens))


class ServedSampler:
    """A model behind a connected endpoint, with the interface of `LocalSampler`.

    Its identity is its address, and the name and folder that the server gives. `same_model`: the
    user says that the model is the same although these changed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        concurrency: int = 64,
        max_tokens_name: str = "max_tokens",
        omit: Sequence[str] = (),
        same_model: bool = False,
    ):
        self.endpoint = endpoint
        self.concurrency = concurrency
        self.max_tokens_name = max_tokens_name
        self.omit = tuple(omit)
        self.same_model = same_model
        self.name = f"{endpoint.base_url}#{endpoint.model}"
        self.identity: Record = {
            "served_model": endpoint.model,
            "served_root": endpoint.root,
            "url": endpoint.base_url,
        }
        if self.omit:
            self.identity["omitted"] = sorted(self.omit)

    def make_room(self, requests: Sequence[Request], parameters: Parameters) -> None:
        """Checks that the images of these requests exist."""
        for request in requests:
            messages_of(request)

    def run(self, requests: Sequence[Request], parameters: Parameters, hand_over: HandOver) -> None:
        """Samples many at a time; NoReply if there is no response.

        The first draw of every prompt comes first. Otherwise the many draws of one refused
        prompt would look like a server that refuses everything (`Triage`).
        """

        async def ask(request: Request) -> Sampled:
            seed = key(parameters.seed, request.number, request.draw) >> SEED_SHIFT
            sent: dict[str, Any] = {
                "temperature": parameters.temperature,
                "top_p": parameters.top_p,
                "seed": seed,
                self.max_tokens_name: parameters.max_new_tokens,
            }
            for name in self.omit:
                del sent[name]
            reply = await self.endpoint.chat(messages_of(request), **sent)
            return Sampled(
                text=reply.text,
                thinking=reply.thinking,
                finish_reason=reply.finish_reason,
                tokens=reply.completion_tokens,
                seed=seed,
            )

        first_draws_first = sorted(requests, key=lambda request: request.draw > 0)
        run_all(self.endpoint, first_draws_first, ask, hand_over, self.concurrency)


class RecordedSampler:
    """Recorded responses, with the interface of `LocalSampler`: a request gets the one of its draw.

    `texts` are the responses to each item, by uid; `sha256` is of the file that they come from.
    """

    same_model = False

    def __init__(self, name: str, sha256: str, texts: Mapping[str, Sequence[str]]):
        self.name = name
        self.texts = texts
        self.identity: Record = {"model": name, "responses_sha256": sha256}

    def make_room(self, requests: Sequence[Request], parameters: Parameters) -> None:
        """Does nothing: the responses exist already."""

    def run(self, requests: Sequence[Request], parameters: Parameters, hand_over: HandOver) -> None:
        """Hands over batches, so that a stop loses the grades of one batch at most."""
        in_batches(RECORDED_AT_ONCE, self._responses)(requests, hand_over)

    def _responses(self, requests: Sequence[Request]) -> list[Sampled]:
        return [
            Sampled(
                text=self.texts[request.uid][request.draw],
                thinking="",
                finish_reason="",
                tokens=None,
                seed=0,
            )
            for request in requests
        ]


Sampler: TypeAlias = LocalSampler | ServedSampler | RecordedSampler


def sampler_of(settings: ServerSettings, model: str, prompt_form: PromptForm = "auto") -> Sampler:
    """The sampler of a folder, a hub id or an address."""
    if not model.startswith(("http://", "https://")):
        return LocalSampler(settings, model, prompt_form)
    if prompt_form == "text":
        raise ValueError("--prompt_form text: a server puts its chat template around prompts")
    endpoint = Endpoint(
        base_url=model,
        api_key_env=settings.key_env,
        timeout_seconds=settings.timeout,
    )
    return ServedSampler(
        endpoint.connect(),
        concurrency=settings.concurrency,
        max_tokens_name=settings.max_tokens_name,
        omit=settings.omit,
        same_model=settings.same_model,
    )


def model_differences(recorded: Mapping[str, Any], sampler: Sampler) -> list[str]:
    """How the model of the records differs from the sampler's, in words; [] if it does not."""
    if sampler.same_model:
        return []
    differences = []
    for name in MODEL_IDENTITY:
        before = recorded.get(name)
        now = sampler.identity.get(name, before)
        if before != now:
            differences.append(f"{name} was {before!r:.80} and is {now!r:.80}")
    return differences


def advice_on_another_model(sampler: Sampler, elsewhere: str) -> str:
    """What to do if the samples of another model are in the way."""
    if isinstance(sampler, RecordedSampler):
        return f"give {elsewhere}"
    return f"give {elsewhere}, or --same_model if a server serves the same one"


def open_store(
    path: Path,
    sampler: Sampler,
    settings: Mapping[str, Any],
    key_fields: Sequence[str],
    content: str,
    elsewhere: str,
    keep: Callable[[Record], Record] = lambda record: record,
    may_replace: Callable[[Record, Record], bool] = lambda earlier, later: True,
) -> Store:
    """The store of a model's responses under these settings.

    ValueError if it holds those of another model, which a killed call may have left, or of other
    settings. `content` and `elsewhere` are for the message: what the store holds, and where else
    this model's responses can go. `keep` and `may_replace` are as for `Store`.
    """
    if path.is_file() and path.stat().st_size:
        recorded, _ = read_store(path)
        differences = model_differences(recorded, sampler)
        if differences:
            raise ValueError(
                f"{path} holds {content} of another model ({'; '.join(differences)}): "
                f"{advice_on_another_model(sampler, elsewhere)}"
            )
    notes = NOTES + MODEL_IDENTITY if sampler.same_model else NOTES
    identity = {**sampler.identity, **settings}
    return Store(path, identity, key_fields, notes, keep, may_replace)


def messages_of(request: Request) -> list[dict[str, Any]]:
    """The messages of a request, with its image files in place of `<image>`."""
    if not request.images:
        return list(request.messages)
    check_images(request.messages, request.images)
    images = iter(request.images)
    messages = []
    for message in request.messages:
        content = list(_content_parts(message["content"], images))
        messages.append({**message, "content": content})
    return messages


def _content_parts(text: str, images: Iterator[str]) -> Iterator[dict[str, Any]]:
    """A message's content as parts, which take their images in order."""
    for piece in re.split(f"({IMAGE_TAG})", text):
        if piece == IMAGE_TAG:
            yield _image_part(Path(next(images)))
        elif piece.strip():
            yield {"type": "text", "text": piece}


def _image_part(path: Path) -> dict[str, Any]:
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    data = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
