"""Samples what is missing and grades it; `summary` makes results of it.

`samples/NAME.jsonl` in the folder of results holds every response (`common.store`);
`samples/NAME.items.jsonl` holds what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Key, Record, Store, json_line, read_store
from openrlhf_js.evaluation.passk import grading
from openrlhf_js.evaluation.passk.benchmarks import Asked, Benchmark
from openrlhf_js.evaluation.passk.summary import (
    FILE,
    FORMAT,
    REFUSED,
    Results,
    read_results,
    summarise,
)
from openrlhf_js.sampling.endpoint import EndpointError, NoReply
from openrlhf_js.sampling.sampler import (
    Parameters,
    Request,
    Sampled,
    Sampler,
    identity_notes,
    model_differences,
)
from openrlhf_js.tasks.prompt_files import Example

UNGRADED = ("timeout", "error")  # statuses that say nothing of the answer: graded again
GRADED_AT_ONCE = 256
COLUMNS = ("messages", "label", "datasource", "images")  # of samples/NAME.items.jsonl
NOT_IN_MEMORY = ("text", "thinking")  # of a sample


def evaluate(
    sampler: Sampler, asked: Sequence[Asked], out: Path, seed: int, retry_failed: bool = False
) -> Results:
    """The results of a model on benchmarks, with those of others that the folder has of it.

    ValueError: the folder has samples of other settings, or the model refuses all. EndpointError:
    some replies are missing; what came is kept.
    """
    tasks = read_results(out)["tasks"] if (out / FILE).is_file() else {}
    for name, task in tasks.items():
        differences = model_differences(task["settings"], sampler)
        if differences:
            raise ValueError(
                f"{out} has results of another model ({name}: {'; '.join(differences)}): give "
                "another --out, or --same_model if a server serves the same one"
            )
    for benchmark, items in asked:
        first_draws = [
            Request(number, 0, item.messages, item.images)
            for number, item in enumerate(items.values())
        ]
        sampler.make_room(first_draws, parameters_of(benchmark, seed))
    for items_of_one in asked:
        name = items_of_one.benchmark.name
        tasks[name] = _task_results(sampler, items_of_one, out, seed, retry_failed)
    return {"format": FORMAT, "model": sampler.name, "tasks": tasks}


def parameters_of(benchmark: Benchmark, seed: int) -> Parameters:
    """How a benchmark is sampled."""
    return Parameters(
        temperature=benchmark.temperature,
        top_p=benchmark.top_p,
        max_new_tokens=benchmark.max_new_tokens,
        seed=seed,
    )


def _task_results(
    sampler: Sampler, asked: Asked, out: Path, seed: int, retry_failed: bool
) -> dict[str, object]:
    """Completes the samples of a benchmark, and summarises them."""
    benchmark, items = asked
    identity = {**sampler.identity, **parameters_of(benchmark, seed)._asdict()}
    path = out / "samples" / f"{benchmark.name}.jsonl"
    _check_whose_samples(path, sampler)
    notes = identity_notes(sampler)
    with Store(path, identity, ("uid", "draw"), notes, keep=_without_text) as store:
        _write_items(path.with_suffix(".items.jsonl"), items)
        regrade(store, items)
        sample_missing(store, asked, sampler, seed, retry_failed)
        draws = range(benchmark.samples)
        groups = [[store.records[uid, draw] for draw in draws] for uid in items]
        return {"settings": store.identity, **summarise(items, groups)}


def _check_whose_samples(path: Path, sampler: Sampler) -> None:
    """ValueError if the samples, of a call that was stopped perhaps, are of another model."""
    if not path.is_file() or not path.stat().st_size:
        return
    recorded, _ = read_store(path)
    differences = model_differences(recorded, sampler)
    if differences:
        raise ValueError(
            f"{path} holds samples of another model ({'; '.join(differences)}): give another "
            "--out, or --same_model if a server serves the same one"
        )


def _without_text(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in NOT_IN_MEMORY}


def _write_items(path: Path, items: Mapping[str, Example]) -> None:
    with atomic_write(path) as file:
        for uid, item in items.items():
            columns = {name: getattr(item, name) for name in COLUMNS}
            file.write(json_line({"uid": uid, **columns}))


def sample_missing(
    store: Store, asked: Asked, sampler: Sampler, seed: int, retry_failed: bool = False
) -> None:
    """Samples, grades and appends the responses that a store lacks; raises as `evaluate`.

    What the model refuses (too long, filtered) is recorded as refused, with the endpoint's words,
    and asked again with `retry_failed` alone.
    """
    name = asked.benchmark.name
    missing = list(_missing_requests(store, asked, retry_failed))
    uids = list(asked.items)
    refused: list[str] = []
    unanswered: list[str] = []

    def keep(batch: list[tuple[Request, Sampled | NoReply]]) -> None:
        samples = []
        refusals = []
        for request, reply in batch:
            key = {"uid": uids[request.number], "draw": request.draw}
            if isinstance(reply, Sampled):
                samples.append({**key, **reply._asdict()})
                continue
            message = f"item {request.number + 1}: {reply}"
            if reply.refused:
                refused.append(message)
                refusals.append({**key, **_refusal(reply)})
            else:
                unanswered.append(message)
        store.append([*_graded(asked.items, samples), *refusals])
        bar.advance(len(batch))

    with progress(f"sampling {name}", len(missing), "responses") as bar:
        try:
            sampler.run(missing, parameters_of(asked.benchmark, seed), keep)
        finally:
            if refused:
                say(f"{len(refused):,} responses are refused; the last: {refused[-1]}", error=True)
    if unanswered:
        raise EndpointError(
            f"{name}: {len(unanswered):,} of {len(missing):,} requests have no reply; the last: "
            f"{unanswered[-1]}"
        )


def _missing_requests(store: Store, asked: Asked, retry_failed: bool) -> Iterator[Request]:
    for number, (uid, item) in enumerate(asked.items.items()):
        for draw in range(asked.benchmark.samples):
            record = store.records.get((uid, draw))
            if record is None or (retry_failed and record["finish_reason"] == REFUSED):
                yield Request(number, draw, item.messages, item.images)


def _refusal(reply: NoReply) -> Record:
    """What is recorded of a sample that is refused: no text, and no grade."""
    sample = Sampled(text="", thinking="", finish_reason=REFUSED, tokens=None, seed=0)
    return {**sample._asdict(), "status": REFUSED, "answer": None, "refused": str(reply)}


def _graded(items: Mapping[str, Example], samples: Sequence[Record]) -> list[Record]:
    """The samples with their grades."""
    grades = grading.grade_all(
        [items[sample["uid"]] for sample in samples], [sample["text"] for sample in samples]
    )
    version = grading.grader_version()
    return [
        {**sample, **grade._asdict(), "graded_by": version}
        for sample, grade in zip(samples, grades, strict=True)
    ]


def regrade(store: Store, items: Mapping[str, Example]) -> None:
    """Grades again what another version has graded, or could not."""
    name = store.path.stem
    samples = _samples_to_regrade(store, items)
    if not samples:
        return
    with progress(f"grading {name} again", len(samples), "responses") as bar:
        for start in range(0, len(samples), GRADED_AT_ONCE):
            batch = samples[start : start + GRADED_AT_ONCE]
            graded = _graded(items, batch)
            store.append(new for old, new in zip(batch, graded, strict=True) if new != old)
            bar.advance(len(batch))
    say(f"{name}: graded {len(samples):,} responses again", error=True)


def _samples_to_regrade(store: Store, items: Mapping[str, Example]) -> list[Record]:
    """The samples of these items whose grade is old, or none, with their texts."""
    keys = {
        key
        for key, record in store.records.items()
        if record["uid"] in items and _needs_regrading(record)
    }
    if not keys:
        return []
    _, records = read_store(store.path)
    samples: dict[Key, Record] = {}  # the last of several counts
    for record in records:
        samples[record["uid"], record["draw"]] = record
    return [samples[key] for key in sorted(keys)]


def _needs_regrading(record: Record) -> bool:
    if record["finish_reason"] == REFUSED:
        return False
    is_ungraded = record["status"] in UNGRADED
    return is_ungraded or record["graded_by"] != grading.grader_version()
