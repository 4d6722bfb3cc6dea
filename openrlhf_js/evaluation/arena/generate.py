"""A model's answers: each on disk as soon as it is there, thinking apart from what is judged.

generation/NAME.jsonl       every answer, or why there is none, under its settings
model_answer/NAME.jsonl     the answers as the official programs read them
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Record, Store, json_line, read_store
from openrlhf_js.evaluation.arena.data import Folder, Question
from openrlhf_js.evaluation.arena.style import CountTokens, metadata, split_thinking
from openrlhf_js.sampling.endpoint import NoReply
from openrlhf_js.sampling.sampler import (
    Parameters,
    Request,
    Sampled,
    Sampler,
    identity_notes,
    model_differences,
)


class Generated(NamedTuple):
    """What became of the questions that were wanted."""

    answers: list[Record]
    failed: dict[str, str]  # why there is no answer, by uid: refused, or too long
    still_open: dict[str, str]  # why there is none yet, by uid

    @property
    def cut_off(self) -> int:
        """Answers that ended at the limit of tokens."""
        return sum(answer["finish_reason"] == "length" for answer in self.answers)

    @property
    def empty(self) -> int:
        """Answers in which the judge would see nothing."""
        return sum(not _text_and_thinking(answer)[0].strip() for answer in self.answers)


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
    """Has a model answer the `wanted` questions that it has not answered yet.

    ValueError if there are answers made with other settings, of another model, or by another
    program.
    """
    path = folder.generation(name)
    _check_whose_answers(folder.answers(name), path, sampler)
    identity = {**sampler.identity, **parameters._asdict(), "system": system}
    still_open: dict[str, str] = {}
    with Store(path, identity, ("uid",), identity_notes(sampler)) as store:
        requests = [
            Request(number, 0, _messages(questions[uid], system))
            for number, uid in enumerate(questions)
            if uid in wanted and _is_open(store, uid, retry_failed)
        ]
        try:
            if requests:
                sampler.make_room(requests, parameters)
                _answer(requests, list(questions), sampler, parameters, store, still_open)
        finally:
            _export(folder.answers(name), store, questions, count_tokens)
    records = [store.records[uid,] for uid in wanted if (uid,) in store]
    return Generated(
        answers=[record for record in records if "failed" not in record],
        failed={record["uid"]: record["failed"] for record in records if "failed" in record},
        still_open=still_open,
    )


def _check_whose_answers(answers: Path, generation: Path, sampler: Sampler) -> None:
    if not generation.is_file():
        if answers.is_file():
            raise ValueError(f"another program made {answers}: give this model another --name")
        return
    recorded, _ = read_store(generation)
    differences = model_differences(recorded, sampler)
    if differences:
        raise ValueError(
            f"{generation} holds answers of another model ({'; '.join(differences)}): give this "
            "one another --name, or --same_model if it is the same"
        )


def _messages(question: Question, system: str) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": question.prompt}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _is_open(store: Store, uid: str, retry_failed: bool) -> bool:
    record = store.records.get((uid,))
    return record is None or (retry_failed and "failed" in record)


def _answer(
    requests: Sequence[Request],
    uids: Sequence[str],
    sampler: Sampler,
    parameters: Parameters,
    store: Store,
    still_open: dict[str, str],
) -> None:
    """Samples the answers, and keeps each; `still_open` gets why others are not there."""

    def keep(results: Sequence[tuple[Request, Sampled | NoReply]]) -> None:
        records: list[Record] = []
        for request, reply in results:
            uid = uids[request.number]
            if not isinstance(reply, NoReply):
                records.append({"uid": uid, **reply._asdict(), "tstamp": time.time()})
            elif reply.refused:
                records.append({"uid": uid, "failed": str(reply)})
            else:
                still_open[uid] = str(reply)
        store.append(records)
        bar.advance(len(results))

    with progress("answering", len(requests), "answers") as bar:
        sampler.run(requests, parameters, keep)


def _export(
    path: Path, store: Store, questions: Mapping[str, Question], count_tokens: CountTokens | None
) -> None:
    """Writes the answers that are there as the official programs read them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for uid, question in questions.items():
            record = store.records.get((uid,))
            if record is not None and "failed" not in record:
                file.write(json_line(_answer_row(record, question, path.stem, count_tokens)))


def _answer_row(
    record: Record, question: Question, model: str, count_tokens: CountTokens | None
) -> dict[str, Any]:
    text, thinking = _text_and_thinking(record)
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
        "tstamp": record["tstamp"],
    }
    if count_tokens:
        row["metadata"] = metadata(text, count_tokens)
    return row


def _text_and_thinking(record: Record) -> tuple[str, str]:
    return split_thinking(record["text"], record["thinking"])
