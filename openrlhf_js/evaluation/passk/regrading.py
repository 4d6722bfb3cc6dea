"""Verdicts on samples that are there, from the texts that were kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from openrlhf_js import __version__
from openrlhf_js.evaluation.passk.grading import grade_all
from openrlhf_js.evaluation.passk.items import Item
from openrlhf_js.evaluation.passk.local import Progress
from openrlhf_js.evaluation.passk.samples import Place, SampleFile

OF_THE_MACHINE = ("timeout", "error")  # statuses that say nothing of the answer
BATCH = 256  # texts in memory


def places_of(file: SampleFile, items: int, statuses: Sequence[str] | None = None) -> list[Place]:
    """Where there are samples of the first items; only those of some statuses, if they are given.

    Args:
        file: has them.
        items: how many.
        statuses: of `tasks.STATUSES`; None: all.
    """
    return [
        place
        for place, sample in file.samples.items()
        if place[0] < items and (statuses is None or sample.status in statuses)
    ]


def grade_again(
    file: SampleFile, items: Sequence[Item], places: Iterable[Place], progress: Progress
) -> int:
    """How many of these samples have another status or answer, now that they are graded anew.

    Args:
        file: has the samples, and gets another line for each that changes, which then counts.
        items: of the benchmark.
        places: whose samples are graded.
        progress: is told after each batch.

    Raises:
        ValueError: the file is damaged. OSError: the disk does not take it.
    """
    changed = done = 0
    kept = file.kept(places)
    while batch := list(islice(kept, BATCH)):
        graded = grade_all([items[each.item] for each in batch], [each.text for each in batch])
        for old, new in zip(batch, graded, strict=True):
            before = file.samples[old.item, old.draw]  # a line in between may have counted
            differs = new != (before.status, before.answer)
            if differs or before.graded_by != __version__:
                file.append(
                    [old._replace(status=new.status, answer=new.answer, graded_by=__version__)]
                )
            changed += differs
        done += len(batch)
        progress(done)
    return changed
