"""Has a model answer the questions; each answer is on disk as soon as it is there."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.answer_file import CUT_OFF, AnswerFile
from openrlhf_js.evaluation.arena.files import answer_line
from openrlhf_js.evaluation.arena.lines import Progress
from openrlhf_js.evaluation.arena.records import Answer, Question
from openrlhf_js.evaluation.arena.style import CountTokens, metadata
from openrlhf_js.evaluation.arena.thinking import MARKS, TAGS, Parted, part
from openrlhf_js.evaluation.endpoint import (
    Chat,
    EndpointSilent,
    EndpointUnavailable,
    RequestRefused,
)
from openrlhf_js.evaluation.workers import side_by_side
from openrlhf_js.sampling.engines import Engine, key

SEED_BITS = 31  # of a seed that every server takes
GIVE_UP_AFTER = 16  # questions in a row that the endpoint did not answer


class Said(NamedTuple):
    """What a model said to a question.

    Attributes:
        text: all of it.
        thinking: what the endpoint has parted from it.
        finish_reason: "stop"; "length" where it was cut off.
        tokens: of all of it; None where nobody says.
    """

    text: str
    thinking: str
    finish_reason: str
    tokens: int | None


def line_of_answer(question: Question, model: str, said: Said, count_tokens: CountTokens) -> bytes:
    """The line of an answers' file: the judge's text, with the thoughts and the counts beside it.

    Args:
        question: that was asked.
        model: its name in the pool.
        said: by the model.
        count_tokens: of `style.load_tokenizer`.
    """
    parted: Parted = part(said.text, said.thinking)
    digest = hashlib.sha256("\0".join((question.uid, model, said.text)).encode(errors="replace"))
    answer = Answer(
        question.uid, model, parted.text, None, parted.thinking, digest.hexdigest()[:22]
    )
    extra = {"finish_reason": said.finish_reason, "completion_tokens": said.tokens}
    counts = metadata(parted.text, count_tokens)
    return answer_line(answer, question.prompt, counts, time.time(), extra)


def opening_of(prompt: str) -> str:
    """The tag that a prompt ends with, where a chat template opens the thoughts itself; or ""."""
    body = prompt.rstrip()
    return next((start for start, _ in TAGS if body.endswith(start)), "")


def decoder(tokenizer: Any) -> Callable[[list[int]], str]:
    """Text of tokens, without special ones, but for models whose thoughts stand between such."""
    special = set(tokenizer.all_special_tokens)
    keep = bool(special & MARKS)
    return lambda tokens: str(tokenizer.decode(tokens, skip_special_tokens=not keep))


def answer_locally(
    file: AnswerFile,
    places: Sequence[tuple[int, Question]],
    prompts: Mapping[str, tuple[str, list[int]]],
    engine: Engine,
    ends: Sequence[int],
    decode: Callable[[list[int]], str],
    greedy: bool,
    seed: int,
    rows: int,
    count_tokens: CountTokens,
    progress: Progress,
) -> None:
    """Answers questions with an engine in this process, batch after batch.

    Args:
        file: gets the answers.
        places: the questions that it lacks, each with its number, which sets its seed.
        prompts: text and tokens of each question, by uid, with the chat template.
        engine: answers.
        ends: the tokens that end an answer; one of them is no part of its text.
        decode: of `decoder`.
        greedy: whether the likeliest token is taken at every place.
        seed: of the answers otherwise.
        rows: in a batch.
        count_tokens: of `style.load_tokenizer`.
        progress: is told of the answers done, after each batch.

    Raises:
        OSError: an answer cannot be written.
    """
    done = 0
    for start in range(0, len(places), rows):
        batch = places[start : start + rows]
        asked = [prompts[question.uid][1] for _, question in batch]
        if greedy:
            found = engine.greedy(asked)
        else:
            found = engine.sample(asked, [key(seed, number, 0) for number, _ in batch])
        for (_, question), response in zip(batch, found, strict=True):
            tokens = response.tolist()
            ended = bool(tokens) and tokens[-1] in ends
            text = opening_of(prompts[question.uid][0]) + decode(tokens[:-1] if ended else tokens)
            said = Said(text, "", "stop" if ended else CUT_OFF, len(tokens))
            file.append(line_of_answer(question, file.model, said, count_tokens))
        done += len(batch)
        progress(done)


async def answer_remotely(
    file: AnswerFile,
    places: Sequence[tuple[int, Question]],
    system: str,
    parameters: Mapping[str, Any],
    seed: int,
    chat: Chat,
    concurrency: int,
    count_tokens: CountTokens,
    progress: Progress,
) -> dict[str, str]:
    """Answers questions with an endpoint, as many at a time as allowed.

    Args:
        file: gets the answers, each as it comes.
        places: the questions that it lacks, each with its number, which sets its seed.
        system: message, "" for none.
        parameters: of each request, without a seed.
        seed: of the answers; whether it is heeded is the server's matter.
        chat: open.
        concurrency: requests at the same time.
        count_tokens: of `style.load_tokenizer`.
        progress: is told of the answers done, after each.

    Returns:
        Why, by uid, a question has no answer: it stays open.

    Raises:
        EndpointRefused: the endpoint takes no request at all. EndpointUnavailable: it has answered
            none of many questions in a row. OSError: an answer cannot be written. What came before
            is kept.
    """
    waiting = iter(places)
    failed: dict[str, str] = {}
    done = unanswered = 0

    async def work() -> None:
        nonlocal done, unanswered
        for number, question in waiting:
            messages = [{"role": "system", "content": system}] if system else []
            messages.append({"role": "user", "content": question.prompt})
            own = {**parameters, "seed": key(seed, number, 0) >> (63 - SEED_BITS)}
            try:
                reply = await chat.ask(messages, own)
            except RequestRefused as error:
                failed[question.uid] = str(error)
                continue
            except EndpointUnavailable as error:
                failed[question.uid] = str(error)
                unanswered += 1
                if unanswered >= GIVE_UP_AFTER or isinstance(error, EndpointSilent):
                    raise
                continue
            unanswered = 0
            reason = reply.finish_reason
            said = Said(reply.text, reply.thinking, reason, reply.completion_tokens)
            line = line_of_answer(question, file.model, said, count_tokens)
            # What was answered is written even if all is stopped meanwhile.
            writing = asyncio.get_running_loop().run_in_executor(None, file.append, line)
            await asyncio.shield(writing)
            done += 1
            progress(done)

    await side_by_side(work, concurrency)
    return failed
