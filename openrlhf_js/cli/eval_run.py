"""How programs of `openrlhf-js eval` end: done, or with one error."""

from __future__ import annotations

from collections.abc import Callable

from openrlhf_js.cli.ending import Failures, ended


def guarded(
    program: str,
    work: Callable[[], int | None],
    kept: str,
    failures: Failures | None = None,
) -> int:
    """Runs a program that may ask endpoints, as `ending.ended`.

    Args:
        program: what was typed, such as "openrlhf-js eval arena fetch".
        work: the program.
        kept: what becomes of what was done when it stops half-way.
        failures: more of them.
    """
    from openrlhf_js.evaluation.endpoint import EndpointRefused, EndpointUnavailable

    def told(error: BaseException) -> str:
        return f"{error}\n{kept}"

    kinds = (EndpointRefused, EndpointUnavailable, MemoryError)
    return ended(program, work, kept, {**dict.fromkeys(kinds, told), **(failures or {})})
