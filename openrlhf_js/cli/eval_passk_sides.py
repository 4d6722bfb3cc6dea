"""Where a model is sampled: in this process, or on a server."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console

from openrlhf_js.cli.eval_passk_tasks import Asked
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.sampling_flags import (
    device_of,
    digest_of,
    dtype_of,
    engine_of,
    loaded,
    policy_of,
)
from openrlhf_js.cli.saying import say
from openrlhf_js.evaluation.endpoint import Chat, Limits
from openrlhf_js.evaluation.passk.local import form_of, prompts_of, sample_local
from openrlhf_js.evaluation.passk.remote import endpoint_of, messages_of, sample_remote
from openrlhf_js.evaluation.passk.samples import SampleFile
from openrlhf_js.reward_model.checkpoint import local_folder
from openrlhf_js.sampling.engines import ROWS, Engine, Policy
from openrlhf_js.sampling.model_files import ModelFiles, model_files
from openrlhf_js.sampling.prompts import Prompt, check_lengths

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Side(NamedTuple):
    """A model, as it is sampled here or on a server.

    Attributes:
        name: of the model, for a reader.
        identity: what its samples depend on.
        ready: is called before the first sample.
        sample: samples what a file lacks of a benchmark; gives what is refused, as `sample_remote`.
    """

    name: str
    identity: dict[str, Any]
    ready: Callable[[], None]
    sample: Callable[[SampleFile, Asked, Bar], dict[int, str]]


def local_side(
    args: argparse.Namespace, model: str, asked: Sequence[Asked], errors: Console
) -> Side:
    """A model that is sampled in this process."""
    folder = local_folder(model)
    files = model_files(folder)
    prompts: dict[str, list[Prompt]] = {}
    for benchmark, items in asked:
        made = prompts_of(items, files.tokenizer, args.prompt_form)
        check_lengths(made, benchmark.drawing.max_new_tokens, files.context)
        prompts[benchmark.name] = made
    engine_name = engine_of(args)
    identity = {
        "model": model,
        "model_sha256": digest_of(folder, errors),
        "prompt_form": form_of(files.tokenizer, args.prompt_form),
        "engine": engine_name,
        "dtype": dtype_of(args),
        "device": device_of(args),
    }
    engine: Engine | None = None

    def ready() -> None:
        nonlocal engine
        if engine is None:
            say(errors, f"loading {model} for {engine_name} on {device_of(args)} ...")
            engine = loaded(engine_name, _roomy(args, files, asked, prompts))

    def sample(file: SampleFile, each: Asked, bar: Bar) -> dict[int, str]:
        assert engine
        drawing, own = each.benchmark.drawing, prompts[each.benchmark.name]
        engine.policy = replace(
            engine.policy,
            temperature=drawing.temperature,
            top_p=drawing.top_p,
            max_new_tokens=drawing.max_new_tokens,
        )
        sample_local(
            file,
            each.items,
            own,
            drawing.samples,
            engine,
            engine.policy.ends,
            lambda tokens: str(files.tokenizer.decode(tokens, skip_special_tokens=False)),
            args.seed,
            args.batch_size or ROWS[engine_name],
            lambda done: bar.update(done, done),
        )
        return {}

    return Side(model, identity, ready, sample)


def _roomy(
    args: argparse.Namespace,
    files: ModelFiles,
    asked: Sequence[Asked],
    prompts: Mapping[str, Sequence[Prompt]],
) -> Policy:
    """A policy with room for every benchmark; how it draws is set for each."""
    together = {
        benchmark.name: benchmark.drawing.max_new_tokens
        + max(len(each.tokens) for each in prompts[benchmark.name])
        for benchmark, _ in asked
    }
    widest = next(each.benchmark for each in asked
                  if together[each.benchmark.name] == max(together.values()))  # fmt: skip
    most = widest.drawing.max_new_tokens
    return policy_of(args, files, together[widest.name] - most, 1.0, 1.0, most)


def served_side(
    args: argparse.Namespace, address: str, asked: Sequence[Asked], errors: Console
) -> Side:
    """A model that is served elsewhere."""
    for _, items in asked:
        for item in items:
            messages_of(item)  # figures that are not there are told before anything is sampled
    endpoint = endpoint_of(address, args.key_env, asks=not args.grade_again)
    limits = Limits(concurrency=args.concurrency, timeout_seconds=args.timeout)
    if not args.grade_again:
        say(errors, f"asking {endpoint.model} at {endpoint.url}")

    async def asking(file: SampleFile, each: Asked, bar: Bar) -> dict[int, str]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, task.cancel)
        async with Chat([endpoint], limits) as chat:
            return await sample_remote(
                file,
                each.items,
                each.benchmark.drawing,
                chat,
                args.concurrency,
                args.seed,
                lambda done: bar.update(done, done),
                args.max_tokens_name,
            )

    def sample(file: SampleFile, each: Asked, bar: Bar) -> dict[int, str]:
        before = [(number, signal.getsignal(number)) for number in STOPS]
        try:
            return asyncio.run(asking(file, each, bar))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:  # the loop leaves none of its own behind
            for number, handler in before:
                signal.signal(number, handler)

    identity = {"served_model": endpoint.model, "url": endpoint.url}
    return Side(f"{endpoint.url}#{endpoint.model}", identity, lambda: None, sample)
