"""Samples and grades the missing responses; `summary` turns them into results.

In the folder of results, `samples/NAME.jsonl` holds every response (`programs.store`), and
`samples/NAME.items.jsonl` what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from answer_graders.programs.console import say
from answer_graders.programs.files import atomic_write
from answer_graders.programs.store import Record, Store, json_line
from answer_graders.prompt_files import Example
from paired_eval.passk import grading
from paired_eval.passk.benchmarks import Asked, Benchmark
from paired_eval.passk.summary import FILE, FORMAT, Results, read_results, summarise
from paired_eval.sampling.complete import (
    ITEMS,
    Outcomes,
    Sample,
    complete,
    in_batches,
    missing,
    read_samples,
)
from paired_eval.sampling.endpoint import EndpointError
from paired_eval.sampling.sampler import (
    Parameters,
    Request,
    Sampled,
    Sampler,
    advice_on_another_model,
    model_differences,
    open_store,
)

UNGRADED = ("timeout", "error")  # statuses that say nothing of the answer: graded again
GRADED_AT_ONCE = 256
COLUMNS = ("messages", "label", "datasource", "images")  # of samples/NAME.items.jsonl
NOT_IN_MEMORY = ("text", "thinking")  # of a sample
ABOUT_RESPONSE = ("digest", "finish_reason", "tokens", "seed")  # not about its grade


def results_of_others(out: Path, sampler: Sampler) -> Results:
    """The results that a folder has of this model by now; ValueError for those of another."""
    tasks: Results = read_results(out)["tasks"] if (out / FILE).is_file() else {}
    for name, task in tasks.items():
        differences = model_differences(task["settings"], sampler)
        if differences:
            raise ValueError(
                f"{out} has results of another model ({name}: {'; '.join(differences)}): "
                f"{advice_on_another_model(sampler, 'another --out')}"
            )
    return tasks


def evaluate(
    sampler: Sampler, asked: Sequence[Asked], out: Path, seed: int, retry_failed: bool = False
) -> Results:
    """The results of a model on these benchmarks, and on others that the folder has already.

    ValueError: the folder has samples of other settings, or the model refuses all. EndpointError:
    some replies are missing; the others are kept.
    """
    tasks = results_of_others(out, sampler)
    for items_of_one in asked:
        parameters = parameters_of(items_of_one.benchmark, seed)
        sampler.make_room(requests_of(items_of_one, most=1), parameters)
    for items_of_one in asked:
        name = items_of_one.benchmark.name
        tasks[name] = _task_results(
            sampler=sampler,
            asked=items_of_one,
            out=out,
            seed=seed,
            retry_failed=retry_failed,
        )
    return {"format": FORMAT, "model": sampler.name, "tasks": tasks}


def requests_of(asked: Asked, most: int | None = None) -> list[Request]:
    """The requests of all responses to the items of a benchmark, or of the first `most` to each."""
    return [
        Request(
            uid=uid,
            number=number,
            draw=draw,
            messages=item.messages,
            images=item.images,
        )
        for number, (uid, item) in enumerate(asked.items.items())
        for draw in asked.draws(uid)[:most]
    ]


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
    benchmark = asked.benchmark
    items = asked.items
    path = out / "samples" / f"{benchmark.name}.jsonl"
    with open_store(
        path,
        sampler,
        settings={} if asked.recorded else parameters_of(benchmark, seed)._asdict(),
        key_fields=("uid", "draw"),
        content="samples",
        elsewhere="another --out",
        keep=_without_texts,
        may_replace=_may_replace,
    ) as store:
        _add_items(path.with_suffix(ITEMS), items)
        regrade(store, items)
        sample_missing(store, asked, sampler, seed, retry_failed)
        groups = [
            [Sample.of(store.records[uid, draw]) for draw in asked.draws(uid)] for uid in items
        ]
        return {"settings": store.identity, **summarise(items, groups)}


def _add_items(path: Path, items: Mapping[str, Example]) -> None:
    """Writes the items for whoever looks at the samples; those of earlier results stay."""
    lines = {}
    if path.is_file():
        lines = {json.loads(line)["uid"]: line for line in path.read_bytes().splitlines(True)}
    for uid, item in items.items():
        columns = {name: getattr(item, name) for name in COLUMNS}
        lines[uid] = json_line({"uid": uid, **columns})
    with atomic_write(path) as file:
        file.writelines(lines.values())


def _without_texts(record: Record) -> Record:
    """The part of a sample that stays in memory: a digest replaces its texts."""
    kept = {name: value for name, value in record.items() if name not in NOT_IN_MEMORY}
    kept["digest"] = hash(tuple(record.get(name) for name in NOT_IN_MEMORY))
    return kept


def _may_replace(earlier: Record, later: Record) -> bool:
    """Whether a run writes the later sample after the earlier one to the same request.

    It does if a refused request is asked again, or a response is graded again: by another version
    of the graders, or because it had no verdict.
    """
    if earlier.get("refused") is not None:
        return True
    if any(earlier.get(name) != later.get(name) for name in ABOUT_RESPONSE):
        return False
    is_of_other_grader = earlier.get("graded_by") != later.get("graded_by")
    return is_of_other_grader or earlier.get("status") in UNGRADED


def sample_missing(
    store: Store, asked: Asked, sampler: Sampler, seed: int, retry_failed: bool = False
) -> None:
    """Samples, grades and appends the responses that a store lacks; raises as `evaluate`.

    What the model refuses (too long, filtered) is recorded as refused, with the endpoint's words,
    and asked again only with `retry_failed`.
    """
    benchmark = asked.benchmark
    parameters = parameters_of(benchmark, seed)
    wanted = requests_of(asked)
    requests = missing(store, wanted, retry_failed)
    _say_what_is_there(store, wanted, open_requests=len(requests))
    unanswered = complete(
        store,
        requests,
        work=lambda requests, keep: sampler.run(requests, parameters, keep),
        grade=partial(_graded, asked.items),
        title=f"{'grading' if asked.recorded else 'sampling'} {benchmark.name}",
    )
    if unanswered:
        request, reply = unanswered[-1]
        raise EndpointError(
            f"{benchmark.name}: {len(unanswered):,} of {len(requests):,} requests have no reply; "
            f"the last: item {request.number + 1}: {reply}"
        )


def _say_what_is_there(store: Store, wanted: Sequence[Request], open_requests: int) -> None:
    """Reports what an earlier run left in a store: what is used of it, and what is not."""
    name = store.path.stem
    usable = len(wanted) - open_requests
    others = len(store.records) - sum((request.uid, request.draw) in store for request in wanted)
    if usable and open_requests:
        say(
            f"{name}: an earlier run left {usable:,} of {len(wanted):,} responses in {store.path}",
            error=True,
        )
    if others:
        say(
            f"{name}: {others:,} responses in {store.path} are to other items, or more than "
            "are asked for: they are in no figure",
            error=True,
        )


def _graded(items: Mapping[str, Example], results: Outcomes) -> list[Record]:
    """The records of responses to requests, with their grades."""
    examples = [items[request.uid] for request, _ in results]
    texts = [response.text for _, response in results]
    grades = grading.grade_all(examples, texts)
    version = grading.grader_version()
    records = []
    for (request, response), grade in zip(results, grades, strict=True):
        sampled = {name: getattr(response, name) for name in Sampled._fields}
        key = {"uid": request.uid, "draw": request.draw}
        records.append({**key, **sampled, **grade._asdict(), "graded_by": version})
    return records


def regrade(store: Store, items: Mapping[str, Example]) -> None:
    """Grades again the samples that another version graded, or that could not be graded."""
    name = store.path.stem
    samples = _samples_to_regrade(store, items)
    if not samples:
        return
    complete(
        store,
        samples,
        work=in_batches(GRADED_AT_ONCE, list),  # a sample is its own result
        grade=partial(_graded, items),
        title=f"grading {name} again",
    )
    say(f"{name}: graded {len(samples):,} responses again", error=True)


def _samples_to_regrade(store: Store, items: Mapping[str, Example]) -> list[Sample]:
    """The samples of these items whose grade is outdated or missing, with their texts."""

    def needs_regrading(sample: Sample) -> bool:
        """Whether another version graded a sample, or it could not be graded."""
        if sample.uid not in items or sample.refused is not None:
            return False
        return sample.status in UNGRADED or sample.graded_by != grading.grader_version()

    if not any(needs_regrading(Sample.of(record)) for record in store.records.values()):
        return []
    return [sample for sample in read_samples(store.path) if needs_regrading(sample)]
