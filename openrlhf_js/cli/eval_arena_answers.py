"""From the flags of `eval arena generate` to answers: by a model here, or by one that is served."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

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
from openrlhf_js.evaluation.arena.answer_file import AnswerFile
from openrlhf_js.evaluation.arena.api_config import read_api_model
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.generate import answer_locally, answer_remotely, decoder
from openrlhf_js.evaluation.arena.records import Question
from openrlhf_js.evaluation.arena.style import CountTokens
from openrlhf_js.evaluation.endpoint import Chat, Endpoint, Limits
from openrlhf_js.evaluation.passk.remote import endpoint_of
from openrlhf_js.evaluation.passk.results import versions
from openrlhf_js.reward_model.checkpoint import local_folder
from openrlhf_js.sampling.model_files import ModelFiles, model_files
from openrlhf_js.sampling.prompts import Form, asked, check_lengths

DEFAULTS = {"temperature": 0.0, "max_new_tokens": 4096, "system": "", "concurrency": 64}
ROWS = {"transformers": 16, "vllm": 250}  # answers at once: a kill costs no more than those

Made = tuple[Path, dict[str, str]]


def local_answers(
    args: argparse.Namespace,
    folder: Folder,
    questions: Sequence[Question],
    wanted: Mapping[str, Question],
    count_tokens: CountTokens,
    errors: Console,
) -> Made:
    """Answers by a model in this process.

    Args:
        args: the flags.
        folder: of the bench.
        questions: all of the bench, in order.
        wanted: those to answer.
        count_tokens: of `style.load_tokenizer`.
        errors: shows progress.

    Returns:
        The file of answers; and why, by uid, a question has none. Of questions that are too long
        for the model, which stay open, one line is said here.

    Raises:
        ValueError: the model cannot be used, or answers made otherwise are there.
        OSError: a file cannot be read or written.
    """
    place = local_folder(args.model)
    files = model_files(place)
    prompts = _prompts(args, files, wanted, errors)
    engine_name = engine_of(args)
    settings = {
        **_settings(args),
        "model_sha256": digest_of(place, errors),
        "engine": engine_name,
        "dtype": dtype_of(args),
        "device": device_of(args),
    }
    with AnswerFile(folder, args.name or args.model, settings, _teller(errors)) as file:
        lacks = [each for each in file.missing(questions) if each[1].uid in prompts]
        if not lacks:
            return file.path, {}
        say(errors, f"{len(lacks)} answers with {engine_name} on {device_of(args)} ...")
        longest = max(len(tokens) for _, tokens in prompts.values())
        temperature = args.temperature or 1.0  # greedy answers do not look at it
        policy = policy_of(args, files, longest, temperature, args.top_p, args.max_new_tokens)
        engine = loaded(engine_name, policy)
        with Bar("answering", len(lacks), errors, "answers") as bar:
            answer_locally(
                file,
                lacks,
                prompts,
                engine,
                policy.ends,
                decoder(files.tokenizer),
                args.temperature == 0,
                args.seed,
                args.batch_size or ROWS[engine_name],
                count_tokens,
                lambda done: bar.update(done, done),
            )
        return file.path, {}


def _prompts(
    args: argparse.Namespace, files: ModelFiles, wanted: Mapping[str, Question], errors: Console
) -> dict[str, tuple[str, list[int]]]:
    """Text and tokens, by uid, with the model's chat template; of questions that fit its context.

    Raises:
        ValueError: the model has no chat template, or none of the questions fits.
    """
    if not getattr(files.tokenizer, "chat_template", None):
        raise ValueError(
            f"{args.model} has no chat template, so it cannot be asked: take a model that was "
            "trained to answer, or add `chat_template` to its tokenizer_config.json"
        )
    system = [{"role": "system", "content": args.system}] if args.system else []
    rows = [{"input": [*system, {"role": "user", "content": q.prompt}]} for q in wanted.values()]
    form = Form(label_key=None, apply_chat_template=True)
    made = asked(rows, form, files.tokenizer)
    room = math.inf if files.context is None else files.context - args.max_new_tokens
    found = {
        uid: (each.text, each.tokens)
        for uid, each in zip(wanted, made, strict=True)
        if len(each.tokens) <= room
    }
    if not found:
        check_lengths(made, args.max_new_tokens, files.context)
    if len(found) < len(made):
        say(
            errors,
            f"{len(made) - len(found)} of {len(made)} questions are left open: with up to "
            f"{max(len(each.tokens) for each in made)} tokens they leave no room for "
            f"{args.max_new_tokens} new ones (--max_new_tokens), since the model takes "
            f"{files.context} together",
        )
    return found


def served_answers(
    args: argparse.Namespace,
    endpoints: Sequence[Endpoint],
    folder: Folder,
    questions: Sequence[Question],
    wanted: Mapping[str, Question],
    count_tokens: CountTokens,
    errors: Console,
) -> Made:
    """Answers by a model that a server has.

    Args:
        endpoints: of `endpoints_of`.
        args, folder, questions, wanted, count_tokens, errors: as of `local_answers`.

    Returns:
        As `local_answers`.

    Raises:
        ValueError: answers made otherwise are there.
        EndpointRefused, EndpointUnavailable: it does not answer.
        OSError: a file cannot be read or written.
    """
    model, url = endpoints[0].model, endpoints[0].url
    settings = {**_settings(args), "served_model": model, "url": url}
    name = args.name or (args.model if args.endpoints else model)
    with AnswerFile(folder, name, settings, _teller(errors)) as file:
        lacks = [each for each in file.missing(questions) if each[1].uid in wanted]
        if not lacks:
            return file.path, {}
        say(errors, f"asking {model} at {url} for {len(lacks)} answers ...")
        parameters = {
            "temperature": args.temperature,
            "top_p": args.top_p,
            "max_tokens": args.max_new_tokens,
        }
        if args.temperature is None:  # the other names are refused by models that take none
            parameters = {"max_completion_tokens": args.max_new_tokens}
        limits = Limits(concurrency=args.concurrency, timeout_seconds=args.timeout)

        async def answer(bar: Bar) -> dict[str, str]:
            async with Chat(endpoints, limits) as chat:
                return await answer_remotely(
                    file,
                    lacks,
                    args.system,
                    parameters,
                    args.seed,
                    chat,
                    args.concurrency,
                    count_tokens,
                    lambda done: bar.update(done, done),
                )

        with Bar("answering", len(lacks), errors, "answers") as bar:
            failed = asyncio.run(answer(bar))
        return file.path, failed


def endpoints_of(args: argparse.Namespace, errors: Console) -> Sequence[Endpoint]:
    """Where the model is served; none for a model here.

    Flags that were left out get a value, but for the temperature of a model that takes none.

    Args:
        args: the flags; what a file of endpoints says comes after them, and `DEFAULTS` after that.
        errors: where to warn.

    Raises:
        ValueError: there is no such server, or no such model in the file. OSError: the file cannot
            be read.
    """
    found: Sequence[Endpoint] = ()
    given: dict[str, Any] = {}
    defaults = dict(DEFAULTS)
    if args.endpoints:
        entry = read_api_model(args.endpoints, args.model, _teller(errors))
        found = entry.endpoints
        given = {
            "concurrency": entry.parallel,
            "temperature": entry.temperature,
            "max_new_tokens": entry.max_tokens,
            "system": entry.system or None,
        }
        if entry.thinking:
            defaults["temperature"] = None
    elif args.model.startswith(("http://", "https://")):
        found = [endpoint_of(args.model, args.key_env)]
    for name, default in defaults.items():
        if getattr(args, name) is None:
            value = given.get(name)
            setattr(args, name, default if value is None else value)
    return found


def _teller(errors: Console) -> Callable[[str], None]:
    return lambda line: say(errors, line)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What answers depend on, wherever the model runs, and what may change."""
    return {
        "model": args.model,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "max_new_tokens": args.max_new_tokens,
        "system": args.system,
        "seed": args.seed,
        "versions": versions(),
    }
