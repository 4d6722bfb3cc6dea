"""The history of `js_plus` in a checkpoint: what earlier batches showed goes on with the run."""

from __future__ import annotations

from typing import Any

from openrlhf_js.estimators import RunningStatistics
from openrlhf_js.plugin.errors import BadInput

KEY = "js_history"  # in the states that upstream saves with the actor


def with_history(
    states: dict[str, Any] | None, history: RunningStatistics | None
) -> dict[str, Any] | None:
    """The states that a checkpoint saves, with the history as plain numbers.

    Args:
        states: upstream's, changed in place, since upstream goes on using them; None for none.
        history: None where the run keeps none.
    """
    if history is None:
        return states
    states = {} if states is None else states
    states[KEY] = history._asdict()
    return states


def resumed_history(
    states: dict[str, Any], history: RunningStatistics | None
) -> RunningStatistics | None:
    """The history that a run goes on with.

    Args:
        states: of the checkpoint; upstream's zeros where there is none.
        history: that of a run that begins; None without `--js.half_life`.

    Raises:
        BadInput: the checkpoint is of a run with another `--js.half_life`, or without one.
    """
    if not states.get("global_step"):
        return history
    saved = states.get(KEY)
    before = None if saved is None else saved["half_life"]
    now = None if history is None else history.half_life
    if before != now:
        again = "leave it out" if before is None else f"give --js.half_life {before:g} with js_plus"
        raise BadInput(
            f"--ckpt.load_enable: the run of that checkpoint had {_spoken(before)}, this one has "
            f"{_spoken(now)}: {again} to go on, or begin anew without --ckpt.load_enable"
        )
    return None if saved is None else RunningStatistics(**saved)


def _spoken(half_life: float | None) -> str:
    return "no --js.half_life" if half_life is None else f"--js.half_life {half_life:g}"
