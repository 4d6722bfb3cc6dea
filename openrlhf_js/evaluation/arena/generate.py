"""A model's answers: each on disk as soon as it is there, thinking apart from what is judged.

generation/NAME.jsonl       every answer, or why there is none, under its settings
model_answer/NAME.jsonl     the answers as the official programs read them
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Record, Store, json_line
from openrlhf_js.evaluation.arena.data import Folder, Question
from openrlhf_js.evaluation.arena.style import CountTokens, metadata, split_thinking
from openrlhf_js.sampling.endpoint import NoReply
from openrlhf_js.sampling.sampler import Parameters, Request, Sampled, Sampler

NOTES = ("model", "url", "device")  # of the settings, what may change between calls


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
) -> tuple[list[Record], dict[str, str]]:
    """Has a model answer the `wanted` questions that it has not answered yet.

    Returns their records ("failed": why there is no answer), and why others are open, by uid.
    ValueError if there are answers made with other settings, or by another program.
    """
    answers, path = folder.answers(name), folder.generation(name)
    if answers.is_file() and not path.is_file():
        raise ValueError(f"another program made {answers}: give this model another --name")
    settings = {**sampler.identity, **parameters._asdict(), "system": system}
    numbers = {uid: number for number, uid in enumerate(questions)}
    asks = [{"role": "system", "content": system}] if system else []
    problems: dict[str, str] = {}
    with Store(path, settings, ("uid",), NOTES) as store:
        todo = [
            Request(numbers[uid], 0, [*asks, {"role": "user", "content": each.prompt}])
            for uid, each in wanted.items()
            if (uid,) not in store or (retry_failed and "failed" in store.records[uid,])
        ]
        uids = list(questions)

        def save(results: Sequence[tuple[Request, Sampled | NoReply]]) -> None:
            records: list[Record] = []
            for request, reply in results:
                uid = uids[request.number]
                if not isinstance(reply, NoReply):
                    records.append({"uid": uid, **reply._asdict(), "tstamp": time.time()})
                elif reply.refused:
                    records.append({"uid": uid, "failed": str(reply)})
                else:
                    problems[uid] = str(reply)
            store.append(records)
            bar.advance(len(results))

        try:
            if todo:
                sampler.make_room(todo, parameters)
                with progress("answering", len(todo), "answers") as bar:
                    sampler.run(todo, parameters, save)
        finally:
            _export(answers, store, questions, count_tokens)
    return [store.records[uid,] for uid in wanted if (uid,) in store], problems


def _export(
    path: Path, store: Store, questions: Mapping[str, Question], count_tokens: CountTokens | None
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for uid, question in questions.items():
            said = store.records.get((uid,), {"failed": "not asked yet"})
            if "failed" in said:
                continue
            text, thinking = split_thinking(said["text"], said["thinking"])
            content = {"answer": text, **({"thought": thinking} if thinking else {})}
            row = {
                "uid": uid,
                "ans_id": f"{path.stem}-{uid}",
                "model": path.stem,
                "messages": [
                    {"role": "user", "content": question.prompt},
                    {"role": "assistant", "content": content},
                ],
                "tstamp": said["tstamp"],
            }
            if count_tokens:
                row["metadata"] = metadata(text, count_tokens)
            file.write(json_line(row))
