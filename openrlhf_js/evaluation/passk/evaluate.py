"""Samples what is missing, grades it, and summarises it with intervals by item.

`samples/NAME.jsonl` in the folder of results holds every response (`common.store`);
`samples/NAME.items.jsonl` holds what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Record, Store, json_line, read_store
from openrlhf_js.evaluation.passk import grading
from openrlhf_js.evaluation.passk.benchmarks import Asked, Benchmark
from openrlhf_js.sampling.endpoint import EndpointError, NoReply
from openrlhf_js.sampling.sampler import Parameters, Request, Sampled, Sampler
from openrlhf_js.stats import Estimate, clustered_mean, clustered_proportion, mean_pass_at_k
from openrlhf_js.tasks import STATUSES
from openrlhf_js.tasks.prompt_files import Example

FILE, FORMAT = "results.json", "openrlhf_js passk 2"
NOTES = ("model", "url", "device")  # what may change between calls
IDENTITY = ("model_sha256", "served_model")  # which model it is
UNGRADED = ("timeout", "error")  # statuses that say nothing of the answer: graded again
GRADED_AT_ONCE = 256
REFUSED = "refused"  # finish reason
COLUMNS = ("messages", "label", "datasource", "images")  # of samples/NAME.items.jsonl

Results = dict[str, Any]


def evaluate(sampler: Sampler, asked: Sequence[Asked], out: Path, seed: int) -> Results:
    """The results of a model on benchmarks, with those of others that the folder has of it.

    ValueError: the folder has samples of other settings, or the model refuses all. EndpointError:
    some replies are missing; what came is kept.
    """
    there = read_results(out)["tasks"] if (out / FILE).is_file() else {}
    for name, task in there.items():
        if any(task["settings"].get(key) != sampler.identity.get(key) for key in IDENTITY):
            raise ValueError(f"{out} has results of another model ({name}); give another --out")
    for benchmark, items in asked:
        sampler.make_room(
            [Request(i, 0, each.messages, each.images) for i, each in enumerate(items.values())],
            parameters_of(benchmark, seed),
        )
    tasks = {}

    def without_text(record: Record) -> Record:
        return {key: value for key, value in record.items() if key not in ("text", "thinking")}

    for each in asked:
        name, k = each.benchmark.name, each.benchmark.samples
        settings = {**sampler.identity, **parameters_of(each.benchmark, seed)._asdict()}
        path = out / "samples" / f"{name}.jsonl"
        with Store(path, settings, ("uid", "draw"), NOTES, keep=without_text) as store:
            with atomic_write(path.with_suffix(".items.jsonl")) as file:
                for uid, item in each.items.items():
                    columns = {name: getattr(item, name) for name in COLUMNS}
                    file.write(json_line({"uid": uid, **columns}))
            regrade(store, each.items)
            sample_missing(store, each, sampler, seed)
            groups = [[store.records[uid, draw] for draw in range(k)] for uid in each.items]
            tasks[name] = {"settings": store.identity, **summarise(each.items, groups)}
    return {"format": FORMAT, "model": sampler.name, "tasks": {**there, **tasks}}


def parameters_of(benchmark: Benchmark, seed: int) -> Parameters:
    """How a benchmark is sampled."""
    return Parameters(benchmark.temperature, benchmark.top_p, benchmark.max_new_tokens, seed)


def sample_missing(store: Store, asked: Asked, sampler: Sampler, seed: int) -> None:
    """Samples, grades and appends the responses that a store lacks; raises as `evaluate`.

    What the model refuses (too long, filtered) is a response without an answer.
    """
    benchmark, items = asked
    missing = [
        Request(number, draw, item.messages, item.images)
        for number, (uid, item) in enumerate(items.items())
        for draw in range(benchmark.samples)
        if (uid, draw) not in store.records
    ]
    uids = [*items]
    refused: list[str] = []
    unanswered: list[str] = []

    def keep(batch: list[tuple[Request, Sampled | NoReply]]) -> None:
        records = []
        for request, each in batch:
            if isinstance(each, NoReply):
                lost = refused if each.refused else unanswered
                lost.append(f"item {request.number + 1}: {each}")
                if lost is unanswered:
                    continue
                each = Sampled("", "", REFUSED, None, 0)
            records.append({"uid": uids[request.number], "draw": request.draw, **each._asdict()})
        store.append(_graded(items, records))
        bar.advance(len(batch))

    with progress(f"sampling {benchmark.name}", len(missing), "responses") as bar:
        sampler.run(missing, parameters_of(benchmark, seed), keep)
    if refused:
        say(f"{len(refused):,} responses are refused; the last: {refused[-1]}", error=True)
    if unanswered:
        raise EndpointError(
            f"{benchmark.name}: {len(unanswered):,} of {len(missing):,} requests have no reply; "
            f"the last: {unanswered[-1]}"
        )


def _graded(items: Mapping[str, Example], records: Sequence[Record]) -> list[Record]:
    texts, version = [each["text"] for each in records], grading.grader_version()
    grades = grading.grade_all([items[each["uid"]] for each in records], texts)
    pairs = zip(records, grades, strict=True)
    return [{**record, **grade._asdict(), "graded_by": version} for record, grade in pairs]


def regrade(store: Store, items: Mapping[str, Example]) -> None:
    """Grades again what another version has graded, or could not."""
    version = grading.grader_version()
    wanted = {
        key
        for key, record in store.records.items()
        if key[0] in items
        if record["graded_by"] != version or record["status"] in UNGRADED
    }
    if not wanted:
        return
    with_text: dict[Any, Record] = {(r["uid"], r["draw"]): r for r in read_store(store.path)[1]}
    kept = [with_text[key] for key in sorted(wanted)]
    with progress(f"grading {store.path.stem} again", len(kept), "responses") as bar:
        for start in range(0, len(kept), GRADED_AT_ONCE):
            batch = kept[start : start + GRADED_AT_ONCE]
            pairs = zip(batch, _graded(items, batch), strict=True)
            store.append(new for old, new in pairs if new != old)
            bar.advance(len(batch))
    say(f"{store.path.stem}: graded {len(kept):,} responses again", error=True)


def summarise(items: Mapping[str, Example], groups: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """Rates and lengths with intervals by item, for JSON.

    `groups` are k graded samples for each item. `rows` has one row for each figure (`j` is that of
    pass@j, else None), and `per_item` what comparisons are made from.
    """
    k, uids = len(groups[0]), [*items]
    correct = [sum(each["status"] == "correct" for each in group) for group in groups]

    def vote(item: Example, group: Sequence[Record]) -> float:
        statuses, answers = ([each[name] for each in group] for name in ("status", "answer"))
        return grading.majority(statuses, answers, partial(grading.same_answer, item.task))

    with ThreadPoolExecutor(grading.THREADS) as threads:  # comparing answers may take a while
        votes = list(threads.map(vote, items.values(), groups))
    flat = [each for group in groups for each in group]
    said = [each for each in flat if each["finish_reason"] != REFUSED]
    if not said:
        raise ValueError("the model refuses every item")
    rows: list[dict[str, Any]] = []

    def add(quantity: str, estimate: Estimate, j: int | None = None) -> None:
        rows.append({"quantity": quantity, "j": j, **estimate.plain()})

    def rate(name: str, value: str) -> Estimate:
        shares = [sum(each[name] == value for each in group) / k for group in groups]
        return clustered_proportion(shares)

    add("mean_at_k", mean_pass_at_k(k, correct, 1))
    for j in sorted({k} | {1 << bit for bit in range(k.bit_length())}):  # 1, 2, 4, ... and k
        add("pass_at", mean_pass_at_k(k, correct, j), j)
    add("majority_at_k", clustered_proportion(votes))
    for status in STATUSES:
        add(status, rate("status", status))
    add("truncated", rate("finish_reason", "length"))
    add(REFUSED, rate("finish_reason", REFUSED))
    if all(each["tokens"] is not None for each in said):
        right = [each for each in said if each["status"] == "correct"]
        for name, own in (("tokens", said), ("tokens_correct", right)):
            if own:
                tokens = [float(each["tokens"]) for each in own]
                add(name, clustered_mean(tokens, [each["uid"] for each in own]))
    return {
        "items": len(items),
        "samples": k,
        "graded_by": ", ".join(sorted({each["graded_by"] for each in flat})),
        "rows": rows,
        "per_item": {"uid": uids, "correct": correct, "majority": votes},
    }


def read_results(place: Path, tasks: Sequence[str] = ()) -> Results:
    """What stands in a folder of results, or in its results.json; of these benchmarks, or all."""
    path = place / FILE if place.is_dir() else place
    if not path.is_file():
        raise ValueError(f"{place} holds no {FILE}: give the --out of a finished evaluation")
    found: Results = json.loads(path.read_bytes())
    if found.get("format") != FORMAT:
        raise ValueError(f"{path} does not hold results of this version of `eval passk`")
    if missing := [name for name in tasks if name not in found["tasks"]]:
        raise ValueError(f"{place} has no {', '.join(missing)}; it has {', '.join(found['tasks'])}")
    return {**found, "tasks": {name: found["tasks"][name] for name in tasks or found["tasks"]}}
