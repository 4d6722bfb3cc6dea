"""All estimators by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from openrlhf_js.estimators.baselines import classic, shrinkage, weighted
from openrlhf_js.estimators.baselines.dbb import DBB
from openrlhf_js.estimators.baselines.ebpo import EBPO
from openrlhf_js.estimators.baselines.grad import JS_GRAD
from openrlhf_js.estimators.baselines.jspo import JSPO_PLUS_PLUS
from openrlhf_js.estimators.baselines.maxrl import MAXRL
from openrlhf_js.estimators.baselines.mc_grpo import MC_GRPO
from openrlhf_js.estimators.baselines.spo import SPO
from openrlhf_js.estimators.own import load_own, parse_own
from openrlhf_js.estimators.record import Estimator

OURS = (*shrinkage.ESTIMATORS, JS_GRAD)
RIVALS = (
    EBPO,
    DBB,
    SPO,
    *weighted.ESTIMATORS,
    JSPO_PLUS_PLUS,
    MAXRL,
    MC_GRPO,
)
RECORDS = classic.ESTIMATORS + OURS + RIVALS
ESTIMATORS: dict[str, Estimator] = {record.name: record for record in RECORDS}
RECOMMENDED = "js_grad"  # the docs of the integrations quote it
SINCE = "0.4"
RENAMED = {"js_plus": "js_grad", "js_memory": "js_grad", "reinforce": "no_baseline"}

# What a training run takes: OpenRLHF's estimators, computed by its own code, and those we add.
OPENRLHF: dict[str, Estimator | None] = {"gae": None}  # its values are learned by a critic
OPENRLHF |= {name: record for record in RECORDS for name in record.upstream}
ADDED: dict[str, Estimator] = {record.name: record for record in RECORDS if not record.upstream}


class InTraining(NamedTuple):
    """What a name means to a training run."""

    name: str
    """The value of `--algo.advantage.estimator`; for the user's own file, with an absolute path."""
    record: Estimator | None
    """None for `gae`."""
    is_ours: bool
    """Whether our code computes it; otherwise OpenRLHF's does."""


def in_training(name: str) -> InTraining:
    """Return what a name means in a training run: OpenRLHF's name, one of ours, or `FILE.py:NAME`.

    Our name for an estimator that OpenRLHF computes stands for OpenRLHF's: `grpo` for `group_norm`.
    Raises ValueError for any other name, as `find_estimator` does.
    """
    if name in OPENRLHF:
        return InTraining(name=name, record=OPENRLHF[name], is_ours=False)
    own = parse_own(name)
    if own is not None:
        return InTraining(name=own.spec, record=find_estimator(own.spec), is_ours=True)
    record = _named(name, [*OPENRLHF, *ADDED])
    if record.upstream:
        return InTraining(name=record.upstream[0], record=record, is_ours=False)
    return InTraining(name=name, record=record, is_ours=True)


def find_estimator(name: str) -> Estimator:
    """Return the estimator of that name, or of `FILE.py:NAME`.

    Raises ValueError for any other name, with all names or the new name of a renamed one, and for a
    file that does not fit (`own.load_own`).
    """
    return _named(name, list(ESTIMATORS)) if parse_own(name) is None else load_own(name)


def _named(name: str, known: Sequence[str]) -> Estimator:
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    if name in RENAMED:
        raise ValueError(f"{name} is {RENAMED[name]} since {SINCE}.")
    similar = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {similar[0]!r}?)" if similar else ""
    raise ValueError(
        f"unknown estimator {name!r}{hint}; choose one of {', '.join(known)}, or your own as "
        "FILE.py:NAME."
    )
