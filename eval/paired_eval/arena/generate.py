"""A model's answers: each is saved as it comes, with its thinking apart from what is judged.

generation/NAME.jsonl       every answer, or why there is none, under its settings
model_answer/NAME.jsonl     the answers as the official programs read them
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders.programs.files import atomic_write
from answer_graders.programs.store import Record, Store, json_line
from answer_graders.thinking import split_thinking
from paired_eval.arena.data import Folder, Question
from paired_eval.arena.style import CountTokens, metadata
from paired_eval.sampling.complete import Outcomes, Sample, complete, missing
from paired_eval.sampling.sampler import Parameters, Request, Sampler, open_store


class Generated(NamedTuple):
    """What became of the questions that were wanted."""

    answers: list[Sample]
    failed: dict[str, str]  # why there is no answer, by uid: refused, or too long
    still_open: dict[str, str]  # why there is none yet, by uid

    def problems(self) -> Iterator[str]:
        """What to know of the answers, in sentences."""
        cut_off = sum(answer.finish_reason == "length" for answer in self.answers)
        if cut_off:
            yield f"{cut_off} answers were cut off at --max_new_tokens"
        empty = sum(not _text_and_thinking(answer)[0].strip() for answer in self.answers)
        if empty:
            yield (
                f"{empty} answers are empty once their thinking is removed: most often cut off "
                "while thinking (--max_new_tokens)"
            )
        for open_questions, outcome in (
            (self.failed, "failed (--retry_failed asks them again)"),
            (self.still_open, "are open"),
        ):
            if open_questions:
                uid, reason = next(iter(open_questions.items()))
                yield f"{len(open_questions)} questions {outcome}, such as {uid}: {reason}"


def generate(
    folder: Folder,
    name: str,
    sampler: Sampler,
    questions: Mapping[str, Question],
    wanted: Mapping[str, Question],
    parameters: Parameters,
    count_tokens: CountTokens | None,
    system: str = "",
    retry_failed: bool = False,
) -> Generated:
    """Has a model answer the `wanted` questions that it has not answered in their present text.

    ValueError if there are answers made with other settings, of another model, or by another
    program.
    """
    path = folder.generation(name)
    if folder.answers(name).is_file() and not path.is_file():
        answers = folder.answers(name)
        raise ValueError(f"another program made {answers}: give this model another --name")
    requests = [
        Request(uid=uid, number=number, draw=0, messages=_messages(question, system))
        for number, (uid, question) in enumerate(questions.items())
        if uid in wanted
    ]
    if requests:
        sampler.make_room(requests, parameters)
    with open_store(
        path,
        sampler,
        settings={**parameters._asdict(), "system": system},
        key_fields=("uid",),
        content="answers",
        elsewhere="this one another --name",
    ) as store:
        open_uids = {request.uid for request in missing(store, requests, retry_failed)}
        open_uids |= {uid for uid, question in wanted.items() if not _record(store, question)}
        open_requests = [request for request in requests if request.uid in open_uids]
        try:
            unanswered = complete(
                store,
                open_requests,
                work=lambda requests, keep: sampler.run(requests, parameters, keep),
                grade=_records,
                title="answering",
                unit="answers",
                describe=_asked,
            )
        finally:
            if store.records:  # else a first call would take the file for another program's
                _export(
                    path=folder.answers(name),
                    store=store,
                    questions=questions,
                    count_tokens=count_tokens,
                )
    records = [_record(store, question) for question in wanted.values()]
    samples = [Sample.of(record) for record in records if record]
    return Generated(
        answers=[sample for sample in samples if sample.refused is None],
        failed={sample.uid: sample.refused for sample in samples if sample.refused is not None},
        still_open={request.uid: str(reply) for request, reply in unanswered},
    )


def _record(store: Store, question: Question) -> Record | None:
    """A store's record of a question; None if it has none, or only that of another text."""
    record = store.records.get((question.uid,))
    if record is None or record.get("prompt", question.prompt) != question.prompt:
        return None
    return record


def _messages(question: Question, system: str) -> list[dict[str, str]]:
    """What a model is asked."""
    messages = [{"role": "user", "content": question.prompt}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _records(results: Outcomes) -> list[Record]:
    """The records of answers, which have no grades."""
    records = []
    for request, reply in results:
        record = {**reply._asdict(), "tstamp": time.time()}
        records.append({"uid": request.uid, **_asked(request), **record})
    return records


def _asked(request: Request) -> Record:
    """What a record says of its question, so that one with another text is asked again."""
    return {"prompt": request.messages[-1]["content"]}


def _export(
    path: Path, store: Store, questions: Mapping[str, Question], count_tokens: CountTokens | None
) -> None:
    """Writes the stored answers as the official programs read them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for question in questions.values():
            record = _record(store, question)
            sample = Sample.of(record) if record else None
            if sample and sample.refused is None:
                row = _answer_row(
                    sample=sample,
                    question=question,
                    model=path.stem,
                    count_tokens=count_tokens,
                )
                file.write(json_line(row))


def _answer_row(
    sample: Sample, question: Question, model: str, count_tokens: CountTokens | None
) -> dict[str, Any]:
    """A row of `model_answer`, in the schema of v2.0."""
    text, thinking = _text_and_thinking(sample)
    content = {"answer": text}
    if thinking:
        content["thought"] = thinking
    row: dict[str, Any] = {
        "uid": question.uid,
        "ans_id": f"{model}-{question.uid}",
        "model": model,
        "messages": [
            {"role": "user", "content": question.prompt},
            {"role": "assistant", "content": content},
        ],
        "tstamp": sample.tstamp,
    }
    if count_tokens:
        row["metadata"] = metadata(text, count_tokens)
    return row


def _text_and_thinking(sample: Sample) -> tuple[str, str]:
    """The answer that is judged, and the thinking that is not."""
    return split_thinking(sample.text, sample.thinking)
