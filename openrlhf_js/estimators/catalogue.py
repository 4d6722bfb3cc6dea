"""All estimators by name."""

from __future__ import annotations

import difflib

from openrlhf_js.estimators.baselines import classic, shrinkage, weighted
from openrlhf_js.estimators.baselines.bnpo import BNPO
from openrlhf_js.estimators.baselines.dbb import DBB
from openrlhf_js.estimators.baselines.ebpo import EBPO
from openrlhf_js.estimators.baselines.grad import JS_GRAD
from openrlhf_js.estimators.baselines.jspo import JSPO_PLUS_PLUS
from openrlhf_js.estimators.baselines.krpo import KRPO
from openrlhf_js.estimators.baselines.maxrl import MAXRL
from openrlhf_js.estimators.baselines.mc_grpo import MC_GRPO
from openrlhf_js.estimators.baselines.opo import OPO
from openrlhf_js.estimators.baselines.qae import QAE
from openrlhf_js.estimators.baselines.spo import SPO
from openrlhf_js.estimators.record import Estimator

OURS = (*shrinkage.ESTIMATORS, JS_GRAD)
RIVALS = (
    EBPO,
    DBB,
    SPO,
    OPO,
    *weighted.ESTIMATORS,
    JSPO_PLUS_PLUS,
    MAXRL,
    MC_GRPO,
    KRPO,
    BNPO,
    QAE,
)
RECORDS = classic.ESTIMATORS + OURS + RIVALS
ESTIMATORS: dict[str, Estimator] = {record.name: record for record in RECORDS}
RECOMMENDED = "js_grad"  # the docs of the integrations quote it
SINCE = "0.4"
RENAMED = {"js_plus": "js_grad", "js_memory": "js_grad", "reinforce": "no_baseline"}


def find_estimator(name: str) -> Estimator:
    """Return the estimator of that name, or of `FILE.py:NAME`.

    Raises ValueError for any other name, which lists them all, or says what it is called now, and
    for a file that does not fit (`own.load_own`).
    """
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    if ".py:" in name:
        from openrlhf_js.estimators.own import load_own

        return load_own(name)
    if name in RENAMED:
        raise ValueError(f"{name} is {RENAMED[name]} since {SINCE}.")
    similar = difflib.get_close_matches(name, ESTIMATORS, n=1)
    hint = f" (did you mean {similar[0]!r}?)" if similar else ""
    raise ValueError(
        f"unknown estimator {name!r}{hint}; choose one of {', '.join(ESTIMATORS)}, or your own as "
        "FILE.py:NAME."
    )
