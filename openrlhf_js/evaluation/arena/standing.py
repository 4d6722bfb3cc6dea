"""Whether judgments were made as the official protocol has it, as far as anybody recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.protocol import protocol_of

POOLED = {("arena-hard-v2.0", "creative_writing"): ("gpt-4.1", "gemini-2.5")}
"""Categories that are officially judged by several judges, whose rows are pooled."""

MOST_NAMED = 5  # models in a sentence


class Standing(NamedTuple):
    """What is known of the protocol."""

    followed: bool | None
    """None: not recorded, and nothing else speaks against it."""
    said: tuple[str, ...]
    """In what it was not followed, or what is not known."""

    def words(self) -> str:
        """One sentence for people."""
        if self.followed:
            return "The official protocol was followed."
        start = "Not the official protocol" if self.followed is False else "Protocol not recorded"
        return f"{start}: {'; '.join(self.said)}."


def standing(
    folder: Folder, bench: Bench, category: str, judges: Sequence[str], models: Sequence[str] = ()
) -> Standing:
    """How far the official protocol was followed.

    Args:
        folder: holds what was recorded beside the judgments.
        bench: with the baselines in use.
        category: of it.
        judges: whose judgments are pooled, or a single one.
        models: that were judged. Of those that this program has not had judged under the recorded
            protocol, such as the models of judgments that were fetched, nothing is known.

    Raises:
        OSError: a record cannot be read. ValueError: it is broken.
    """
    against: list[str] = []
    unknown: list[str] = []
    silence: list[str] = []
    own = bench.category(category)
    if not bench.judges:
        return Standing(False, (f"{bench.name} is no official benchmark",))
    official = [judge.name for judge in bench.judges]
    for judge in judges:
        recorded = protocol_of(folder, judge)
        if recorded is not None and (how := recorded.of(category)).runs:
            against += how.deviations
            recorded_models = {name for run in how.runs for name in run.models}
            if strange := [name for name in models if name not in recorded_models]:
                silence.append(f"nothing tells how {judge} judged {_some(strange)}")
            continue
        unknown.append(judge)
        if judge not in official:
            against.append(f"the judge is {judge}; officially {' or '.join(official)}")
        if own.baseline != own.official_baseline:
            against.append(
                f"the baseline of {category} is {own.baseline}; officially {own.official_baseline}"
            )
    both = POOLED.get((bench.name, category))
    if both and len(judges) == 1:
        against.append(f"{category} is officially judged by {' and '.join(both)}, pooled")
    if not both and len(judges) > 1:
        against.append(f"{category} is officially judged by one judge, and these are pooled")
    if unknown:
        silence.insert(0, f"nothing tells how {' and '.join(unknown)} judged")
    if against:
        return Standing(False, (*dict.fromkeys(against), *silence))
    return Standing(None if silence else True, tuple(silence))


def _some(names: Sequence[str]) -> str:
    shown, more = names[:MOST_NAMED], len(names) - MOST_NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
